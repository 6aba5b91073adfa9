//! NVTX ranges, and the memory while they are open.

use super::blocks::Blocks;
use crate::model::nsys::{NsysProfile, Process};
use crate::sorting::SortRows;
use indexmap::IndexMap;
use serde::Serialize;

/// NVTX ranges of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NsysRange"))]
pub struct RangeRow {
    pub name: String,
    /// Number of ranges.
    pub count: u64,
    /// Highest number of bytes while one of them was open, those from before included.
    pub highest_bytes: u64,
    /// Bytes that were allocated while they were open, by any thread of the process.
    pub allocated_bytes: u64,
    /// Bytes that were freed while they were open.
    pub freed_bytes: u64,
}

/// The ranges of a process by name, those with the most memory first.
pub(super) fn rows(profile: &NsysProfile, process: Process, blocks: &Blocks) -> Vec<RangeRow> {
    let maxima = Maxima::of(&blocks.after);
    let mut rows: IndexMap<&str, RangeRow> = IndexMap::new();
    for range in profile.ranges.iter().filter(|range| range.process == process) {
        let from = blocks.times.partition_point(|&time| time < range.start_ns);
        let to = match range.end_ns {
            Some(end) => blocks.times.partition_point(|&time| time <= end),
            None => blocks.times.len(),
        };
        let to = to.max(from);
        let before = |sums: &[u64], place: usize| place.checked_sub(1).map_or(0, |place| sums[place]);
        let highest = before(&blocks.after, from).max(maxima.of_range(from, to));
        let row = rows.entry(&range.name).or_default();
        row.count += 1;
        row.highest_bytes = row.highest_bytes.max(highest);
        row.allocated_bytes += before(&blocks.allocated, to) - before(&blocks.allocated, from);
        row.freed_bytes += before(&blocks.freed, to) - before(&blocks.freed, from);
    }
    let named = |(name, row): (&str, RangeRow)| RangeRow { name: name.to_owned(), ..row };
    let mut rows: Vec<RangeRow> = rows.into_iter().map(named).collect();
    rows.sort_rows_by_key(|row| std::cmp::Reverse((row.highest_bytes, row.allocated_bytes)));
    rows
}

/// The highest of any consecutive values: a tree whose second half contains the values, and in which node `n` has the
/// maximum of nodes `2n` and `2n + 1`.
struct Maxima(Vec<u64>);

impl Maxima {
    fn of(values: &[u64]) -> Self {
        let mut tree = vec![0; values.len()];
        tree.extend_from_slice(values);
        for node in (1..values.len()).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        Self(tree)
    }

    /// The highest value from `from` up to `to`; 0 if there is none.
    fn of_range(&self, from: usize, to: usize) -> u64 {
        let values = self.0.len() / 2;
        let (mut from, mut to, mut highest) = (from + values, to + values, 0);
        while from < to {
            if from % 2 == 1 {
                highest = highest.max(self.0[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                highest = highest.max(self.0[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_of_all_ranges() {
        let values: Vec<u64> = (0..37).map(|at| at * 7919 % 101).collect();
        let maxima = Maxima::of(&values);
        for from in 0..values.len() {
            for to in from..=values.len() {
                assert_eq!(maxima.of_range(from, to), values[from..to].iter().copied().max().unwrap_or(0));
            }
        }
    }
}
