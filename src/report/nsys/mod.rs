//! What `memviz nsys` says.

mod csv;
mod document;
pub(crate) mod json;
mod words;

use crate::analysis::nsys::NsysReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows};
use std::io::{self, Write};

impl Answer for NsysReport {
    const COMMAND: &'static str = "nsys";
    /// The path of the file.
    type About<'a> = &'a str;
    type Json = json::NsysAnswer<'static>;

    fn document(&self, path: &str) -> Document {
        document::document(path, self)
    }

    fn json(&self, path: &str, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::answer(path, self), out)
    }
}

impl Rows for NsysReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
