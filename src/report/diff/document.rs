//! `memviz diff` for people.

use super::words;
use crate::analysis::diff::{DeviceDiff, DiffReport, Fate, Share};
use crate::facts::grouping::GroupBy;
use crate::report::Sources;
use crate::report::common::document::{Cell, Column, Document, Table, Tone, label};
use crate::report::common::markdown::code;
use crate::report::common::next::Next;
use crate::report::common::notes;
use crate::report::common::words::count;

/// On narrower screens, rows show only growth, and figures only the two sides.
const SIDES_FROM: usize = 64;

pub(crate) fn document(sources: Sources<'_>, report: &DiffReport) -> Document {
    let (base, new) = (sources.base.path, sources.new.path);
    let mut document = Document::new(format!("GPU memory of {} against {}", code(new), code(base)));
    document.notes(words::files(sources, report));
    if report.is_empty() {
        document.paragraph(format!("no differences between {base} and {new}"));
        return document;
    }
    document.each(report.devices.iter(), |document, device| diff(document, sources, device));
    document.notes(words::unpaired(report));
    if !report.settings.is_empty() {
        document.section("Settings that differ");
        document.facts(report.settings.iter().map(words::setting));
    }
    let grew = report.devices.iter().any(|device| device.delta_bytes > 0);
    let picture = Next::new(
        "diff",
        &[base, new],
        "-o diff.svg",
        if report.is_of_instants() { "the timeline, with both instants" } else { "both timelines on one axis" },
    );
    document.next(grew.then_some(picture));
    document
}

fn diff(document: &mut Document, sources: Sources<'_>, device: &DeviceDiff) {
    document.flush_title(words::headline(device));
    document.facts(words::places(sources, device));
    document.facts(device.lives.as_ref().map(words::lives));
    document.notes(words::limits(device));
    if device.is_empty() {
        return document.legend("no differences");
    }
    let figures = words::figures(device);
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let columns = [Column::left(width, ""), Column::right(11, "base"), Column::right(11, "new")];
    let mut table = Table::new(columns.into_iter().chain([Column::right(12, "change").from(SIDES_FROM)])).indent(2);
    for figure in &figures {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        table.row([figure.name.to_owned(), shown(&figure.base), shown(&figure.new)], shown(&figure.delta));
    }
    if !figures.is_empty() {
        document.tuck("Counters and fragmentation", |document| document.table(table));
        document.gap();
    }
    document.table(rows(device));
    if device.rows.iter().any(|row| row.inferred) {
        document.legend(notes::inferred_rows(device.by()));
    }
    document.legends(words::fates(device));
    document.legends(words::library_lines(device));
}

/// Bytes that were added or removed.
fn change(bytes: i64) -> Cell {
    Cell::marked(if bytes > 0 { "+" } else { "" }, bytes)
}

/// What grew; or, within one recording, what was allocated, freed and survived.
fn rows(device: &DeviceDiff) -> Table {
    let by = device.by();
    let mut table = match device.lives {
        Some(_) => Table::new([
            Column::right(11, "allocated"),
            Column::right(11, "freed"),
            Column::right(11, "survived").from(SIDES_FROM),
            Column::label(by.name()),
        ]),
        None => Table::new([
            Column::right(12, "change"),
            Column::right(11, "base").from(SIDES_FROM),
            Column::right(11, "new").from(SIDES_FROM),
            Column::label(by.name()),
        ]),
    };
    let bytes = |is_there: bool, bytes: i64| if is_there { Cell::size(bytes) } else { "-".into() };
    let share = |share: Share| if share.blocks > 0 { Cell::size(share.bytes) } else { "-".into() };
    for row in &device.rows {
        let growth = [
            change(row.delta_bytes),
            bytes(row.fate != Fate::New, row.base_bytes),
            bytes(row.fate != Fate::Vanished, row.new_bytes),
        ];
        let (cells, fate) = match (&device.lives, &row.lives) {
            (None, _) => (growth, words::fate(device, row)),
            (_, Some(lives)) => ([lives.born, lives.freed, lives.survived].map(share), String::new()),
            (_, None) => (["-".into(), "-".into(), Cell::size(row.new_bytes)], String::new()),
        };
        // Nearly all categories are inferred, which the last line states.
        let label = label(by.name(), &row.label, row.inferred && by != GroupBy::Category);
        let shown = table.row(cells, label.suffix(fate, Tone::Dim, 0));
        if device.lives.is_none() && row.delta_bytes > 0 {
            shown.toned(Tone::Warn);
        }
        if by == GroupBy::Stack {
            shown.below(&row.stack);
        }
    }
    let blank = || ["", "", ""];
    let dim = |text: String| Cell::from(text).toned(Tone::Dim);
    if by.is_inclusive() && device.left_out > 0 {
        table.row(blank(), dim(format!("{} more; --top shows them", count(device.left_out, "row"))));
    }
    if let Some(unchanged) = words::unchanged(device) {
        table.row(blank(), dim(unchanged));
    }
    let [base, new] = [&device.base, &device.new].map(|side| Cell::size(side.peak.at.get(device.metric())));
    let cells = match &device.lives {
        Some(all) => [all.born, all.freed, all.survived].map(share),
        None => [change(device.delta_bytes), base, new],
    };
    let total = if by.is_inclusive() { "in all" } else { "total" };
    table.row(cells, dim(format!("{total}, by {}", by.option()))).is_total = true;
    table
}
