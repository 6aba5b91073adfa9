//! What `memviz fragmentation` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::fragmentation::FragmentationReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(FragmentationReport, "fragmentation", 'a: Source<'a>,
    json::fragmentation => Head<'static, json::FragmentationDevice<'static>>);
