//! The output of `memviz fix`.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
mod picture;
mod unified;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::fix::FixReport;
use crate::report::Source;
use crate::report::common::answer::answer;

answer!(FixReport, "fix", 'a: Source<'a>, json::FixAnswer::of => json::FixAnswer<'static>);
