//! `memviz fit` for people.

use super::words;
use crate::analysis::fit::{DeviceFit, FitReport, Largest, Prediction};
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::fit::shorten_end;
use crate::report::common::markdown::code;
use crate::report::common::notes::device_name;
use crate::report::common::text::{BAR, bar};
use crate::report::common::words::{NOTHING, starred};
use crate::report::simulate::words as simulate;

/// Screens narrower than this show no retries and bars.
const WIDE: usize = 72;
/// Width of the column for certainty.
const CERTAINTY: usize = 9;

pub(crate) fn document(sources: &[Source<'_>], report: &FitReport) -> Document {
    let paths: Vec<String> = sources.iter().map(|source| code(source.path)).collect();
    let mut document = Document::new(format!("What fits, predicted from {}", paths.join(", ")));
    document.notes(words::files(sources));
    if report.devices.is_empty() {
        document.paragraph(NOTHING);
    }
    document.each(report.devices.iter(), |document, device| fit(document, &report.parameter, device));
    document
}

fn fit(document: &mut Document, parameter: &str, device: &DeviceFit) {
    document.title(format!("{}: {}", device_name(device.device), words::headline(parameter, device)));
    document.facts(words::basis(parameter, device));
    if device.refused.is_some() {
        return;
    }
    document.fact(words::settings(device));
    document.facts(device.check.as_ref().map(|check| words::check(parameter, check)));
    document.notes(words::limits(parameter, device));
    document.gap();
    document.table(predictions(parameter, device));
    document.legend(words::COLUMNS);
    if device.predictions.iter().any(|prediction| prediction.outcome.retries > 0) {
        document.wide(WIDE, |document| document.legend(simulate::RETRIES));
    }
    if device.predictions.iter().any(|prediction| words::trust(device, prediction) == "predicted") {
        document.legend(words::PREDICTED);
    }
    let Some((value, attribution)) = &device.peak else { return };
    document.gap();
    document.fact(words::peak(parameter, *value, attribution.total_bytes));
    let mut table = Table::new([
        Column::right(14, "bytes"),
        Column::left(BAR, "").from(WIDE).on_screens(),
        Column::label(attribution.by.name()).gap(1).least(20),
    ]);
    let largest = attribution.rows.first().map_or(0, |row| row.bytes);
    for row in &attribution.rows {
        let cells = [Cell::size(row.bytes), bar(row.bytes, largest).into()];
        table.row(cells, Cell::code(starred(&row.label, row.inferred))).cell(1, Tone::Tint);
    }
    document.table(table);
    if attribution.rows.iter().any(|row| row.inferred) {
        document.legend(words::INFERRED);
    }
}

fn predictions(parameter: &str, device: &DeviceFit) -> Table {
    // A range needs more room than a figure.
    let is_range = |it: &Prediction| it.allocated_range.is_some() || it.reserved_range.is_some();
    let bytes = if device.predictions.iter().any(is_range) { 24 } else { 11 };
    let has_capacity = device.capacity.is_some();
    let fits = has_capacity.then(|| Column::right(4, "fits"));
    let columns = [
        Column::right(14, &shorten_end(parameter, 14)),
        Column::right(bytes, "allocated"),
        Column::right(bytes, "reserved"),
        Column::right(7, "retries").from(WIDE),
    ];
    let mut table =
        Table::new(columns.into_iter().chain(fits).chain([Column::label("certainty").cut(Cut::End).least(CERTAINTY)]));
    for prediction in &device.predictions {
        let cells = [
            prediction.value.to_string(),
            words::allocated(prediction),
            words::reserved(prediction),
            prediction.outcome.retries.to_string(),
        ];
        let fits = has_capacity.then(|| words::fits(device, prediction).to_owned());
        let is_largest = device.largest.and_then(Largest::value) == Some(prediction.value);
        let tone = if is_largest { Tone::Bold } else { Tone::Plain };
        table.row(cells.into_iter().chain(fits), words::trust(device, prediction)).painted(tone);
    }
    table
}
