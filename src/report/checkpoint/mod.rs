//! What `memviz checkpoint` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::checkpoint::CheckpointReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source};
use std::io::{self, Write};

impl Answer for CheckpointReport {
    const COMMAND: &'static str = "checkpoint";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::CheckpointDevice<'static>>;

    fn document(&self, source: Source<'_>) -> Document {
        document::document(source, self)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::checkpoint(source, self), out)
    }
}

impl Rows for CheckpointReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
