//! What `memviz fit` says of one recording: what makes it fit a device.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;
pub(crate) mod words;

use crate::play::plans::PlanReport;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Source, TextStyle};
use std::io::{self, Write};

impl Answer for PlanReport {
    const COMMAND: &'static str = "fit";
    type About<'a> = Source<'a>;
    type Json = super::fit::json::Fit<'static>;

    fn text(&self, source: Source<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        text::write(style, source, self, out)
    }

    fn markdown(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(source, self, out)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::fit(source, self), out)
    }
}

impl Rows for PlanReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
