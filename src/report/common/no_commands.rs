//! JSON: [`super::schema`] on a writer.

use crate::analysis::ranks::{RankLine, write_body, write_line};
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, InfoReport, LeakReport, OomReport, PeakReport, RanksReport,
};
use crate::report::check::words::CheckedInput;
use crate::report::{Render, Source, Sources};
use serde::Serialize;
use std::io::{self, Write};

/// Writes one JSON object and a newline.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonReport;

impl Render for JsonReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::peak::json::peak(source, report), out)
    }

    fn fragmentation(&self, source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::fragmentation::json::fragmentation(source, report), out)
    }

    fn oom(&self, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::oom::json::oom(source, report), out)
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::info::json::info(source, report), out)
    }

    fn leaks(&self, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::leaks::json::leaks(source, report), out)
    }

    /// One object for one input; a line of JSON for each of several.
    fn check(&self, inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
        if let [input] = inputs {
            return write(&crate::report::check::json::check(input), out);
        }
        for input in inputs {
            serde_json::to_writer(NoCommands::new(out), &crate::report::check::json::check(input))?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn checkpoint(&self, source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::checkpoint::json::checkpoint(source, report), out)
    }

    fn diff(&self, sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        write(&crate::report::diff::json::diff(sources, report), out)
    }

    /// An object on a line of its own.
    fn ranks_line(&self, _index: usize, line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
        write_line(line, &mut NoCommands::new(out))
    }

    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        write_body("across", &crate::report::ranks::json::across(report), &mut NoCommands::new(out))
    }
}

fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(NoCommands::new(out), value)?;
    writeln!(out)
}

/// Writes JSON on without `##[`, which a runner of workflows takes for a command wherever it stands in a log: it can only
/// stand in strings, and there the last character can be written by its number.
pub(crate) struct NoCommands<'w> {
    out: &'w mut dyn Write,
    /// Number of `#` right before, up to two.
    signs: usize,
}

impl<'w> NoCommands<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> Self {
        Self { out, signs: 0 }
    }
}

impl Write for NoCommands<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == b'[' && self.signs == 2 {
                self.out.write_all(&bytes[from..at])?;
                self.out.write_all(b"\\u005b")?;
                from = at + 1;
            }
            self.signs = if byte == b'#' { (self.signs + 1).min(2) } else { 0 };
        }
        self.out.write_all(&bytes[from..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_no_commands_and_read_the_same() {
        let mut out = Vec::new();
        let value = ["##[error]x", "#[a] ##", "[", "###[b]"];
        serde_json::to_writer(NoCommands::new(&mut out), &value).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("##["), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), value);
    }
}
