//! What `memviz peak` says.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod each;
pub mod json;
pub(crate) mod operators;

use crate::analysis::peak::PeakReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for PeakReport {
    const COMMAND: &'static str = "peak";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::MeasuredDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::peak(source, self), out)
    }
}

impl Rows for PeakReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
