//! The comparison of devices as a document: a line, and a short table of the differences.

use super::words;
use crate::analysis::peak::comparison::Comparison;
use crate::report::common::document::{Cell, Column, Document, Table, label};
use crate::report::common::notes;
use crate::report::common::words::count;

/// Width of a column of bytes, and the width reserved for a site.
const COLUMN: usize = 12;
const LABEL: usize = 22;

impl Document {
    /// An empty line, and the memory of each device by group.
    pub(crate) fn comparison(&mut self, comparison: &Comparison) {
        self.gap();
        self.title(words::headline(comparison));
        if comparison.rows.is_empty() {
            return;
        }
        let (indexes, furthest) = (words::columns(comparison, usize::MAX), words::columns(comparison, 0));
        // If there is no room for all devices, the two that differ the most.
        let all = LABEL + indexes.len() * (COLUMN + 1);
        let columns = indexes.iter().map(|&index| {
            let from = if furthest.contains(&index) { 0 } else { all };
            Column::right(COLUMN, &words::column(comparison, index)).from(from)
        });
        let mut table = Table::new(columns.chain([Column::label(comparison.by.name())]));
        let peaks = indexes.iter().map(|&index| {
            let device = comparison.devices[index];
            Cell::marked(words::bound(device), device.bytes)
        });
        table.row(peaks, words::compared(comparison)).is_total = true;
        for row in &comparison.rows {
            let bytes = indexes.iter().map(|&index| Cell::size(row.bytes[index]));
            table.row(bytes, label(comparison.by.name(), &row.label, row.inferred));
        }
        self.table(table);
        let hidden = indexes.iter().filter(|index| !furthest.contains(index)).count();
        if hidden > 0 {
            let left_out = format!("{} left out; a wider terminal shows more", count(hidden, "device"));
            self.narrow(all, |document| document.legend(left_out));
        }
        if comparison.rows.iter().any(|row| row.inferred) {
            self.legend(notes::inferred(comparison.by));
        }
    }
}
