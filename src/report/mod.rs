//! Answers to bytes on any writer.
//!
//! In: results of [`crate::analysis`] and the [`Source`] they are about. Out: text for people, JSON, CSV or Markdown.
//! A folder per command holds all that is written for it, a file per format, and [`Answer`] says which formats there are;
//! a program may bring one of its own (`examples/custom_report.rs`).

pub mod check;
pub mod checkpoint;
mod common;
pub mod diff;
pub mod fit;
pub mod flamegraph;
pub mod fragmentation;
pub mod info;
pub mod leaks;
pub mod oom;
#[cfg(feature = "plot")]
pub mod page;
pub mod peak;
pub mod plan;
pub mod ranks;
pub mod schema;
pub mod simulate;
#[cfg(feature = "plot")]
pub mod timeline;
pub mod triage;
#[cfg(feature = "plot")]
pub mod view;

pub use common::advice::{Advice, advice};
pub use common::json::{AnomalyCounts, CounterBytes, Head, InputHead};
pub use common::notes::{device_name, safe};
#[cfg(feature = "plot")]
pub use common::picture::plot::plot_columns;
#[cfg(feature = "plot")]
pub use common::picture::{Picture, PictureFormat, WIDTH};
pub use common::text::TextStyle;

use crate::Recording;
use crate::analysis::checkpoint::CheckpointReport;
use crate::analysis::diff::DiffReport;
use crate::analysis::fit::FitReport;
use crate::analysis::fragmentation::FragmentationReport;
use crate::analysis::info::InfoReport;
use crate::analysis::leaks::LeakReport;
use crate::analysis::oom::OomReport;
use crate::analysis::peak::PeakReport;
use crate::analysis::ranks::RanksReport;
use crate::analysis::simulate::SimulateReport;
use crate::analysis::triage::TriageReport;
use check::words::CheckedInput;
use schemars::JsonSchema;
use std::io::{self, Write};

/// Every answer that is written as JSON. A new command is a new line.
const ANSWERS: &[schema::Described] = &[
    schema::answer::<TriageReport>(),
    schema::answer::<InfoReport>(),
    schema::answer::<PeakReport>(),
    schema::answer::<FragmentationReport>(),
    schema::answer::<OomReport>(),
    schema::answer::<LeakReport>(),
    schema::answer::<CheckpointReport>(),
    schema::answer::<SimulateReport>(),
    schema::answer::<FitReport>(),
    schema::answer::<DiffReport>(),
    schema::answer::<[CheckedInput]>(),
    schema::answer::<RanksReport>(),
];

/// The recording a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where it came from, as the user named it.
    pub path: &'a str,
    /// The recording itself, for what every report says about it.
    pub recording: &'a Recording,
}

/// The two recordings of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What is compared with.
    pub base: Source<'a>,
    /// What is compared.
    pub new: Source<'a>,
}

/// An answer, in the formats that every command writes. One that lacks a format does not compile; formats that only some
/// answers have are traits or functions beside it: [`Rows`], pictures ([`peak`] has none, [`diff::draw`] makes one), and
/// what [`check`] writes for tools.
pub trait Answer {
    /// The command that gives it.
    const COMMAND: &'static str;

    /// What it is about, as far as the answer itself does not say so: a [`Source`], [`Sources`], or nothing.
    type About<'a>;

    /// The object that [`Answer::json`] writes, for its schema: see [`schema`].
    type Json: JsonSchema;

    /// Writes text for people.
    ///
    /// # Errors
    /// When writing fails.
    fn text(&self, about: Self::About<'_>, style: TextStyle, out: &mut dyn Write) -> io::Result<()>;

    /// Writes GitHub-flavoured Markdown.
    ///
    /// # Errors
    /// When writing fails.
    fn markdown(&self, about: Self::About<'_>, out: &mut dyn Write) -> io::Result<()>;

    /// Writes JSON: an object and a newline, or an object on each line.
    ///
    /// # Errors
    /// When writing fails.
    fn json(&self, about: Self::About<'_>, out: &mut dyn Write) -> io::Result<()>;
}

/// An answer that is a table of figures, too.
pub trait Rows: Answer {
    /// Writes RFC 4180 with a header line, bytes as integers.
    ///
    /// # Errors
    /// When writing fails.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// A format for answers with rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum AnswerFormat {
    /// For people, as wide as the terminal.
    #[default]
    Text,
    /// Every figure, exactly.
    Json,
    /// A line per row, bytes as integers.
    Csv,
    /// For an issue or a pull request.
    Markdown,
}

impl AnswerFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Text, Self::Json, Self::Csv, Self::Markdown];

    /// Writes an answer in this format.
    ///
    /// # Errors
    /// When writing fails.
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
        }
    }

    /// Whether it is for people, who want the largest rows, rather than for machines, which want all.
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Text | Self::Markdown)
    }
}

/// A share of a whole in percent; 0 of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
