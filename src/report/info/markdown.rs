//! `memviz info` as Markdown.

use crate::analysis::info::InfoReport;
use crate::model::Action;
use crate::report::Source;
use crate::report::common::markdown::{cell, code, counters, escape};
use crate::report::common::notes::{self, device_name};
use crate::report::common::training;
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    for line in notes::settings_warnings(&source.recording.snapshot.settings) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    for device in &report.devices {
        writeln!(out, "### {}\n", device_name(device.device))?;
        let mut lines = notes::limits(&device.completeness, &device.baseline);
        lines.extend(notes::anomalies(&device.anomalies));
        for line in lines {
            writeln!(out, "> {}\n", escape(&line))?;
        }
        if device.completeness.no_entries {
            counters(&[("At the dump", device.end)], out)?;
        } else {
            counters(&[("Baseline", device.baseline), ("Maximum", device.maxima.into()), ("End", device.end)], out)?;
        }
        writeln!(out, "| Entries | Count |\n|---|--:|")?;
        for (action, count) in Action::ALL.iter().zip(device.actions).filter(|&(_, count)| count > 0) {
            writeln!(out, "| {} | {count} |", action.name())?;
        }
        writeln!(out, "| **all** | {} |\n", device.entries)?;
        if let Ok(steps) = &device.steps {
            writeln!(out, "{}\n", escape(&training::steps(steps)))?;
        }
        let rows = training::phases(device);
        if !rows.is_empty() {
            writeln!(out, "| {} |\n|---|--:|--:|--:|--:|---|", training::COLUMNS.join(" | "))?;
            for row in rows {
                writeln!(out, "| {} |", row.join(" | "))?;
            }
            writeln!(out)?;
        }
    }
    if !report.annotations.is_empty() {
        writeln!(out, "| Annotation | Ranges | Time |\n|---|--:|--:|")?;
        for summary in &report.annotations {
            let time = notes::duration(summary.total_us);
            writeln!(out, "| {} | {} | {time} |", cell(&summary.name), summary.count)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
