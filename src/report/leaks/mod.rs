//! What `memviz leaks` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::leaks::LeakReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(LeakReport, "leaks", 'a: Source<'a>, json::leaks => Head<'static, json::LeaksDevice<'static>>);
