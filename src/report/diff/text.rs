//! `memviz diff` as text.

use super::words;
use crate::analysis::diff::{DeviceDiff, DiffReport, DiffRow, Fate, Lives, Share};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::report::Sources;
use crate::report::common::fit::shorten;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::text::TextStyle;
use crate::report::common::words::{count, starred};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this show of rows growth only, of figures only the two sides.
const SIDES_FROM: usize = 64;

pub(crate) fn write(text: TextStyle, sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
    text.notes(&words::files(sources, report), out)?;
    if report.is_empty() {
        let line = format!("nothing differs between {} and {}", safe(sources.base.path), safe(sources.new.path));
        return text.words("", &line, out);
    }
    for (index, device) in report.devices.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        text.diff_device(device, out)?;
    }
    text.notes(&words::unpaired(report), out)?;
    if !report.settings.is_empty() {
        writeln!(out, "\n{}", text.bold("Settings that differ"))?;
        report.settings.iter().try_for_each(|setting| text.words("  ", &words::setting(setting), out))?;
    }
    let grew = report.devices.iter().any(|device| device.delta_bytes > 0);
    let paths = [sources.base.path, sources.new.path];
    let picture = Next::new("diff", &paths, "-o diff.svg", "both curves, one above the other");
    text.next(if grew { std::slice::from_ref(&picture) } else { &[] }, out)
}

impl TextStyle {
    fn diff_device(&self, device: &DeviceDiff, out: &mut dyn Write) -> io::Result<()> {
        for line in self.broken(0, &words::headline(device)) {
            writeln!(out, "{}", self.bold(&line))?;
        }
        words::places(device).iter().try_for_each(|place| self.words("  ", place, out))?;
        if let Some(lives) = &device.lives {
            self.words("  ", &words::lives(lives), out)?;
        }
        self.notes(&words::limits(device), out)?;
        if device.is_empty() {
            return writeln!(out, "  {}", self.dim("nothing differs"));
        }
        let line = |name: &str, base: &str, new: &str, delta: &str| {
            let delta = if self.has(SIDES_FROM) { format!(" {delta:>12}") } else { String::new() };
            format!("  {name:19} {base:>11} {new:>11}{delta}")
        };
        writeln!(out, "{}", self.dim(&line("", "base", "new", "growth")))?;
        for figure in words::figures(device) {
            let [base, new, delta] =
                [&figure.base, &figure.new, &figure.delta].map(|value| value.as_deref().unwrap_or("-"));
            writeln!(out, "{}", line(figure.name, base, new, delta))?;
        }
        writeln!(out)?;
        match &device.lives {
            Some(lives) => self.lives_rows(device, lives, out),
            None => self.diff_rows(device, out),
        }
    }

    /// Rows of what was born, freed and survived in one recording.
    fn lives_rows(&self, device: &DeviceDiff, all: &Lives, out: &mut dyn Write) -> io::Result<()> {
        let by = device.by();
        let columns = |born: &str, freed: &str, survived: &str| {
            let survived = if self.has(SIDES_FROM) { format!(" {survived:>11}") } else { String::new() };
            format!("{born:>11} {freed:>11}{survived}")
        };
        let shown = |lives: &Lives| {
            let bytes = |share: Share| if share.blocks > 0 { Bytes(share.bytes).to_string() } else { "-".to_owned() };
            columns(&bytes(lives.born), &bytes(lives.freed), &bytes(lives.survived))
        };
        let head = columns("allocated", "freed", "survived");
        writeln!(out, "{}", self.dim(&format!("{head}  {}", by.name())))?;
        for row in &device.rows {
            let label = starred(&safe(&row.label), row.inferred && by != GroupBy::Category);
            let columns = row.lives.map_or_else(|| columns("-", "-", &signed(row.new_bytes)), |lives| shown(&lives));
            writeln!(out, "{columns}  {}", shorten(&label, self.room(head.width() + 2)))?;
            if by == GroupBy::Stack {
                let room = self.room(head.width() + 4);
                for frame in &row.stack {
                    let frame = shorten(&safe(frame), room);
                    writeln!(out, "{:indent$}{}", "", self.dim(&frame), indent = head.width() + 4)?;
                }
            }
        }
        if by.is_inclusive() && device.left_out > 0 {
            let more = format!("{} more; --top shows them", count(device.left_out, "row"));
            writeln!(out, "{}  {}", columns("", "", ""), self.dim(&more))?;
        }
        if let Some(unchanged) = words::unchanged(device) {
            writeln!(out, "{}  {}", columns("", "", ""), self.dim(&unchanged))?;
        }
        let total = if by.is_inclusive() { "in all" } else { "total" };
        writeln!(out, "{}  {}", shown(all), self.dim(&format!("{total}, by {}", by.name())))?;
        if device.rows.iter().any(|row| row.inferred) { self.legend(notes::inferred(by), out) } else { Ok(()) }
    }

    fn diff_rows(&self, device: &DeviceDiff, out: &mut dyn Write) -> io::Result<()> {
        let by = device.by();
        let head = self.diff_columns("growth", "base", "new");
        writeln!(out, "{}", self.dim(&format!("{head}  {}", by.name())))?;
        for row in &device.rows {
            // Of categories nearly all are inferred, which the last line says.
            self.diff_row(row, row.inferred && by != GroupBy::Category, out)?;
            if by == GroupBy::Stack {
                for frame in &row.stack {
                    let room = self.room(head.width() + 4);
                    writeln!(
                        out,
                        "{:indent$}{}",
                        "",
                        self.dim(&shorten(&safe(frame), room)),
                        indent = head.width() + 4
                    )?;
                }
            }
        }
        if by.is_inclusive() && device.left_out > 0 {
            let more = format!("{} more; --top shows them", count(device.left_out, "row"));
            writeln!(out, "{}  {}", self.diff_columns("", "", ""), self.dim(&more))?;
        }
        if let Some(unchanged) = words::unchanged(device) {
            writeln!(out, "{}  {}", self.diff_columns("", "", ""), self.dim(&unchanged))?;
        }
        let metric = device.metric();
        let (base, new) = (device.base.peak.at.get(metric), device.new.peak.at.get(metric));
        let columns = self.diff_columns(&words::delta(device.delta_bytes), &signed(base), &signed(new));
        let total = if by.is_inclusive() { "in all" } else { "total" };
        writeln!(out, "{columns}  {}", self.dim(&format!("{total}, by {}", by.name())))?;
        if device.rows.iter().any(|row| row.inferred) { self.legend(notes::inferred(by), out) } else { Ok(()) }
    }

    fn diff_row(&self, row: &DiffRow, is_starred: bool, out: &mut dyn Write) -> io::Result<()> {
        let bytes = |there: bool, bytes: i64| if there { signed(bytes) } else { "-".to_owned() };
        let delta = words::delta(row.delta_bytes());
        let base = bytes(row.fate != Fate::New, row.base_bytes);
        let columns = self.diff_columns(&delta, &base, &bytes(row.fate != Fate::Vanished, row.new_bytes));
        let fate = safe(&words::fate(row));
        let room = self.room(columns.width() + 2 + fate.width());
        let columns = if row.delta_bytes() > 0 { self.warn(&columns) } else { columns };
        let label = shorten(&starred(&safe(&row.label), is_starred), room);
        writeln!(out, "{columns}  {label}{}", self.dim(&fate))
    }

    fn diff_columns(&self, delta: &str, base: &str, new: &str) -> String {
        if self.has(SIDES_FROM) { format!("{delta:>12} {base:>11} {new:>11}") } else { format!("{delta:>12}") }
    }
}
