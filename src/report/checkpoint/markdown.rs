//! `memviz checkpoint` as Markdown.

use super::words;
use crate::analysis::checkpoint::Candidate;
use crate::analysis::checkpoint::{CheckpointReport, DeviceCheckpoint};
use crate::model::Format;
use crate::model::bytes::Bytes;
use crate::report::common::code_change;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::{self, signed};
use crate::report::common::words::starred;
use crate::report::fit::single::words as plan;
use crate::report::{Source, percent};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Activation checkpointing for {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    let format = source.recording.snapshot.notes.format;
    report.devices.iter().try_for_each(|device| checkpoint_device(device, format, out))
}

fn checkpoint_device(device: &DeviceCheckpoint, format: Format, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}\n\n{}.\n", escape(&words::headline(device)), escape(&capital(&words::place(device))))?;
    for line in words::limits(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    let below = device.fit.as_ref().map_or(Vec::new(), plan::below);
    let facts: Vec<String> = words::facts(device).into_iter().chain(below).collect();
    list(&facts, out)?;
    if let Some(reason) = words::reason(device, format) {
        return writeln!(out, "{}.\n", escape(&capital(&reason)));
    }
    if let Some((best, others)) = device.candidates.split_first() {
        candidate(device, best, out)?;
        if !others.is_empty() {
            table(others, out)?;
        }
    }
    if device.left_out > 0 {
        writeln!(out, "{}.\n", escape(&words::more(device.left_out)))?;
    }
    Ok(())
}

/// One candidate in full.
fn candidate(device: &DeviceCheckpoint, best: &Candidate, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "**Checkpoint {}: {}**\n", code(&best.label), words::effect(device, best))?;
    let facts: Vec<String> = std::iter::once(words::held(best)).chain(words::cost(device, best)).collect();
    list(&facts, out)?;
    let (place, change) = code_change::change(&best.change);
    writeln!(out, "{}:\n\n```python\n{change}\n```\n", escape(&capital(&place)))?;

    writeln!(out, "{}:\n", escape(&capital(&words::new_peak(device, best))))?;
    writeln!(out, "| Bytes | Share | site |\n|--:|--:|---|")?;
    let total = u64::try_from(best.predicted_peak_bytes).unwrap_or(0);
    let rows = words::limit_rows(best);
    for row in &rows {
        let label = cell(&starred(&row.label, row.inferred));
        writeln!(out, "| {} | {:.1}% | {label} |", Bytes(row.bytes), percent(row.bytes, total))?;
    }
    writeln!(out, "| **{}** | | **predicted peak** |\n", signed(best.predicted_peak_bytes))?;
    if rows.iter().any(|row| row.inferred) {
        writeln!(out, "{}\n", escape(notes::INFERRED_SITE))?;
    }

    writeln!(out, "| Calls checkpointed | Predicted peak | Saved |\n|---|--:|--:|")?;
    for (which, plan) in words::plan(best) {
        let saved = signed(device.peak_bytes.saturating_sub(plan.predicted_peak_bytes));
        writeln!(out, "| {which} | {} | {saved} |", signed(plan.predicted_peak_bytes))?;
    }
    writeln!(out)
}

/// The other candidates.
fn table(others: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Other candidates ({}):\n", words::ALTERNATIVES)?;
    writeln!(out, "| Predicted peak | Saved | Held | Runs again | Calls | forward function |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|---|")?;
    for candidate in others {
        let time = candidate.recompute_us.map_or("-".to_owned(), notes::duration);
        writeln!(
            out,
            "| {} | {} | {} | {time} | {} | {} |",
            signed(candidate.predicted_peak_bytes),
            signed(candidate.saved_bytes),
            Bytes(candidate.activation_bytes),
            candidate.calls,
            cell(&candidate.label)
        )?;
    }
    writeln!(out)
}

fn list(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "- {}", escape(line)))?;
    if lines.is_empty() { Ok(()) } else { writeln!(out) }
}

/// The beginning of a sentence.
fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}
