//! The output of `memviz simulate`.

pub(crate) mod csv;
pub(crate) mod document;
mod endings;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::simulate::SimulateReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(SimulateReport, "simulate", 'a: Source<'a>, json::simulate => Head<'static, json::SimulateDevice>);
