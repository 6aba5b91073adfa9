//! What `memviz fragmentation` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;

#[cfg(feature = "plot")]
pub use picture::{BlockColor, draw};

use crate::analysis::fragmentation::FragmentationReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for FragmentationReport {
    const COMMAND: &'static str = "fragmentation";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::FragmentationDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::fragmentation(source, self), out)
    }
}

impl Rows for FragmentationReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
