//! An answer, and the formats it is written in.

use super::document::Document;
use super::no_commands;
use super::text::TextStyle;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

/// An answer, in the formats that every command writes. If one is missing, memviz does not compile. Formats that only some
/// answers have are separate traits or functions: [`Rows`], pictures (`peak` has none, [`crate::report::diff::draw`] draws
/// one), and the formats of [`crate::report::check`] for tools.
pub trait Answer {
    /// The command that gives it.
    const COMMAND: &'static str;

    /// The subject, unless the answer contains it: a [`Source`](crate::report::Source), [`Sources`](crate::report::Sources), or nothing.
    type About<'a>;

    /// The object that [`Answer::json`] writes, for its schema: see [`crate::report::schema`].
    type Json;

    fn document(&self, about: Self::About<'_>) -> Document;

    fn text(&self, about: Self::About<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        self.document(about).text(style, out)
    }

    fn markdown(&self, about: Self::About<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.document(about).markdown(out)
    }

    /// Writes JSON: an object and a newline, or an object on each line.
    fn json(&self, about: Self::About<'_>, out: &mut dyn Write) -> io::Result<()>;
}

pub trait Rows: Answer {
    /// Writes RFC 4180 with a header line, bytes as integers.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Implements [`Answer`] and [`Rows`] for a result with the modules `document`, `json` and `csv` of its report.
macro_rules! answer {
    ($result:ty, $command:literal, $life:lifetime: $about:ty, $write:path => $json:ty) => {
        impl $crate::report::Answer for $result {
            const COMMAND: &'static str = $command;
            type About<$life> = $about;
            type Json = $json;

            fn document(&self, about: Self::About<'_>) -> $crate::report::Document {
                document::document(about, self)
            }

            fn json(&self, about: Self::About<'_>, out: &mut dyn std::io::Write) -> std::io::Result<()> {
                $crate::report::common::no_commands::write(&$write(about, self), out)
            }
        }

        impl $crate::report::Rows for $result {
            fn csv(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
                csv::write(self, out)
            }
        }
    };
}
pub(crate) use answer;

#[derive(Serialize)]
struct Table<'a> {
    csv: Cow<'a, str>,
}

/// Writes CSV as an object with the key `csv`.
pub(crate) fn table(csv: impl FnOnce(&mut dyn Write) -> io::Result<()>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Vec::new();
    csv(&mut table)?;
    no_commands::write(&Table { csv: String::from_utf8_lossy(&table) }, out)
}

/// A format for answers with rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum AnswerFormat {
    /// For people, fitted to the terminal width.
    #[default]
    Text,
    /// All figures, exact.
    Json,
    /// One line per row, sizes as integers in bytes.
    Csv,
    /// For an issue or a pull request.
    Markdown,
    /// The JSON output, then the CSV table in an object with the key `csv`, for programs; the recording is read only once.
    #[cfg_attr(feature = "cli", value(name = "json+csv", hide = true))]
    JsonAndCsv,
}

impl AnswerFormat {
    pub const ALL: [Self; 5] = [Self::Text, Self::Json, Self::Csv, Self::Markdown, Self::JsonAndCsv];

    pub fn write<A: Rows>(
        self,
        answer: &A,
        about: A::About<'_>,
        style: TextStyle,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Text => answer.text(about, style, out),
            Self::Json => answer.json(about, out),
            Self::Csv => answer.csv(out),
            Self::Markdown => answer.markdown(about, out),
            Self::JsonAndCsv => {
                answer.json(about, out)?;
                table(|out| answer.csv(out), out)
            }
        }
    }

    /// Whether the format is for people, who want the largest rows, rather than for machines, which want all rows.
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Text | Self::Markdown)
    }
}
