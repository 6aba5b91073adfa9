//! `memviz simulate` as Markdown.

use super::words;
use crate::analysis::simulate::DeviceSimulation;
use crate::analysis::simulate::SimulateReport;
use crate::model::bytes::Bytes;
use crate::play::Run;
use crate::report::Source;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::{self, device_name};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &SimulateReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Allocator settings for {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    report.devices.iter().try_for_each(|device| simulation(device, out))
}

fn simulation(device: &DeviceSimulation, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}: {}\n", device_name(device.device), escape(&words::headline(device)))?;
    for line in words::limits(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    let facts = words::error_bar(device);
    for line in facts.into_iter().chain(words::capacity(device)).chain(words::releases(device)) {
        writeln!(out, "- {}", escape(&line))?;
    }
    if device.runs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| Needs | Reserved | Inactive | Retries | Device allocations | Frees | Trust | Settings |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|---|---|")?;
    device.runs.iter().try_for_each(|run| row(run, out))?;
    writeln!(out)?;
    let told = device.runs.iter().flat_map(|run| [words::holes(run), words::ending(run)]);
    let told = told.flatten().chain(words::refusals(device)).chain(words::bound(device)).chain(words::changes(device));
    for line in told {
        writeln!(out, "- {}", escape(&line))?;
    }
    if let Some(advice) = words::advice(device) {
        writeln!(out, "\n**{}**", code(&advice))?;
    }
    writeln!(out)
}

fn row(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let name = cell(&words::name(run));
    let Some(outcome) = &run.outcome else {
        return writeln!(out, "| - | - | - | - | - | - | {}: {} | {name} |", run.trust.name(), cell(&run.because));
    };
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} | {name} |",
        cell(&words::needs(run)),
        words::reserved(run),
        Bytes(outcome.max_inactive),
        outcome.retries,
        outcome.device_allocs,
        outcome.device_frees,
        run.trust.name()
    )
}
