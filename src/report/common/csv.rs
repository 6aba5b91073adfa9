//! CSV: one table per answer, a line per row, bytes as integers. A file per report; here is what they share.

use super::notes::safe;
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, InfoReport, LeakReport, OomReport, PeakReport, RanksReport,
};
use crate::report::{Render, Source, Sources};
use std::io::{self, Write};

/// Writes RFC 4180 with a header line.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvReport;

impl Render for CsvReport {
    fn peak(&self, _source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::peak::csv::write(report, out)
    }

    fn fragmentation(&self, _source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::fragmentation::csv::write(report, out)
    }

    fn oom(&self, _source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::oom::csv::write(report, out)
    }

    fn info(&self, _source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::info::csv::write(report, out)
    }

    fn leaks(&self, _source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::leaks::csv::write(report, out)
    }

    fn checkpoint(&self, _source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::checkpoint::csv::write(report, out)
    }

    fn diff(&self, _sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::diff::csv::write(report, out)
    }

    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        crate::report::ranks::csv::write(report, out)
    }
}

/// A cell with text from a file, which a spreadsheet is not to take for a formula: it would begin with one of these signs.
/// An apostrophe in front makes it text.
pub(crate) fn cell(text: &str) -> String {
    let text = safe(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text }
}

/// The error underneath, so that a closed pipe stays recognisable.
pub(crate) fn io_error(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_formulas() {
        for name in ["=1+1", "@SUM(A1)", "+cmd", "-cmd|' /C calc'!A0"] {
            assert_eq!(cell(name), format!("'{name}"));
        }
        assert_eq!(["-5", "model.py:41 forward", ""].map(cell), ["-5", "model.py:41 forward", ""]);
    }
}
