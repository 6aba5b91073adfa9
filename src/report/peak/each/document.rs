//! `memviz peak --each` for people: a line for each range.

use super::words;
use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::facts::grouping::attribution::{OTHER, Row};
use crate::model::bytes::Bytes;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone, label as label_of};
use crate::report::common::text::{BAR, bar};
use crate::report::percent;
use unicode_width::UnicodeWidthStr;

/// On narrower screens, the leading group of a peak is on a separate line.
const LEAD_FROM: usize = 120;
/// Widest name of a range next to others.
const LABEL: usize = 40;
/// Width of a peak, with room for the sign of a bound.
const PEAK: usize = 12;

impl Document {
    /// The ranges of a device, and the group that leads at the peak of each.
    pub(crate) fn ranges(&mut self, device: &DevicePeak, ranges: &RangePeaks) {
        let metric = device.metric;
        self.fact(words::headline(ranges));
        self.gap();
        let shown = words::shown(ranges, metric);
        let width = |texts: &mut dyn Iterator<Item = String>| texts.map(|text| text.width()).max().unwrap_or(0);
        let entry = width(&mut shown.iter().map(|shown| words::entry(shown.range))).max("entry".len());
        let name = ranges.each.name();
        let label = width(&mut shown.iter().map(words::label)).min(LABEL).max(name.len());
        let by = format!("largest {}", device.attribution.by.option());
        // Several rows of a range take separate lines.
        let is_beside = shown.iter().all(|shown| own_rows(shown.range).len() < 2);
        let lead = Column::label(&by);
        let mut table = Table::new([
            Column::right(PEAK, "peak"),
            Column::left(BAR, "").gap(2).from(100).on_screens(),
            Column::right(entry, "entry").gap(2),
            Column::right(11, "after").gap(2).from(72),
            Column::left(label, name).gap(2).cut(Cut::End),
            if is_beside { lead.from(LEAD_FROM) } else { lead.in_markdown() },
        ])
        .below(4);
        let bytes = |range: &RangePeak| u64::try_from(range.at.get(metric)).unwrap_or(0);
        let highest = shown.iter().map(|shown| bytes(shown.range)).max().unwrap_or(0);
        for shown in &shown {
            let range = shown.range;
            let named = |row: &Row| label_of(device.attribution.by.name(), &row.label, row.inferred).text;
            let told = |row: &Row| format!("{:>11}  {}", Bytes(row.bytes).to_string(), named(row));
            let lead = words::lead(range).filter(|_| is_beside).map(told).unwrap_or_default();
            let cells = [
                words::peak(range, metric),
                bar(bytes(range), highest),
                words::entry(range),
                words::after(range),
                words::label(shown),
            ];
            let row = table.row(cells, Cell::code(lead));
            row.cell(1, Tone::Tint);
            let below = own_rows(range).iter().map(|row| {
                let share = percent(row.bytes, range.total_bytes);
                let front = format!("{:>11} {share:>5.1}%  ", Bytes(row.bytes).to_string());
                (front, named(row))
            });
            row.below = below.collect();
            row.is_said = is_beside.then_some(LEAD_FROM);
        }
        self.table(table);
        self.legends(words::rest(ranges, &shown, metric));
        let rows = shown.iter().flat_map(|shown| own_rows(shown.range));
        self.legends(words::legend(device, ranges, &shown, rows));
    }
}

/// The rows of a range that are shown: if a single group is requested, without the rest.
fn own_rows(range: &RangePeak) -> &[Row] {
    match &range.top[..] {
        [_, rest] if rest.label == OTHER => &range.top[..1],
        rows => rows,
    }
}
