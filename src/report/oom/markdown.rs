//! `memviz oom` as Markdown.

use super::words as oom_words;
use crate::analysis::oom::{Cause, DeviceOoms, Oom, OomReport};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::comparison::markdown::comparison;
use crate::report::common::cures;
use crate::report::common::markdown::{code, escape};
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::words;
use crate::report::fit::single::words as plan;
use crate::report::fragmentation::markdown::pinning;
use crate::report::peak::markdown::{attribution, peak_device};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Out of memory in {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        return writeln!(out, "No memory was allocated on any device while recording.");
    }
    if report.count() == 0 {
        let (why, shown) = (notes::no_oom(source.recording, report.elsewhere), oom_words::instead(report));
        writeln!(out, "{}. Instead, {shown}:\n", escape(&why))?;
    }
    for device in &report.devices {
        device_section(device, out)?;
    }
    report.comparison.iter().try_for_each(|devices| comparison(devices, out))
}

fn device_section(device: &DeviceOoms, out: &mut dyn Write) -> io::Result<()> {
    if let Some(peak) = &device.peak {
        return peak_device(peak, out);
    }
    writeln!(out, "### {}: {}\n", device_name(device.device), notes::failures(device.failed))?;
    for line in notes::ooms(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    for oom in &device.ooms {
        let place = notes::position(&oom.moment, device.entries, &device.completeness);
        writeln!(out, "#### {} requested, cause: {}\n", Bytes(oom.request.bytes), escape(oom.cause.name()))?;
        writeln!(out, "At {}.\n", escape(&place))?;
        failed(oom, out)?;
    }
    if !device.cures.is_empty() {
        cures::markdown(&device.cures, device.failed > 0, out)?;
        writeln!(out)?;
    }
    if let Some(room) = device.plans.as_ref().and_then(plan::room) {
        writeln!(out, "What would make room: {}.\n", escape(&room))?;
    }
    Ok(())
}

fn failed(oom: &Oom, out: &mut dyn Write) -> io::Result<()> {
    for evidence in &oom.evidence {
        writeln!(out, "- {}", escape(&oom_words::evidence(oom, evidence).text))?;
    }
    let figures = &oom.figures;
    writeln!(out, "\n| | Bytes |\n|---|--:|")?;
    writeln!(out, "| requested ({}) | {} |", escape(&oom_words::serving(oom)), Bytes(oom.request.bytes))?;
    if oom.request.driver_bytes != oom.request.bytes {
        writeln!(out, "| new segment | {} |", Bytes(oom.request.driver_bytes))?;
    }
    for (name, bytes) in [
        ("device free", oom.device_free),
        ("reserved", figures.reserved),
        ("allocated", figures.allocated),
        ("pending free", figures.pending_free),
        ("inactive", figures.inactive),
        ("pinned", figures.pinned_free),
        ("releasable", figures.releasable),
        ("largest free block", figures.largest_free_block),
    ] {
        writeln!(out, "| {name} | {} |", Bytes(bytes))?;
    }
    writeln!(out, "| rounding loss | {} |", signed(figures.rounding()))?;
    let segments = words::count(oom.retry.segments, "segment");
    writeln!(out, "| freed by retry ({segments}) | {} |\n", Bytes(oom.retry.bytes))?;
    writeln!(out, "- requested by {}", code(&oom.request.site))?;
    for frame in &oom.request.stack {
        writeln!(out, "  - {}", code(frame))?;
    }
    for line in oom_words::request(oom) {
        writeln!(out, "- {}", escape(&line))?;
    }
    if !oom.advice.is_empty() {
        writeln!(out, "\nWhat would and would not have helped:\n")?;
        for advice in &oom.advice {
            writeln!(out, "- {}", escape(&oom_words::advice(oom, advice).text))?;
        }
    }
    writeln!(out)?;
    attribution(&oom.attribution, out)?;
    if oom.cause == Cause::Fragmentation {
        pinning(oom.attribution.by, &oom.pinning.rows, oom.pinning.pinned_free_bytes, out)?;
    }
    Ok(())
}
