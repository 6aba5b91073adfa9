//! JSON: [`super::schema`] on a writer.

use super::check::CheckedInput;
use super::{Render, Source, Sources, schema};
use crate::analysis::ranks::{RankLine, write_body, write_line};
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, InfoReport, LeakReport, OomReport, PeakReport, RanksReport,
};
use serde::Serialize;
use std::io::{self, Write};

/// Writes one JSON object and a newline.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonReport;

impl Render for JsonReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::peak(source, report), out)
    }

    fn fragmentation(&self, source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::fragmentation(source, report), out)
    }

    fn oom(&self, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::oom(source, report), out)
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::info(source, report), out)
    }

    fn leaks(&self, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::leaks(source, report), out)
    }

    /// One object for one input; a line of JSON for each of several.
    fn check(&self, inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
        if let [input] = inputs {
            return write(&schema::check(input), out);
        }
        for input in inputs {
            serde_json::to_writer(&mut *out, &schema::check(input))?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn checkpoint(&self, source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::checkpoint(source, report), out)
    }

    fn diff(&self, sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        write(&schema::diff(sources, report), out)
    }

    /// An object on a line of its own.
    fn ranks_line(&self, _index: usize, line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
        write_line(line, out)
    }

    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        write_body("across", &schema::across(report), out)
    }
}

fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
