//! `memviz peak` as Markdown.

use super::each::markdown::ranges;
use super::operators::{COLUMNS, ROWS, cells};
use crate::analysis::peak::{DevicePeak, PeakReport};
use crate::facts::grouping::attribution::Attribution;
use crate::model::bytes::Bytes;
use crate::replay::OperatorUsage;
use crate::report::common::comparison::markdown::comparison;
use crate::report::common::markdown::{cell, code, counters, escape, star};
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::words::starred;
use crate::report::{Source, percent};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory peak of {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    for device in &report.devices {
        peak_device(device, out)?;
    }
    report.comparison.iter().try_for_each(|devices| comparison(devices, out))
}

pub(crate) fn peak_device(device: &DevicePeak, out: &mut dyn Write) -> io::Result<()> {
    let metric = device.metric;
    let bytes = device.at.get(metric);
    writeln!(out, "### {}: {} {}\n", device_name(device.device), signed(bytes), metric.name())?;
    let mut place = match device.entry {
        Some(entry) => format!("At entry {entry} of {}", device.entries),
        None if device.completeness.no_entries => "At the dump".to_owned(),
        None => "Before the first entry".to_owned(),
    };
    if let Some(since) = device.since_start_us {
        place += &format!(", {} after the first one", notes::duration(since));
    }
    if !device.annotations.is_empty() {
        place += &format!(", during {}", code(&device.annotations.join(" / ")));
    }
    writeln!(out, "{place}.\n")?;
    let mut lines = notes::device(device);
    lines.extend(notes::grouping(device.attribution.by).map(str::to_owned));
    for line in lines {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if let Some(found) = &device.ranges {
        return ranges(device, found, out);
    }
    if device.completeness.no_entries {
        counters(&[("At the dump", device.at)], out)?;
    } else {
        counters(&[("Here", device.at), ("Maximum", device.maxima.into()), ("End", device.end)], out)?;
    }

    attribution(&device.attribution, out)?;
    operator_table(&device.operators, out)
}

/// Rows and their total.
pub(crate) fn attribution(attribution: &Attribution, out: &mut dyn Write) -> io::Result<()> {
    table(attribution, ["Bytes", "Share", "Blocks"], "total", out)
}

/// The same with names for the columns and the total.
pub(crate) fn table(attribution: &Attribution, names: [&str; 3], total: &str, out: &mut dyn Write) -> io::Result<()> {
    let [bytes, share, blocks] = names;
    writeln!(out, "| {bytes} | {share} | {blocks} | {} |\n|--:|--:|--:|---|", attribution.by.name())?;
    for row in &attribution.rows {
        let share = percent(row.bytes, attribution.total_bytes);
        writeln!(
            out,
            "| {} | {share:.1}% | {} | {} |",
            Bytes(row.bytes),
            row.blocks,
            cell(&starred(&row.label, row.inferred))
        )?;
    }
    writeln!(out, "| **{}** | | | **{total}** |\n", Bytes(attribution.total_bytes))?;
    star(attribution.rows.iter().any(|row| row.inferred), attribution.by, out)?;
    let below = notes::library_below(attribution).into_iter().chain(notes::private_pools(attribution));
    below.into_iter().try_for_each(|line| writeln!(out, "{}\n", escape(&line)))
}

/// What passed through each operator.
fn operator_table(operators: &[OperatorUsage], out: &mut dyn Write) -> io::Result<()> {
    if operators.is_empty() {
        return Ok(());
    }
    writeln!(out, "Over the whole recording:\n")?;
    writeln!(out, "| {} | operator |\n|{}---|", COLUMNS.join(" | "), "--:|".repeat(COLUMNS.len()))?;
    for operator in operators.iter().take(ROWS) {
        writeln!(out, "| {} | {} |", cells(operator).join(" | "), cell(&operator.name))?;
    }
    match operators.len().saturating_sub(ROWS) {
        0 => writeln!(out),
        more => writeln!(out, "\n{more} more operators are left out.\n"),
    }
}
