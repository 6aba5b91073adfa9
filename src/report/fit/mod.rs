//! The output of `memviz fit`.

#[cfg(feature = "plot")]
mod axes;
pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod single;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::fit::FitReport;
use crate::report::Source;
use crate::report::common::answer::answer;

answer!(FitReport, "fit", 'a: &'a [Source<'a>], json::fit => json::Fit<'static>);
