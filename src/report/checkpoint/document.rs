//! `memviz checkpoint` for people.

use super::words;
use crate::analysis::checkpoint::{Candidate, CheckpointReport, DeviceCheckpoint};
use crate::model::Format;
use crate::report::Source;
use crate::report::common::code_change;
use crate::report::common::document::{Cell, Column, Document, Table, Tone, attributed};
use crate::report::common::next::Next;
use crate::report::common::notes;
use std::slice;

/// On narrower screens, the columns for the memory and the cost of a candidate are left out.
const COSTS_FROM: usize = 80;

pub(crate) fn document(source: Source<'_>, report: &CheckpointReport) -> Document {
    let format = source.recording.snapshot.notes.format;
    let devices = report.devices.iter();
    let mut document = Document::devices("Activation checkpointing for", source, devices, |document, device| {
        checkpoint(document, device, format);
    });
    let saves = report.devices.iter().flat_map(|device| &device.candidates).any(|candidate| candidate.saved_bytes > 0);
    let picture = Next::new("checkpoint", &[source.path], "-o checkpoint.svg", "memory before and after");
    document.next(saves.then_some(picture));
    document
}

fn checkpoint(document: &mut Document, device: &DeviceCheckpoint, format: Format) {
    document.heading(words::headline(device), words::place(device));
    document.notes(words::limits(device));
    document.facts(words::facts(device));
    document.facts(words::within(device));
    if let Some(reason) = words::reason(device, format) {
        document.fact(reason);
        if let Some(rescue) = &device.at_failure {
            document.rescue(rescue, &[], true);
        }
        return;
    }
    let Some((first, others)) = device.candidates.split_first() else {
        return document.fact(words::more(device.left_out));
    };
    document.gap();
    best(document, device, first);
    let of_best = words::beyond(slice::from_ref(first));
    document.legends(of_best);
    alternatives(document, device, others);
    document.legends(words::beyond(others).filter(|_| of_best.is_none()));
}

/// One candidate in full.
fn best(document: &mut Document, device: &DeviceCheckpoint, best: &Candidate) {
    document.title(format!(
        "Checkpoint {}: {}",
        code_change::function(&best.label, &best.change),
        words::effect(device, best)
    ));
    document.fact(words::held(best));
    document.facts(words::cost(device, best));
    let (place, code) = code_change::change(&best.change);
    document.fact(format!("{place}:"));
    document.code(4, [code]);

    document.gap();
    document.paragraph(words::new_peak(device, best));
    let total = u64::try_from(best.predicted_peak_bytes).unwrap_or(0);
    let rows = words::limit_rows(best);
    let mut table = attributed("site", rows.iter(), total, false);
    table.total(Cell::size(best.predicted_peak_bytes), "predicted peak, by site");
    document.table(table);
    if rows.iter().any(|row| row.inferred) {
        document.below(notes::INFERRED_SITE);
    }

    document.gap();
    let columns = [Column::right(11, "peak"), Column::right(11, "saved"), Column::label("calls checkpointed")];
    let mut table = Table::new(columns);
    for (which, plan) in words::plan(best) {
        let saved = device.peak_bytes.saturating_sub(plan.predicted_peak_bytes);
        table.row([plan.predicted_peak_bytes, saved].map(Cell::size), which);
    }
    document.table(table);
    document.legends(words::uneven(best));
}

/// The other candidates, one line each.
fn alternatives(document: &mut Document, device: &DeviceCheckpoint, others: &[Candidate]) {
    if others.is_empty() && device.left_out == 0 {
        return;
    }
    document.section(format!("Other candidates ({})", words::ALTERNATIVES));
    let mut table = Table::new([
        Column::right(11, "peak"),
        Column::right(11, "saved"),
        Column::right(11, "held").from(COSTS_FROM),
        Column::right(11, "recompute").from(COSTS_FROM),
        Column::right(6, "calls"),
        Column::label("forward function"),
    ])
    .head((!others.is_empty()).then_some(Tone::Dim));
    for candidate in others {
        let cells = [
            Cell::size(candidate.predicted_peak_bytes),
            Cell::size(candidate.saved_bytes),
            Cell::size(candidate.activation_bytes),
            candidate.recompute_us.map_or("unknown".to_owned(), notes::duration).into(),
            format!("{}x", candidate.calls).into(),
        ];
        table.row(cells, Cell::code(code_change::function(&candidate.label, &candidate.change)));
    }
    if device.left_out > 0 {
        table.short("", words::more(device.left_out));
    }
    document.table(table);
}
