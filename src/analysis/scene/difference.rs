//! What became more and what less from one instant to another.

use super::grouped::Place;
use crate::facts::device::Device;
use crate::facts::grouping::attribution::{OTHER, Row, grouped_rows};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference, Key};
use crate::replay::{Instant, Metric};
use indexmap::IndexMap;
use std::cmp::Reverse;

/// Two instants of one device, group by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bytes at the one instant and at the other.
    pub totals: (u64, u64),
    /// The largest change first; the last one may be all the others, as [`OTHER`]. Rows sum to the totals, unless groups
    /// overlap.
    pub rows: Vec<DifferenceRow>,
}

/// A group at both instants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DifferenceRow {
    /// The group.
    pub label: String,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// Bytes at the one instant and at the other.
    pub bytes: (u64, u64),
    /// Blocks; segments for [`Metric::Reserved`].
    pub blocks: (u64, u64),
    /// The stack with most bytes in the group, innermost frame first.
    pub stack: Vec<String>,
    /// Its place among groups like it.
    pub place: Place,
}

impl DifferenceRow {
    /// By how much it became more.
    pub fn change(&self) -> i128 {
        i128::from(self.bytes.1) - i128::from(self.bytes.0)
    }
}

impl Difference {
    pub(super) fn of(
        device: &Device<'_>,
        metric: Metric,
        by: GroupBy,
        (from, to): (Instant, Instant),
        top: Option<usize>,
    ) -> Self {
        let filter = Filter::default();
        let grouper = Grouper::new(device, device.deep_sites(), &filter, by).inferring(device, Inference::On, metric);
        let (before, old) = grouped_rows(&grouper, (metric, from));
        let (after, new) = grouped_rows(&grouper, (metric, to));
        let mut rows: IndexMap<Key, DifferenceRow> = IndexMap::new();
        for (key, row) in new {
            let Row { label, inferred, stack, bytes, blocks, .. } = row;
            rows.insert(
                key,
                DifferenceRow {
                    label,
                    inferred,
                    stack,
                    bytes: (0, bytes),
                    blocks: (0, blocks),
                    ..DifferenceRow::default()
                },
            );
        }
        for (key, row) in old {
            let Row { label, inferred, stack, bytes, blocks, .. } = row;
            let fresh = || DifferenceRow { label, inferred, stack, ..DifferenceRow::default() };
            let known = rows.entry(key).or_insert_with(fresh);
            (known.bytes.0, known.blocks.0) = (bytes, blocks);
        }
        let mut rows: Vec<DifferenceRow> = rows.into_values().collect();
        rows.sort_by(|a, b| {
            let rank = |row: &DifferenceRow| (Reverse(row.change().unsigned_abs()), Reverse(row.bytes.1));
            rank(a).cmp(&rank(b)).then_with(|| a.label.cmp(&b.label))
        });
        if let Some(top) = top.filter(|&top| rows.len() > top) {
            let rest = rows.split_off(top);
            // Overlapping rows have no sum.
            if !by.is_inclusive() {
                rows.push(sum(&rest));
            }
        }
        Self { totals: (before, after), rows }
    }
}

fn sum(rows: &[DifferenceRow]) -> DifferenceRow {
    let mut sum = DifferenceRow { label: OTHER.to_owned(), ..DifferenceRow::default() };
    for row in rows {
        sum.bytes = (sum.bytes.0.wrapping_add(row.bytes.0), sum.bytes.1.wrapping_add(row.bytes.1));
        sum.blocks = (sum.blocks.0 + row.blocks.0, sum.blocks.1 + row.blocks.1);
        sum.inferred |= row.inferred;
    }
    sum
}
