//! What `memviz ledger` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::ledger::LedgerReport;
use crate::report::common::answer::answer;
use crate::report::{Head, Source};

answer!(LedgerReport, "ledger", 'a: Source<'a>, json::ledger => Head<'static, json::LedgerDevice<'static>>);
