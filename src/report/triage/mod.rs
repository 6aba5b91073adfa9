//! The output of `memviz FILE`: one screen.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::triage::TriageReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(TriageReport, "triage", 'a: Source<'a>, json::triage => Head<'static, json::TriageDevice<'static>>);
