//! What `memviz oom` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::oom::OomReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(OomReport, "oom", 'a: Source<'a>, json::oom => Head<'static, json::OomDevice<'static>>);
