//! What `memviz ranks` says and draws.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod prometheus;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use crate::analysis::ranks::RanksReport;
use crate::report::common::document::Document;
use crate::report::common::no_commands::NoCommands;
use crate::report::{Answer, Rows, TextStyle};
use crate::wire::rank_lines::{write_body, write_line};
use crate::wire::ranks::RankLine;
use std::io::{self, Write};

/// A format that has a line for each rank, so that it can be written as soon as the rank is known.
#[derive(Clone, Copy, Debug)]
pub enum Streamed {
    Text(TextStyle),
    /// Lines of JSON, which can be an input again.
    Json,
}

impl Streamed {
    pub fn line(self, index: usize, line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Text(style) => {
                let mut table = document::table();
                document::add(&mut table, line);
                let head = table.head_line(&style).filter(|_| index == 0);
                let rows = table
                    .rows
                    .iter()
                    .flat_map(|row| std::iter::once(table.line(&style, row)).chain(table.below_lines(&style, row)));
                head.into_iter().chain(rows).try_for_each(|line| writeln!(out, "{line}"))
            }
            Self::Json => write_line(line, &mut NoCommands::new(out)),
        }
    }

    /// Writes the comparison of the ranks, when all lines are written.
    pub fn end(self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Text(style) => document::end(report, style.has(document::SITE_FROM)).text(style, out),
            Self::Json => write_body("across", &json::Across::of(report), &mut NoCommands::new(out)),
        }
    }

    fn all(self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        for (index, line) in report.lines.iter().enumerate() {
            self.line(index, line, out)?;
        }
        self.end(report, out)
    }
}

impl Answer for RanksReport {
    const COMMAND: &'static str = "ranks";
    type About<'a> = ();
    type Json = json::RanksAnswer<'static>;

    fn document(&self, (): ()) -> Document {
        document::document(self)
    }

    fn text(&self, (): (), style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        Streamed::Text(style).all(self, out)
    }

    fn json(&self, (): (), out: &mut dyn Write) -> io::Result<()> {
        Streamed::Json.all(self, out)
    }
}

impl Rows for RanksReport {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(self, out)
    }
}
