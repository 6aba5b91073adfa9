//! `memviz diff` as Markdown.

use super::words;
use crate::analysis::diff::{DeviceDiff, DiffReport, Fate, Lives};
use crate::model::bytes::Bytes;
use crate::report::Sources;
use crate::report::common::markdown::{cell, code, escape, star};
use crate::report::common::notes::signed;
use crate::report::common::words::starred;
use std::io::{self, Write};

pub(crate) fn write(sources: Sources<'_>, report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory of {} against {}\n", code(sources.new.path), code(sources.base.path))?;
    for line in words::files(sources, report).iter().chain(&words::unpaired(report)) {
        writeln!(out, "> {}\n", escape(line))?;
    }
    if report.is_empty() {
        return writeln!(out, "Nothing differs.");
    }
    report.devices.iter().try_for_each(|device| diff_device(device, out))?;
    if !report.settings.is_empty() {
        writeln!(out, "Settings that differ:\n\n| Setting | Base | New |\n|---|---|---|")?;
        let value = |value: &Option<String>| match value.as_deref() {
            None => "not recorded".to_owned(),
            Some("") => "empty".to_owned(),
            Some(value) => cell(value),
        };
        for setting in &report.settings {
            writeln!(out, "| {} | {} | {} |", cell(&setting.name), value(&setting.base), value(&setting.new))?;
        }
    }
    Ok(())
}

fn diff_device(device: &DeviceDiff, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}\n", escape(&words::headline(device)))?;
    for place in words::places(device) {
        writeln!(out, "- {}", escape(&place))?;
    }
    if let Some(lives) = &device.lives {
        writeln!(out, "- {}", words::lives(lives))?;
    }
    writeln!(out)?;
    for line in words::limits(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if device.is_empty() {
        return writeln!(out, "Nothing differs.\n");
    }
    match &device.lives {
        Some(lives) => lives_rows(device, lives, out)?,
        None => rows(device, out)?,
    }
    writeln!(out, "<details><summary>Counters and fragmentation</summary>\n")?;
    writeln!(out, "| | Base | New | Growth |\n|---|--:|--:|--:|")?;
    for figure in words::figures(device) {
        let [base, new, delta] = [&figure.base, &figure.new, &figure.delta].map(|value| value.as_deref().unwrap_or(""));
        writeln!(out, "| {} | {base} | {new} | {delta} |", figure.name)?;
    }
    writeln!(out, "\n</details>\n")
}

fn rows(device: &DeviceDiff, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| Growth | Base | New | {} |\n|--:|--:|--:|---|", device.by().name())?;
    for row in &device.rows {
        let base = if row.fate == Fate::New { String::new() } else { signed(row.base_bytes) };
        let new = if row.fate == Fate::Vanished { String::new() } else { signed(row.new_bytes) };
        let delta = words::delta(row.delta_bytes());
        let label = cell(&starred(&row.label, row.inferred));
        writeln!(out, "| {delta} | {base} | {new} | {label}{} |", escape(&words::fate(row)))?;
    }
    if let Some(unchanged) = words::unchanged(device) {
        writeln!(out, "| | | | {unchanged} |")?;
    }
    let metric = device.metric();
    let [base, new] = [&device.base, &device.new].map(|side| signed(side.peak.at.get(metric)));
    writeln!(out, "| **{}** | **{base}** | **{new}** | **total** |\n", words::delta(device.delta_bytes))?;
    star(device.rows.iter().any(|row| row.inferred), device.by(), out)
}

/// Rows of what was born, freed and survived in one recording.
fn lives_rows(device: &DeviceDiff, all: &Lives, out: &mut dyn Write) -> io::Result<()> {
    let columns = |lives: &Lives| {
        [lives.born, lives.freed, lives.survived]
            .map(|share| if share.blocks > 0 { Bytes(share.bytes).to_string() } else { String::new() })
    };
    writeln!(out, "| Born | Freed | Survived | {} |\n|--:|--:|--:|---|", device.by().name())?;
    for row in &device.rows {
        let [born, freed, survived] = row.lives.as_ref().map(columns).unwrap_or_default();
        writeln!(out, "| {born} | {freed} | {survived} | {} |", cell(&starred(&row.label, row.inferred)))?;
    }
    if let Some(unchanged) = words::unchanged(device) {
        writeln!(out, "| | | | {unchanged} |")?;
    }
    let [born, freed, survived] = columns(all);
    writeln!(out, "| **{born}** | **{freed}** | **{survived}** | **total** |\n")?;
    star(device.rows.iter().any(|row| row.inferred), device.by(), out)
}
