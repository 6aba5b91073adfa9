//! What `memviz diff` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;
pub use words::{alike, exceeded_growth, unknown_growth};

use crate::analysis::diff::DiffReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Sources};
use std::io::{self, Write};

impl Answer for DiffReport {
    const COMMAND: &'static str = "diff";
    type About<'a> = Sources<'a>;
    type Json = json::Diff<'static>;

    fn document(&self, sources: Sources<'_>) -> Document {
        document::document(sources, self)
    }

    fn json(&self, sources: Sources<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::diff(sources, self), out)
    }
}

impl Rows for DiffReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
