//! What `memviz peak` says.

pub(crate) mod csv;
pub mod each;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod operators;
pub(crate) mod text;

use crate::analysis::peak::PeakReport;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source, TextStyle};
use std::io::{self, Write};

impl Answer for PeakReport {
    const COMMAND: &'static str = "peak";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::MeasuredDevice>;

    fn text(&self, source: Source<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        text::write(style, source, self, out)
    }

    fn markdown(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(source, self, out)
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
