//! `memviz peak` as text.

use super::operators;
use crate::analysis::peak::{DevicePeak, PeakReport};
use crate::analysis::triage::Finding;
use crate::facts::code::sites::NO_STACK;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::{Attribution, Row};
use crate::model::bytes::Bytes;
use crate::replay::OperatorUsage;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe};
use crate::report::common::text::{BAR, TextStyle, bar, counters};
use crate::report::common::words::starred;
use crate::report::triage::words as triage_words;
use crate::report::{Source, percent};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this do without bars.
const BAR_FROM: usize = 72;
/// Terminals narrower than this do without block counts.
const BLOCKS_FROM: usize = 56;
/// Width of a column about operators.
const OPERATOR_COLUMN: usize = 14;
/// Width kept free for an operator's name.
const OPERATOR_NAME: usize = 22;
/// Share of allocations without a stack, in percent, from which on the reason is given.
const WORTH_A_HINT: f64 = 1.0;

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
    let is_snapshot = source.recording.snapshot.notes.format.has_segments();
    text.devices(source, &report.devices, out, |text, device, out| text.peak_device(device, is_snapshot, out))?;
    report.comparison.iter().try_for_each(|comparison| text.comparison(comparison, out))?;
    text.next(&next(source, report), out)
}

/// What to type next: why requests failed, and what could be done without.
fn next(source: Source<'_>, report: &PeakReport) -> Vec<Next> {
    let mut categories = report.devices.iter().filter(|device| device.attribution.by == GroupBy::Category);
    let activations = categories.find_map(|device| Finding::activations(&device.attribution));
    let activations = activations.map(|finding| {
        let line = triage_words::finding(&finding);
        Next::new(line.command, &[source.path], "", line.text)
    });
    // Why a request failed tells how to make room, too.
    Next::oom(source).or(activations).into_iter().collect()
}

impl TextStyle {
    pub(crate) fn peak_device(&self, device: &DevicePeak, is_snapshot: bool, out: &mut dyn Write) -> io::Result<()> {
        if device.is_empty() {
            writeln!(out, "{}", self.bold(&notes::headline(device)))?;
            return self.notes(&notes::device(device), out);
        }
        self.heading(&notes::headline(device), &notes::place(device), out)?;
        self.notes(&notes::device(device), out)?;
        notes::grouping(device.attribution.by).map_or(Ok(()), |note| self.remark(note, out))?;
        if let Some(ranges) = &device.ranges {
            return self.ranges(device, ranges, out);
        }
        if device.completeness.no_entries {
            counters(&[("at the dump", device.at)], out)?;
        } else {
            counters(&[("here", device.at), ("maximum", device.maxima.into()), ("end", device.end)], out)?;
        }
        writeln!(out)?;

        self.attribution(&device.attribution, is_snapshot, out)?;
        self.operators(&device.operators, out)
    }

    /// Rows and their total. Why there are rows without a stack is said of snapshots, where it can be changed.
    pub(crate) fn attribution(
        &self,
        attribution: &Attribution,
        is_snapshot: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let largest = attribution.rows.iter().map(|row| row.bytes).max().unwrap_or(0);
        for row in &attribution.rows {
            // Of categories nearly all are inferred, which the last line says.
            let row = &Row { inferred: row.inferred && attribution.by != GroupBy::Category, ..row.clone() };
            self.row(row, attribution.total_bytes, largest, out)?;
            if attribution.by == GroupBy::Stack {
                self.stack(row, out)?;
            }
        }
        let total = Bytes(attribution.total_bytes);
        let what = match (attribution.total_bytes, attribution.by.is_inclusive()) {
            (0, _) => "nothing is held".to_owned(),
            (_, true) => format!("held in total, by {}", attribution.by.name()),
            _ => format!("total, by {}", attribution.by.name()),
        };
        let room = self.room(13);
        writeln!(out, "{total:>11}  {}", self.dim(&shorten_end(&what, room)))?;
        if attribution.rows.iter().any(|row| row.inferred) {
            self.star(notes::inferred(attribution.by), out)?;
        }
        if let Some(line) = notes::library_below(attribution) {
            self.broken(13, &line).iter().try_for_each(|line| writeln!(out, "{:13}{}", "", self.dim(line)))?;
        }
        for line in notes::private_pools(attribution) {
            self.broken(13, &line).iter().try_for_each(|line| writeln!(out, "{:13}{}", "", self.dim(line)))?;
        }
        let anonymous: u64 = attribution.rows.iter().filter(|row| row.label == NO_STACK).map(|row| row.bytes).sum();
        if is_snapshot && percent(anonymous, attribution.total_bytes) >= WORTH_A_HINT {
            let hint =
                "             (no stack): backward passes have no Python frames; stacks=\"all\" records C++ ones";
            writeln!(out, "{}", self.dim(&shorten_end(hint, self.room(0))))?;
        }
        Ok(())
    }

    /// What the star behind labels means, below them.
    pub(crate) fn star(&self, meaning: &str, out: &mut dyn Write) -> io::Result<()> {
        self.broken(13, meaning).iter().try_for_each(|line| writeln!(out, "{:13}{}", "", self.dim(line)))
    }

    /// What passed through each operator: as many columns as there is room for.
    fn operators(&self, operators: &[OperatorUsage], out: &mut dyn Write) -> io::Result<()> {
        if operators.is_empty() {
            return Ok(());
        }
        let width = self.room(0);
        let columns = operators::COLUMNS.len().min(width.saturating_sub(OPERATOR_NAME) / OPERATOR_COLUMN).max(1);
        let line = |cells: &[String], name: &str| {
            let cells =
                cells[..columns].iter().map(|cell| format!("{cell:>OPERATOR_COLUMN$}")).collect::<Vec<_>>().concat();
            format!("{cells}  {}", shorten(name, width.saturating_sub(columns * OPERATOR_COLUMN + 2)))
        };
        writeln!(out, "\n{}", self.bold("Over the whole recording"))?;
        writeln!(out, "{}", self.dim(&line(&operators::COLUMNS.map(str::to_owned), "operator")))?;
        for operator in operators.iter().take(operators::ROWS) {
            writeln!(out, "{}", line(&operators::cells(operator), &safe(&operator.name)))?;
        }
        match operators.len().saturating_sub(operators::ROWS) {
            0 => Ok(()),
            more => writeln!(out, "{}", self.dim(&format!("{more:>OPERATOR_COLUMN$} more operators"))),
        }
    }

    pub(crate) fn row(&self, row: &Row, total: u64, largest: u64, out: &mut dyn Write) -> io::Result<()> {
        let width = self.room(0);
        let mut line = format!("{:>11} {:>6.1}%", Bytes(row.bytes), percent(row.bytes, total));
        if width >= BAR_FROM {
            let bar = bar(row.bytes, largest);
            let bar = row.category.map_or_else(|| self.tint(&bar), |category| self.hued(&bar, category));
            line += &format!("  {bar}");
        }
        let mut used = UnicodeWidthStr::width(line.as_str());
        if width >= BAR_FROM {
            used = 11 + 1 + 7 + 2 + BAR;
        }
        if width >= BLOCKS_FROM {
            let blocks = if row.blocks == 0 { String::new() } else { format!("{}x", row.blocks) };
            line += &format!("  {blocks:>7}");
            used += 9;
        }
        let label = shorten(&starred(&safe(&row.label), row.inferred), width.saturating_sub(used + 2));
        writeln!(out, "{line}  {label}")
    }

    /// The frames under a row, innermost first.
    pub(crate) fn stack(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        const INDENT: &str = "                       ";
        let width = self.room(INDENT.len());
        for frame in &row.stack {
            writeln!(out, "{INDENT}{}", self.dim(&shorten(&safe(frame), width)))?;
        }
        Ok(())
    }
}
