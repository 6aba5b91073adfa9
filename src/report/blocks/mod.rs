//! What `memviz blocks` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;

use crate::analysis::blocks::BlocksReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(BlocksReport, "blocks", 'a: Source<'a>, json::blocks => Head<'static, json::BlocksDevice<'static>>);
