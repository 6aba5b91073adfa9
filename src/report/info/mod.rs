//! What `memviz info` says.

pub(crate) mod csv;
pub(crate) mod document;
pub mod json;

use crate::analysis::info::InfoReport;
use crate::report::Source;
use crate::report::common::answer::answer;

answer!(InfoReport, "info", 'a: Source<'a>, json::Info::of => json::Info<'static>);
