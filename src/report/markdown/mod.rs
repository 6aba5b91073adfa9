//! Markdown for issues and pull requests. A file per report; here is what they share.

mod check;
mod checkpoint;
mod diff;
mod each;
mod fragmentation;
mod info;
mod leaks;
mod oom;
mod peak;
mod ranks;

use super::check::CheckedInput;
use super::notes::{self, safe, signed};
use super::{Render, Source, Sources};
use crate::analysis::{
    CheckpointReport, DiffReport, FragmentationReport, GroupBy, InfoReport, LeakReport, OomReport, PeakReport,
    RanksReport,
};
use crate::replay::{Counters, Metric};
use std::io::{self, Write};

/// Writes GitHub-flavoured Markdown.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkdownReport;

impl Render for MarkdownReport {
    fn peak(&self, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        peak::write(source, report, out)
    }

    fn fragmentation(&self, source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
        fragmentation::write(source, report, out)
    }

    fn oom(&self, source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
        oom::write(source, report, out)
    }

    fn info(&self, source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        info::write(source, report, out)
    }

    fn leaks(&self, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
        leaks::write(source, report, out)
    }

    fn check(&self, inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
        check::write(inputs, out)
    }

    fn checkpoint(&self, source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
        checkpoint::write(source, report, out)
    }

    fn diff(&self, sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
        diff::write(sources, report, out)
    }

    fn ranks(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        ranks::write(report, out)
    }
}

fn counters(lines: &[(&str, Counters)], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| | Allocated | Active | Requested | Reserved |\n|---|--:|--:|--:|--:|")?;
    for (name, values) in lines {
        write!(out, "| {name} |")?;
        for metric in Metric::ALL {
            write!(out, " {} |", signed(values.get(metric)))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// A code span in a table cell, where bars must be escaped even inside code.
pub(super) fn cell(text: &str) -> String {
    code(&text.replace('|', "\\|"))
}

/// What the star behind labels means, where there is one.
pub(super) fn star(is_there: bool, by: GroupBy, out: &mut dyn Write) -> io::Result<()> {
    if is_there { writeln!(out, "{}\n", escape(notes::inferred(by))) } else { Ok(()) }
}

/// A code span: the fence is longer than any run of backticks inside.
pub(super) fn code(text: &str) -> String {
    let text = safe(text);
    let longest = text.split(|next| next != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Plain text that Markdown leaves alone.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for next in safe(text).chars() {
        if matches!(next, '\\' | '`' | '*' | '_' | '<' | '>' | '|' | '[' | ']' | '#') {
            escaped.push('\\');
        }
        escaped.push(next);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_the_table() {
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`a"), "`` `a ``");
        assert_eq!(escape("<b> *x*"), "\\<b\\> \\*x\\*");
    }
}
