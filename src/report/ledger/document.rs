//! `memviz ledger` for people.

use super::words::{self, Table as Rows, TableRow};
use crate::analysis::ledger::{DeviceLedger, LedgerReport};
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::next::Next;

/// The width of a sample, and the width that names need.
const SAMPLE: usize = 13;
const NAMES: usize = 24;

pub(crate) fn document(source: Source<'_>, report: &LedgerReport) -> Document {
    let mut document = Document::devices("Device memory of", source, report.devices.iter(), ledger);
    if report.capacity_is_unused {
        document.gap();
        document.paragraph("--capacity and --gpu are ignored: the samples show the memory of the device");
    }
    if !report.host.is_empty() {
        document.gap();
        document.title(words::PINNED);
        let names: Vec<String> = report.host.iter().map(|sample| words::column(sample.at).to_owned()).collect();
        document.table(table(&names, words::pinned_rows(&report.host)));
    }
    if let Some(pinned) = words::pinned(report) {
        document.gap();
        document.paragraph(pinned);
    }
    document.next([Next::new("peak", &[source.path], "", "what PyTorch had allocated at its own peak")]);
    document
}

fn ledger(document: &mut Document, device: &DeviceLedger) {
    document.title(words::headline(device));
    document.notes(words::doubts(device));
    document.gap();
    let names: Vec<String> = device.samples.iter().map(words::header).collect();
    document.table(table(&names, Rows::of(device).rows));
    document.legends(words::pools_unknown(device));
    if names.len() > 1 {
        document.narrow(NAMES + names.len() * SAMPLE, |document| {
            document.legend("the earliest samples are left out; a wider terminal shows them");
        });
    }
}

fn table(names: &[String], rows: impl IntoIterator<Item = TableRow>) -> Table {
    // A narrow screen has room for only the latest samples.
    let later = |place: usize| names.len() - place;
    let sample = |(place, name): (usize, &String)| {
        let column = Column::right(11, name).gap(2);
        if later(place) == 1 { column } else { column.from(NAMES + later(place) * SAMPLE) }
    };
    let columns = names.iter().enumerate().map(sample);
    let mut table = Table::new(columns.chain([Column::left(0, "").gap(2).cut(Cut::Wrapped)]));
    for row in rows {
        let shown = table.row(row.bytes.into_iter().map(words::cell), Cell::from(row.label));
        if row.is_part {
            shown.painted(Tone::Dim);
        }
    }
    table
}
