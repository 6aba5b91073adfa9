//! What `memviz info` says.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;

use crate::analysis::info::InfoReport;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Source, TextStyle};
use std::io::{self, Write};

impl Answer for InfoReport {
    const COMMAND: &'static str = "info";
    type About<'a> = Source<'a>;
    type Json = json::Info<'static>;

    fn text(&self, source: Source<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        text::write(style, source, self, out)
    }

    fn markdown(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(source, self, out)
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
