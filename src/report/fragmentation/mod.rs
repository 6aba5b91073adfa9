//! What `memviz fragmentation` says and draws.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod text;

#[cfg(feature = "plot")]
pub use picture::{BlockColor, draw};

use crate::analysis::fragmentation::FragmentationReport;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source, TextStyle};
use std::io::{self, Write};

impl Answer for FragmentationReport {
    const COMMAND: &'static str = "fragmentation";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::FragmentationDevice>;

    fn text(&self, source: Source<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        text::write(style, source, self, out)
    }

    fn markdown(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(source, self, out)
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
