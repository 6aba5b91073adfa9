//! Answers to bytes on any writer.
//!
//! In: results of [`crate::analysis`] and the [`Source`] they are about. Out: text for people, JSON, CSV or Markdown.
//! Each format is a [`Render`] with its own options; a program may bring another one (`examples/custom_report.rs`).

pub mod check;
pub mod checkpoint;
mod common;
pub mod diff;
pub mod flamegraph;
pub mod fragmentation;
pub mod info;
pub mod leaks;
pub mod oom;
#[cfg(feature = "plot")]
pub mod page;
pub mod peak;
pub mod ranks;
pub mod schema;
#[cfg(feature = "plot")]
pub mod timeline;

pub use common::advice::{Advice, advice};
pub use common::csv::CsvReport;
pub use common::json::{AnomalyCounts, CounterBytes, Head, InputHead, SCHEMA_VERSION};
pub use common::markdown::MarkdownReport;
pub use common::no_commands::JsonReport;
pub use common::notes::{device_name, safe};
#[cfg(feature = "plot")]
pub use common::picture::{Picture, WIDTH};
pub use common::text::TextReport;

use crate::Recording;
use crate::analysis::ranks::RankLine;
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, InfoReport, LeakReport, OomReport, PeakReport, RanksReport,
};
use check::words::CheckedInput;
use std::io::{self, Write};

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

/// A format for reports.
pub trait Render {
    /// Writes the answer of `memviz peak`.
    ///
    /// # Errors
    /// When writing fails.
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the answer of `memviz fragmentation`.
    ///
    /// # Errors
    /// When writing fails.
    fn fragmentation(&self, source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the answer of `memviz oom`.
    ///
    /// # Errors
    /// When writing fails.
    fn oom(&self, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the answer of `memviz info`.
    ///
    /// # Errors
    /// When writing fails.
    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the answer of `memviz leaks`.
    ///
    /// # Errors
    /// When writing fails, or the format has no such report, as formats that were written before it do not.
    fn leaks(&self, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        let _ = (source, report, out);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this format has no report of leaks"))
    }

    /// Writes the answer of `memviz check`, for one input or several.
    ///
    /// # Errors
    /// When writing fails, or the format has no such report, as CSV does not.
    fn check(&self, inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
        let _ = (inputs, out);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this format has no report of budgets"))
    }

    /// Writes the answer of `memviz checkpoint`.
    ///
    /// # Errors
    /// When writing fails, or the format has no such report, as formats that were written before it do not.
    fn checkpoint(&self, source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        let _ = (source, report, out);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this format has no report of checkpointing"))
    }

    /// Writes the answer of `memviz diff`.
    ///
    /// # Errors
    /// When writing fails, or the format has no such report, as formats that were written before it do not.
    fn diff(&self, sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        let _ = (sources, report, out);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this format has no report of differences"))
    }

    /// Writes what `memviz ranks` says about input number `index`, as soon as it is known. Formats that say it at the end
    /// write nothing.
    ///
    /// # Errors
    /// When writing fails.
    fn ranks_line(&self, index: usize, line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
        let _ = (index, line, out);
        Ok(())
    }

    /// Writes the rest of the answer of `memviz ranks`, when all lines are there.
    ///
    /// # Errors
    /// When writing fails, or the format has no such report, as formats that were written before it do not.
    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        let _ = (report, out);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this format has no report of ranks"))
    }
}

/// A share of a whole in percent; 0 of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
