//! The output of `memviz FILE`: one screen.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::triage::TriageReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for TriageReport {
    const COMMAND: &'static str = "triage";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::TriageDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::triage(source, self), out)
    }
}

impl Rows for TriageReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
