//! What `memviz diff` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;
pub use words::{alike, exceeded_growth, moved, unknown_growth};

use crate::analysis::diff::DiffReport;
use crate::report::Sources;
use crate::report::common::answer::answer;

answer!(DiffReport, "diff", 'a: Sources<'a>, json::Diff::of => json::Diff<'static>);
