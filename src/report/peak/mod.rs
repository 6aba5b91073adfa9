//! What `memviz peak` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod each;
pub mod json;
pub(crate) mod operators;

use crate::analysis::peak::PeakReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(PeakReport, "peak", 'a: Source<'a>, json::peak => Head<'static, json::MeasuredDevice<'static>>);
