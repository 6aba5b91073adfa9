//! `memviz leaks` as text.

use super::words;
use crate::analysis::leaks::growth::Verdict;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fit::shorten;
use crate::report::common::next::Next;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::text::TextStyle;
use crate::report::common::words::{count, starred};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this do without block counts.
const BLOCKS_FROM: usize = 72;
/// Terminals narrower than this do without live bytes.
const LIVE_FROM: usize = 56;
/// Rows whose stacks are shown below the table, unless stacks are what was asked for.
const STACKS: usize = 3;
/// Longest curve, in columns.
const CURVE: usize = 40;

pub(crate) fn write(text: TextStyle, source: Source<'_>, report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    text.devices(source, &report.devices, out, TextStyle::leaks_device)?;
    let grows = report.devices.iter().flat_map(|device| &device.rows).any(|row| row.verdict != Verdict::Cache);
    let curve = Next::new("timeline", &[source.path], "-o timeline.svg", "memory over time, by site");
    text.next(if grows { std::slice::from_ref(&curve) } else { &[] }, out)
}

impl TextStyle {
    fn leaks_device(&self, device: &DeviceLeaks, out: &mut dyn Write) -> io::Result<()> {
        let title = format!("{}: {}", device_name(device.device), words::headline(device));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        if let Some(steps) = words::steps(device) {
            self.words("  ", &steps, out)?;
        }
        self.notes(&words::limits(device), out)?;
        self.course(device, out)?;
        if let Some(projection) = &device.projection {
            self.words("  ", &words::projection(projection), out)?;
        }
        self.cures(&device.of_growth(), false, out)?;
        if device.rows.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.leaks_head(device, out)?;
        for row in &device.rows {
            self.leaks_row(row, out)?;
        }
        if device.left_out > 0 {
            let more = format!("{} more; --top shows them", count(device.left_out, "row"));
            writeln!(out, "{:>11}  {}", "", self.dim(&more))?;
        }
        words::legend(&device.rows).into_iter().try_for_each(|line| self.legend(line, out))?;
        let growing: Vec<&LeakRow> = device.rows.iter().filter(|row| row.verdict != Verdict::Cache).collect();
        let shown = if device.by == GroupBy::Stack { growing.len() } else { STACKS.min(growing.len()) };
        growing[..shown].iter().try_for_each(|row| self.leaks_stack(row, out))?;
        if shown < growing.len() {
            let more = format!("--by stack shows the stacks of the other {}", growing.len() - shown);
            writeln!(out)?;
            self.broken(0, &more).iter().try_for_each(|line| writeln!(out, "{}", self.dim(line)))?;
        }
        Ok(())
    }

    /// The curve of allocated bytes over the ends of steps, and its two ends in numbers.
    fn course(&self, device: &DeviceLeaks, out: &mut dyn Write) -> io::Result<()> {
        let Some(course) = words::course(device) else { return Ok(()) };
        let width = self.room(2).min(CURVE);
        let values: Vec<i64> = device.ends.iter().map(|end| end.allocated_bytes).collect();
        self.words("  ", &course, out)?;
        writeln!(out, "  {}", self.tint(&curve(&values, width)))
    }

    fn leaks_head(&self, device: &DeviceLeaks, out: &mut dyn Write) -> io::Result<()> {
        let live = if self.has(LIVE_FROM) { format!("{:>11}  ", "live") } else { String::new() };
        let blocks = if self.has(BLOCKS_FROM) { format!("{:>7}  ", "blocks") } else { String::new() };
        let by = device.by.name();
        writeln!(out, "{}", self.dim(&format!("{:>11}  {blocks}{live}{:7}  {by}", "per step", "verdict")))
    }

    fn leaks_row(&self, row: &LeakRow, out: &mut dyn Write) -> io::Result<()> {
        let grows = row.verdict != Verdict::Cache;
        let rate = if grows { format!("+{}", Bytes(row.rate.bytes)) } else { "-".to_owned() };
        let mut line = format!("{rate:>11}  ");
        if self.has(BLOCKS_FROM) {
            let blocks = if grows { format!("+{}", words::blocks(row.rate.blocks)) } else { "-".to_owned() };
            line += &format!("{blocks:>7}  ");
        }
        if self.has(LIVE_FROM) {
            line += &format!("{:>11}  ", Bytes(row.live_bytes));
        }
        let room = self.room(line.width() + 9);
        let verdict = format!("{:7}", row.verdict.name());
        let verdict = if row.verdict == Verdict::Leak { self.warn(&verdict) } else { verdict };
        writeln!(out, "{line}{verdict}  {}", shorten(&starred(&safe(&row.label), row.inferred), room))
    }

    /// One row in full: since when, how, and from where.
    fn leaks_stack(&self, row: &LeakRow, out: &mut dyn Write) -> io::Result<()> {
        let width = self.room(0);
        writeln!(out, "\n{}", self.bold(&shorten(&starred(&safe(&row.label), row.inferred), width)))?;
        self.words("  ", &words::behaviour(row), out)?;
        if let Some(oldest) = &row.oldest {
            self.words("  ", &format!("oldest survivor {}", words::oldest(oldest)), out)?;
        }
        if row.stack.is_empty() {
            return self.words("    ", "no stack was recorded", out);
        }
        for frame in &row.stack {
            writeln!(out, "    {}", self.dim(&shorten(&safe(frame), width.saturating_sub(4))))?;
        }
        Ok(())
    }
}

/// A curve in at most `width` columns, from zero up, a column for each value or for the highest of a few.
fn curve(values: &[i64], width: usize) -> String {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().max().unwrap_or(0);
    let columns = values.chunks(values.len().div_ceil(width.max(1)).max(1));
    let tops = columns.map(|values| values.iter().copied().max().unwrap_or(0));
    let level = |bytes: i64| if highest > 0 && bytes > 0 { (bytes as f64 / highest as f64 * 7.0).round() } else { 0.0 };
    tops.map(|bytes| EIGHTHS[(level(bytes) as usize).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_show_every_high_point() {
        assert_eq!(curve(&[0, 4, 8], 8), "▁▅█");
        assert_eq!(curve(&[1, 8, 1, 1, 1, 1], 3), "█▂▂");
        assert_eq!(curve(&[0, -5], 8), "▁▁");
        assert_eq!(curve(&[], 8), "");
    }
}
