//! What `memviz leaks` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;

use crate::analysis::leaks::LeakReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for LeakReport {
    const COMMAND: &'static str = "leaks";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::LeaksDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::leaks(source, self), out)
    }
}

impl Rows for LeakReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
