//! The triage as Markdown.

use super::words;
use crate::analysis::triage::TriageReport;
use crate::facts::grouping::attribution::Attribution;
use crate::model::bytes::Bytes;
use crate::report::common::cures;
use crate::report::common::markdown::{cell, code, escape, star};
use crate::report::common::next::Next;
use crate::report::common::notes;
use crate::report::common::words::starred;
use crate::report::{Source, percent};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &TriageReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    for device in &report.devices {
        writeln!(out, "**{}**\n", escape(&words::verdict(device)))?;
        writeln!(out, "{} ({}).\n", words::held(device), escape(&notes::place(&device.peak)))?;
        for line in notes::device(&device.peak) {
            writeln!(out, "> {}\n", escape(&line))?;
        }
        table("category", &device.categories, out)?;
        table("site", &device.peak.attribution, out)?;
        if !device.advice.is_empty() {
            cures::markdown(&device.advice, device.failure.is_some(), out)?;
            writeln!(out)?;
        }
        if let Some(nothing) = &device.nothing {
            writeln!(out, "{}.\n", escape(&words::nothing(nothing)))?;
        }
        for line in words::findings(device) {
            writeln!(
                out,
                "- {}: {}",
                escape(&line.text),
                code(&Next::new(line.command, &[source.path], "", "").typed())
            )?;
        }
        if let Some(next) = words::compared(device, source.path) {
            writeln!(out, "- {}: {}", escape(&next.about), code(&next.typed()))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn table(name: &str, attribution: &Attribution, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| {name} | bytes | share |\n|---|---:|---:|")?;
    for row in &attribution.rows {
        let share = percent(row.bytes, attribution.total_bytes);
        // Of categories nearly all are inferred.
        let label = starred(&row.label, row.inferred && name == "site");
        writeln!(out, "| {} | {} | {share:.1}% |", cell(&label), Bytes(row.bytes))?;
    }
    writeln!(out)?;
    star(name == "site" && attribution.rows.iter().any(|row| row.inferred), attribution.by, out)
}
