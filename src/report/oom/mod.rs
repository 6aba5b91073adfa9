//! What `memviz oom` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::oom::OomReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for OomReport {
    const COMMAND: &'static str = "oom";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::OomDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::oom(source, self), out)
    }
}

impl Rows for OomReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
