//! CSV: one table per answer, a line per row, bytes as integers. A file per report; here is what they share.

mod checkpoint;
mod diff;
mod each;
mod fragmentation;
mod info;
mod leaks;
mod oom;
mod peak;
mod ranks;

use super::{Render, Source, Sources};
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, InfoReport, LeakReport, OomReport, PeakReport, RanksReport,
};
use std::io::{self, Write};

/// Writes RFC 4180 with a header line.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvReport;

impl Render for CsvReport {
    fn peak(&self, _source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        peak::write(report, out)
    }

    fn fragmentation(&self, _source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        fragmentation::write(report, out)
    }

    fn oom(&self, _source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        oom::write(report, out)
    }

    fn info(&self, _source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        info::write(report, out)
    }

    fn leaks(&self, _source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        leaks::write(report, out)
    }

    fn checkpoint(&self, _source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        checkpoint::write(report, out)
    }

    fn diff(&self, _sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        diff::write(report, out)
    }

    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        ranks::write(report, out)
    }
}

/// The error underneath, so that a closed pipe stays recognisable.
fn io_error(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
