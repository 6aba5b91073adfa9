//! From instants back to columns.

use crate::replay::Instant;

/// For each instant, the first column that shows it or a later one.
pub(crate) struct ColumnOf {
    /// The instant of the first row of the table.
    first: Instant,
    table: Vec<u32>,
}

impl ColumnOf {
    /// From the instant of each column; these never decrease.
    pub(crate) fn new(columns: impl Iterator<Item = Instant> + Clone) -> Self {
        let first = columns.clone().next().unwrap_or(0);
        let mut table = Vec::new();
        for (index, instant) in columns.enumerate() {
            let length = (instant - first) as usize + 1;
            if length > table.len() {
                table.resize(length, index as u32);
            }
        }
        Self { first, table }
    }

    pub(crate) fn column(&self, instant: Instant, columns: usize) -> usize {
        match instant.checked_sub(self.first) {
            None => 0,
            Some(offset) => self.table.get(offset as usize).map_or(columns, |&column| column as usize),
        }
    }
}
