//! The output of `memviz simulate`.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::simulate::SimulateReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for SimulateReport {
    const COMMAND: &'static str = "simulate";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::SimulateDevice>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::simulate(source, self), out)
    }
}

impl Rows for SimulateReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
