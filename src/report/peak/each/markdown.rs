//! `memviz peak --each` as Markdown: a table of ranges.

use super::words;
use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::facts::grouping::attribution::OTHER;
use crate::model::bytes::Bytes;
use crate::report::common::markdown::{cell, escape};
use crate::report::common::words::starred;
use std::io::{self, Write};

pub(crate) fn ranges(device: &DevicePeak, ranges: &RangePeaks, out: &mut dyn Write) -> io::Result<()> {
    let metric = device.metric;
    writeln!(out, "{}:\n", escape(&words::headline(ranges)))?;
    let by = device.attribution.by.name();
    writeln!(out, "| Peak | Entry | After | {} | Most of it, by {by} |\n|--:|--:|--:|---|---|", ranges.each.name())?;
    let shown = words::shown(ranges, metric);
    for shown in &shown {
        let range = shown.range;
        let (peak, entry, after) = (words::peak(range, metric), words::entry(range), words::after(range));
        writeln!(out, "| {peak} | {entry} | {after} | {} | {} |", cell(&words::label(shown)), leads(range))?;
    }
    writeln!(out)?;
    let lines = words::rest(ranges, &shown, metric).into_iter().chain(words::legend(device, ranges, &shown));
    lines.into_iter().try_for_each(|line| writeln!(out, "{}\n", escape(&line)))
}

/// What holds most at the peak of a range, the rest left out.
fn leads(range: &RangePeak) -> String {
    let rows = range.top.iter().filter(|row| row.label != OTHER);
    let texts: Vec<String> =
        rows.map(|row| format!("{} {}", Bytes(row.bytes), cell(&starred(&row.label, row.inferred)))).collect();
    texts.join(", ")
}
