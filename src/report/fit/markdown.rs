//! `memviz fit` as Markdown.

use super::words;
use crate::analysis::fit::DeviceFit;
use crate::analysis::fit::FitReport;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::device_name;
use crate::report::common::words::starred;
use std::io::{self, Write};

pub(crate) fn write(sources: &[Source<'_>], report: &FitReport, out: &mut dyn Write) -> io::Result<()> {
    let paths: Vec<String> = sources.iter().map(|source| code(source.path)).collect();
    writeln!(out, "## What fits, from {}\n", paths.join(", "))?;
    for line in words::files(sources) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    report.devices.iter().try_for_each(|device| fit(&report.parameter, device, out))
}

fn fit(parameter: &str, device: &DeviceFit, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}: {}\n", device_name(device.device), escape(&words::headline(parameter, device)))?;
    for line in words::limits(parameter, device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    for line in words::basis(parameter, device) {
        writeln!(out, "- {}", escape(&line))?;
    }
    if device.refused.is_some() {
        return writeln!(out);
    }
    let check = device.check.as_ref().map(|check| words::check(parameter, check));
    for line in std::iter::once(words::settings(device)).chain(check) {
        writeln!(out, "- {}", escape(&line))?;
    }
    writeln!(out, "\n| {} | Allocated | Reserved | Retries | Fits | Trust |", escape(parameter))?;
    writeln!(out, "|--:|--:|--:|--:|---|---|")?;
    for prediction in &device.predictions {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            prediction.value,
            words::allocated(prediction),
            words::reserved(prediction),
            prediction.outcome.retries,
            words::fits(device, prediction),
            words::trust(device, prediction)
        )?;
    }
    writeln!(out)?;
    let Some((value, attribution)) = &device.peak else { return Ok(()) };
    let title = words::peak(parameter, *value, attribution.total_bytes);
    writeln!(out, "{}:\n\n| Bytes | {} |\n|--:|---|", escape(&title), attribution.by.name())?;
    for row in &attribution.rows {
        writeln!(out, "| {} | {} |", Bytes(row.bytes), cell(&starred(&row.label, row.inferred)))?;
    }
    writeln!(out)?;
    if attribution.rows.iter().any(|row| row.inferred) {
        writeln!(out, "{}\n", escape(words::INFERRED))?;
    }
    Ok(())
}
