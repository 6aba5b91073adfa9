//! What `memviz info` says.

pub(crate) mod csv;
pub(crate) mod document;
pub mod json;

use crate::analysis::info::InfoReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Source};
use std::io::{self, Write};

impl Answer for InfoReport {
    const COMMAND: &'static str = "info";
    type About<'a> = Source<'a>;
    type Json = json::Info<'static>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::info(source, self), out)
    }
}

impl Rows for InfoReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
