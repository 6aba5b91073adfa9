//! `memviz fit` of one recording as Markdown.

use super::words;
use crate::analysis::fit::{FIRST, FitCure, FitPlans, FitTogether};
use crate::model::bytes::Bytes;
use crate::play::plans::{DevicePlans, Plan};
use crate::report::Source;
use crate::report::common::cures::change;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::{self, device_name};
use std::io::{self, Write};

pub(crate) fn write(sources: &[Source<'_>], report: &FitPlans, out: &mut dyn Write) -> io::Result<()> {
    let paths: Vec<String> = sources.iter().map(|source| code(source.path)).collect();
    writeln!(out, "## What makes {} fit\n", paths.join(", "))?;
    for line in sources.iter().flat_map(|source| notes::source(&source.recording.snapshot)) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.plans.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    let mut devices = report.plans.devices.iter().zip(report.cures.iter().zip(&report.together));
    devices.try_for_each(|(device, (cures, together))| plans(device, cures, together.as_ref(), out))
}

fn plans(
    device: &DevicePlans,
    cures: &[FitCure],
    together: Option<&FitTogether>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "### {}: {}\n", device_name(device.device), escape(&words::headline_with(device, cures, together)))?;
    for line in words::limits(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    for line in words::facts(device) {
        writeln!(out, "- {}", escape(&line))?;
    }
    for cure in cures.iter().take(FIRST) {
        writeln!(out, "1. {}: {}", escape(&change(&cure.advice)), escape(&words::cure(cure)))?;
    }
    if let Some(together) = together {
        writeln!(out, "\n{}", escape(&words::together(together)))?;
    }
    let Some(as_it_is) = &device.as_it_is else { return Ok(()) };
    writeln!(out, "\n| Needs | Reserved | Allocated | Retries | Runs again | Trust | What is changed |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|---|---|")?;
    for plan in std::iter::once(as_it_is).chain(&device.plans).chain(&device.nearest) {
        row(device, plan, out)?;
    }
    writeln!(out)?;
    for change in words::changes(device) {
        let (place, line) = words::code(change);
        writeln!(out, "- {}: {}\n  {}", code(&change.change.to_string()), escape(&place), code(&line))?;
    }
    if let Some(export) = device.best().and_then(words::export) {
        writeln!(out, "- {}", code(&export))?;
    }
    let assumed = words::assumptions(device).into_iter().map(|line| format!("assumed: {line}"));
    for line in words::uncertain(device).into_iter().chain(assumed).chain(words::not_played(device)) {
        writeln!(out, "- {}", escape(&line))?;
    }
    writeln!(out)
}

fn row(device: &DevicePlans, plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} |",
        Bytes(device.measure(plan)),
        Bytes(plan.outcome.max_reserved),
        Bytes(plan.outcome.max_allocated),
        plan.outcome.retries,
        words::time(plan),
        device.trust(plan).name(),
        cell(&words::name(plan))
    )
}
