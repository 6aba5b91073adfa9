//! What `memviz oom` says.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;
pub(crate) mod words;

use crate::analysis::oom::OomReport;
use crate::report::common::no_commands;
use crate::report::{Answer, Head, Rows, Source, TextStyle};
use std::io::{self, Write};

impl Answer for OomReport {
    const COMMAND: &'static str = "oom";
    type About<'a> = Source<'a>;
    type Json = Head<'static, json::OomDevice>;

    fn text(&self, source: Source<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        text::write(style, source, self, out)
    }

    fn markdown(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        markdown::write(source, self, out)
    }

    fn json(&self, source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&json::oom(source, self), out)
    }
}

impl Rows for OomReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
