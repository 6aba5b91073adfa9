//! The memory in each column, by group.

use super::columns::Columns;
use super::grouped::{Grouped, SceneGroup};
use super::lives::Lives;
use crate::facts::grouping::attribution::OTHER;
use crate::replay::Instant;
use crate::sorting::SortRows;
use std::cmp::Reverse;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BandedColumns {
    pub instants: Vec<Instant>,
    /// Bytes of all bands in each column: the counter, unless the recording contradicts itself.
    pub totals: Vec<u64>,
    /// From the bottom of the stack up: the group with the most memory over all columns first; the last one may
    /// contain all other groups, as [`OTHER`].
    pub bands: Vec<SceneBand>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SceneBand {
    pub group: SceneGroup,
    pub bytes: Vec<u64>,
}

impl BandedColumns {
    pub(super) fn of(lives: &Lives, grouped: &Grouped, columns: Columns, top: usize) -> Self {
        let count = columns.instants.len();
        let mut areas = vec![0u128; grouped.groups.len()];
        let mut seen = Vec::new();
        let mut totals = vec![0u64; count + 1];
        lives.seen(&columns.instants, |life| {
            let Some(&group) = grouped.of.get(life.index as usize) else { return };
            areas[group as usize] += u128::from(life.bytes) * u128::from(life.to - life.from);
            enter(&mut totals, life.from, life.to, life.bytes);
            seen.push((group, life));
        });
        let mut largest: Vec<usize> = (0..areas.len()).filter(|&group| areas[group] > 0).collect();
        largest.sort_rows_by_key(|&group| (Reverse(areas[group]), group));
        // A single remaining group is shown as itself.
        let own = if largest.len() == top + 1 { top + 1 } else { top.min(largest.len()) };
        let has_rest = own < largest.len();
        let mut row_of = vec![own; areas.len()];
        for (row, &group) in largest[..own].iter().enumerate() {
            row_of[group] = row;
        }
        let mut rows = vec![vec![0u64; count + 1]; own + usize::from(has_rest)];
        for (group, life) in seen {
            enter(&mut rows[row_of[group as usize]], life.from, life.to, life.bytes);
        }
        let named = largest[..own].iter().map(|&group| grouped.groups[group].clone());
        let rest = has_rest.then(|| SceneGroup { label: OTHER.to_owned(), ..SceneGroup::default() });
        let bands = named.chain(rest).zip(rows).map(|(group, changes)| SceneBand { group, bytes: sums(changes) });
        Self { bands: bands.collect(), totals: sums(totals), instants: columns.instants }
    }
}

/// Adds bytes that are live from one column up to another. There is one more column than shown, for blocks that stay live.
pub(super) fn enter(changes: &mut [u64], from: u32, to: u32, bytes: u64) {
    if let Some(enters) = changes.get_mut(from as usize) {
        *enters = enters.wrapping_add(bytes);
    }
    if let Some(leaves) = changes.get_mut(to as usize) {
        *leaves = leaves.wrapping_sub(bytes);
    }
}

pub(super) fn sums(mut changes: Vec<u64>) -> Vec<u64> {
    changes.pop();
    let mut sum = 0u64;
    for change in &mut changes {
        sum = sum.wrapping_add(*change);
        *change = sum;
    }
    changes
}
