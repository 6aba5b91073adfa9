//! What `memviz nsys` says.

mod csv;
mod document;
pub(crate) mod json;
mod words;

use crate::analysis::nsys::NsysReport;
use crate::report::common::answer::answer;

answer!(NsysReport, "nsys", 'a: &'a str, json::NsysAnswer::of => json::NsysAnswer<'static>);
