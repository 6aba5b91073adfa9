//! What `memviz blocks` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;

use crate::analysis::blocks::BlocksReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for BlocksReport {
    const COMMAND: &'static str = "blocks";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::BlocksDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::blocks(source, self), out)
    }
}

impl Rows for BlocksReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
