//! The output of `memviz fit`.

#[cfg(feature = "plot")]
mod axes;
pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod single;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::fit::FitReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Source};
use std::io::{self, Write};

impl Answer for FitReport {
    const COMMAND: &'static str = "fit";
    /// The recordings, as they were named.
    type About<'a> = &'a [Source<'a>];
    type Json = json::Fit<'static>;

    fn document(&self, sources: &[Source<'_>]) -> Document {
        document::document(sources, self)
    }

    fn json(&self, sources: &[Source<'_>], out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::fit(sources, self), out)
    }
}

impl Rows for FitReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
