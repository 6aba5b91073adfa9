//! What `memviz checkpoint` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::checkpoint::CheckpointReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(CheckpointReport, "checkpoint", 'a: Source<'a>,
    json::checkpoint => Head<'static, json::CheckpointDevice<'static>>);
