//! `memviz peak --each` as text: a line for each range.

use super::words;
use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::attribution::Row;
use crate::model::bytes::Bytes;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::safe;
use crate::report::common::text::{BAR, TextStyle, bar};
use crate::report::common::words::starred;
use crate::report::percent;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this do without bars.
const BAR_FROM: usize = 100;
/// Terminals narrower than this do without times.
const TIME_FROM: usize = 72;
/// Terminals narrower than this show what leads to a peak on a line of its own.
const LEAD_FROM: usize = 120;
/// Widest name of a range beside others.
const LABEL: usize = 40;
/// Width of a peak, with room for the sign of a bound.
const PEAK: usize = 12;
/// Width of a time.
const TIME: usize = 11;

impl TextStyle {
    /// The ranges of a device, and what leads to the peak of each.
    pub(crate) fn ranges(&self, device: &DevicePeak, ranges: &RangePeaks, out: &mut dyn Write) -> io::Result<()> {
        let metric = device.metric;
        self.words("  ", &words::headline(ranges), out)?;
        writeln!(out)?;
        let shown = words::shown(ranges, metric);
        let widest = shown.iter().map(|shown| words::label(shown).width()).max().unwrap_or(0);
        let columns = Columns {
            entry: shown.iter().map(|shown| words::entry(shown.range).len()).max().unwrap_or(0).max("entry".len()),
            label: widest.min(LABEL).max(ranges.each.name().len()),
            // Several rows of a range take lines of their own.
            lead: self.has(LEAD_FROM) && shown.iter().all(|shown| own_rows(shown.range).len() < 2),
        };
        let by = format!("most of it, by {}", device.attribution.by.name());
        let head = self.range_line(&columns, ["peak", "", "entry", "after", ranges.each.name(), &by]);
        writeln!(out, "{}", self.dim(&head))?;
        let highest = shown.iter().map(|shown| shown.range.at.get(metric)).max().unwrap_or(0);
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        for shown in &shown {
            let range = shown.range;
            let share = bar(bytes(range.at.get(metric)), bytes(highest));
            let lead = words::lead(range).map(lead).unwrap_or_default();
            let (peak, entry, after) = (words::peak(range, metric), words::entry(range), words::after(range));
            let cells = [peak.as_str(), &share, &entry, &after, &words::label(shown), &lead];
            writeln!(out, "{}", self.range_line(&columns, cells))?;
            if !columns.lead {
                self.range_rows(range, out)?;
            }
        }
        if let Some(rest) = words::rest(ranges, &shown, metric) {
            self.legend(&rest, out)?;
        }
        words::legend(device, ranges, &shown).iter().try_for_each(|line| self.legend(line, out))
    }

    /// Cells as many as there is room for: peak, bar, entry, time, name and what leads there.
    fn range_line(&self, columns: &Columns, [peak, share, entry, after, label, lead]: [&str; 6]) -> String {
        let mut line = format!("{peak:>PEAK$}");
        if self.has(BAR_FROM) {
            // Bars are as wide as they are long.
            let share = if share.is_empty() { " ".repeat(BAR) } else { self.tint(share) };
            line += &format!("  {share}");
        }
        line += &format!("  {entry:>width$}", width = columns.entry);
        if self.has(TIME_FROM) {
            line += &format!("  {after:>TIME$}");
        }
        let mut used = PEAK + 2 + columns.entry;
        used += if self.has(BAR_FROM) { 2 + BAR } else { 0 } + if self.has(TIME_FROM) { 2 + TIME } else { 0 };
        let room = self.room(used + 2);
        if !columns.lead {
            return format!("{line}  {}", shorten_end(&safe(label), room));
        }
        let label = shorten_end(&safe(label), columns.label);
        let pad = " ".repeat(columns.label.saturating_sub(label.width()));
        let lead = shorten(lead, room.saturating_sub(columns.label + 2));
        format!("{line}  {label}{pad}  {lead}").trim_end().to_owned()
    }

    /// What leads to the peak of a range, on lines below it.
    fn range_rows(&self, range: &RangePeak, out: &mut dyn Write) -> io::Result<()> {
        for row in own_rows(range) {
            let share = percent(row.bytes, range.total_bytes);
            let line = format!("{:indent$}{:>11} {share:>5.1}%  ", "", Bytes(row.bytes), indent = PEAK + 2);
            let room = self.room(line.width());
            let label = shorten(&starred(&safe(&row.label), row.inferred), room);
            writeln!(out, "{}", self.dim(&format!("{line}{label}")))?;
        }
        Ok(())
    }
}

/// Widths of columns, and whether there is one for what leads to a peak.
struct Columns {
    entry: usize,
    label: usize,
    lead: bool,
}

/// The rows of a range that are shown: where a single group is asked for, not what remains.
fn own_rows(range: &RangePeak) -> &[Row] {
    match &range.top[..] {
        [_, rest] if rest.label == OTHER => &range.top[..1],
        rows => rows,
    }
}

/// What holds most, in a cell.
fn lead(row: &Row) -> String {
    format!("{:>11}  {}", Bytes(row.bytes).to_string(), starred(&safe(&row.label), row.inferred))
}
