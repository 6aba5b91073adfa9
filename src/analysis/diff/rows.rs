//! The differences of two attributions, row by row.

use super::lives::Lives;
use super::matching::{Match, Name, match_rows};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::OTHER;
use crate::sorting::SortRows;
use serde::Serialize;
use std::cmp::Reverse;

/// A row of one side. Sums wrap around, as everywhere; recordings that make them do so are marked as overflowing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SideRow {
    pub(super) label: String,
    pub(super) bytes: i64,
    pub(super) blocks: u64,
    pub(super) inferred: bool,
    pub(super) stack: Vec<String>,
}

impl SideRow {
    fn is_idle(&self) -> bool {
        (self.bytes, self.blocks) == (0, 0)
    }
}

names! {
    /// The files that contain a row.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RowStatus"))]
    #[serde(rename_all = "snake_case")]
    pub enum Fate {
        /// On both sides.
        #[default]
        Changed = "changed",
        /// Only in the new file.
        New = "new",
        /// Only in the base.
        Vanished = "vanished",
    }
}

/// A group on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffRow {
    /// The group, as the new file names it; as the base names it if it has vanished.
    pub label: String,
    /// Its label in the base, if it differs because the line has moved; otherwise null.
    pub base_label: Option<String>,
    /// Whether it is on both sides.
    #[serde(rename = "status")]
    pub fate: Fate,
    /// Its bytes in the base. Negative only if a recording contradicts itself.
    pub base_bytes: i64,
    /// Its bytes in the new file.
    pub new_bytes: i64,
    /// The difference.
    pub delta_bytes: i64,
    /// Its blocks in the base; segments if the metric is `reserved`.
    pub base_blocks: u64,
    /// Its blocks in the new file.
    pub new_blocks: u64,
    /// Whether the label is inferred, in either file.
    pub inferred: bool,
    /// The stack with the most bytes in the group, innermost frame first; of the base if it has vanished.
    pub stack: Vec<String>,
    /// The fate of its blocks. Left out unless both sides are instants of one recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<Lives>,
}

impl DiffRow {
    /// `None` if nothing is held on either side.
    fn of(pair: Match, base: &[SideRow], new: &[SideRow]) -> Option<Self> {
        let none = SideRow::default();
        let from = pair.base.and_then(|index| base.get(index)).filter(|row| !row.is_idle());
        let to = pair.new.and_then(|index| new.get(index)).filter(|row| !row.is_idle());
        let shown = to.or(from)?;
        let base_label = from.map(|row| &row.label).filter(|label| **label != shown.label);
        let (from_row, to_row) = (from.unwrap_or(&none), to.unwrap_or(&none));
        Some(Self {
            label: shown.label.clone(),
            base_label: base_label.cloned(),
            fate: match (from, to) {
                (None, _) => Fate::New,
                (_, None) => Fate::Vanished,
                _ => Fate::Changed,
            },
            base_bytes: from_row.bytes,
            new_bytes: to_row.bytes,
            delta_bytes: to_row.bytes.wrapping_sub(from_row.bytes),
            base_blocks: from_row.blocks,
            new_blocks: to_row.blocks,
            inferred: from_row.inferred || to_row.inferred,
            stack: shown.stack.clone(),
            lives: None,
        })
    }

    fn is_unchanged(&self) -> bool {
        self.fate == Fate::Changed && (self.base_bytes, self.base_blocks) == (self.new_bytes, self.new_blocks)
    }
}

/// Rows with the same bytes and blocks on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unchanged {
    /// Their number.
    pub rows: usize,
    /// Their bytes on either side.
    pub bytes: i64,
}

/// The rows that differ, the largest change first and growth before what shrank as much; and the others.
pub(super) fn of(by: GroupBy, base: &[SideRow], new: &[SideRow]) -> (Vec<DiffRow>, Unchanged) {
    let matches = match_rows(by, &names(base), &names(new));
    let rows = matches.into_iter().filter_map(|pair| DiffRow::of(pair, base, new));
    let (same, mut rows): (Vec<DiffRow>, Vec<DiffRow>) = rows.partition(DiffRow::is_unchanged);
    let bytes = same.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.new_bytes));
    rows.sort_rows_by(|a, b| {
        let rank = |row: &DiffRow| (Reverse(row.delta_bytes.unsigned_abs()), Reverse(row.delta_bytes));
        rank(a).cmp(&rank(b)).then_with(|| a.label.cmp(&b.label)).then_with(|| a.stack.cmp(&b.stack))
    });
    (rows, Unchanged { rows: same.len(), bytes })
}

fn names(rows: &[SideRow]) -> Vec<Name<'_>> {
    rows.iter().map(|row| Name { label: &row.label, stack: &row.stack }).collect()
}

/// Keeps the first rows and sums up the rest in one labeled [`OTHER`], except for inclusive rows; returns the number of
/// the rest.
pub(super) fn keep_top(rows: &mut Vec<DiffRow>, top: Option<usize>, inclusive: bool) -> usize {
    let Some(top) = top.filter(|&top| top < rows.len()) else { return 0 };
    let rest = rows.split_off(top);
    if !inclusive {
        let sum = |bytes: fn(&DiffRow) -> i64| rest.iter().map(bytes).fold(0, i64::wrapping_add);
        rows.push(DiffRow {
            label: OTHER.to_owned(),
            base_label: None,
            fate: Fate::Changed,
            base_bytes: sum(|row| row.base_bytes),
            new_bytes: sum(|row| row.new_bytes),
            delta_bytes: sum(|row| row.delta_bytes),
            base_blocks: rest.iter().map(|row| row.base_blocks).sum(),
            new_blocks: rest.iter().map(|row| row.new_blocks).sum(),
            inferred: rest.iter().any(|row| row.inferred),
            stack: Vec::new(),
            lives: rest.iter().filter_map(|row| row.lives).reduce(Lives::plus),
        });
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_holds_nothing_is_not_one_that_moved() {
        let row = |label: &str, blocks: u64| SideRow {
            label: label.to_owned(),
            bytes: 512 * blocks as i64,
            blocks,
            ..SideRow::default()
        };
        let fates = |base: &[SideRow], new: &[SideRow]| -> Vec<(String, Fate)> {
            of(GroupBy::Site, base, new).0.into_iter().map(|row| (row.label, row.fate)).collect()
        };
        let [here, there] = ["m.py:10 forward", "m.py:14 forward"];
        assert_eq!(fates(&[row(here, 1)], &[row(there, 2)]), [(there.to_owned(), Fate::Changed)], "it moved");
        let found = fates(&[row(here, 1), row(there, 0)], &[row(there, 2), row(here, 0)]);
        assert_eq!(found, [(there.to_owned(), Fate::New), (here.to_owned(), Fate::Vanished)]);
    }
}
