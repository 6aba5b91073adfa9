//! The groups that hold the most at each of many instants, in one pass over the blocks.

use crate::facts::grouping::attribution::{OTHER, Row};
use crate::facts::grouping::{Grouper, Groups, Holder, RowHead};
use crate::replay::{Instant, Metric};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaders {
    /// Bytes of all groups together.
    pub total_bytes: u64,
    pub rows: Vec<Row>,
}

/// A block that enters a group, or leaves it, before one of the instants.
struct Passage {
    place: u32,
    group: u32,
    bytes: u64,
    enters: bool,
    /// Whether it is inferred that the block is in the group.
    inferred: bool,
    /// Whether it is the first group of its block, so that it counts in the total.
    first: bool,
}

#[derive(Clone, Copy, Default)]
struct Held {
    bytes: u64,
    blocks: u64,
    /// How many of the blocks are inferred to be in the group.
    inferred: u64,
}

impl Held {
    fn apply(&mut self, change: &Passage, inferred: bool) {
        let inferred = u64::from(inferred);
        if change.enters {
            self.bytes = self.bytes.wrapping_add(change.bytes);
            self.blocks += 1;
            self.inferred += inferred;
        } else {
            self.bytes = self.bytes.wrapping_sub(change.bytes);
            self.blocks -= 1;
            self.inferred -= inferred;
        }
    }
}

/// The `top` largest groups at each of `instants`, in their order.
///
/// Blocks that are live only between two of the instants are skipped; each other block enters its group once and leaves it
/// once. Groups are sorted again only after a change, so the cost is not the product of the numbers of groups and instants.
pub fn of(grouper: &Grouper<'_>, metric: Metric, instants: &[Instant], top: usize) -> Vec<Leaders> {
    let mut distinct = instants.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let mut groups = Groups::new(grouper);
    let changes = changes(grouper, &mut groups, metric, &distinct);
    let heads: Vec<RowHead> = groups.heads(|_| std::iter::empty()).into_iter().map(|(_, head)| head).collect();
    // Among groups of equal size, the first one by label comes first.
    let mut by_label: Vec<usize> = (0..heads.len()).collect();
    by_label.sort_rows_by(|&a, &b| heads[a].label.cmp(&heads[b].label));
    let mut ranks = vec![0; heads.len()];
    for (rank, &group) in by_label.iter().enumerate() {
        ranks[group] = rank;
    }

    let mut held = vec![Held::default(); heads.len()];
    let mut all = Held::default();
    let mut order: BTreeSet<(Reverse<u64>, usize)> = BTreeSet::new();
    let mut changes = changes.iter().peekable();
    let mut touched: Vec<usize> = Vec::new();
    let mut found = Vec::with_capacity(distinct.len());
    for place in 0..distinct.len() as u32 {
        let before = changes.clone();
        while let Some(change) = changes.next_if(|change| change.place == place) {
            touched.push(change.group as usize);
        }
        touched.sort_unstable();
        touched.dedup();
        for &group in &touched {
            order.remove(&(Reverse(held[group].bytes), ranks[group]));
        }
        for change in before.take_while(|change| change.place == place) {
            let group = change.group as usize;
            let inferred = change.inferred || heads[group].inferred;
            held[group].apply(change, inferred);
            if change.first {
                all.apply(change, inferred);
            }
        }
        let in_use = touched.drain(..).filter(|&group| held[group].blocks > 0);
        order.extend(in_use.map(|group| (Reverse(held[group].bytes), ranks[group])));
        let largest: Vec<usize> = order.iter().take(top).map(|&(_, rank)| by_label[rank]).collect();
        found.push(leaders(grouper, &heads, &held, all, &largest, order.len()));
    }
    let at = |instant: &Instant| found[distinct.partition_point(|other| other < instant)].clone();
    instants.iter().map(at).collect()
}

/// The blocks that are held at one of the instants, as they come and go; in the order of the instants.
fn changes(grouper: &Grouper<'_>, groups: &mut Groups<'_>, metric: Metric, instants: &[Instant]) -> Vec<Passage> {
    let mut changes = Vec::new();
    let place = |instant| instants.partition_point(|&other| other < instant) as u32;
    let is_held = |born, gone| place(born) < place(gone);
    Holder::visit(grouper.track, metric, is_held, |holder| {
        let (enters, leaves) = (place(holder.born), place(holder.gone));
        let inferred = grouper.is_inferred(holder);
        for (index, &group) in groups.of(holder).iter().enumerate() {
            let (group, bytes, first) = (group as u32, holder.bytes, index == 0);
            let change = |place, enters| Passage { place, group, bytes, enters, inferred, first };
            changes.push(change(enters, true));
            if (leaves as usize) < instants.len() {
                changes.push(change(leaves, false));
            }
        }
    });
    changes.sort_rows_by_key(|change| change.place);
    changes
}

/// Rows of the largest groups, and one for the rest if groups do not overlap.
fn leaders(
    grouper: &Grouper<'_>,
    heads: &[RowHead],
    held: &[Held],
    all: Held,
    largest: &[usize],
    groups: usize,
) -> Leaders {
    let row = |&group: &usize| Row {
        label: heads[group].label.clone(),
        bytes: held[group].bytes,
        blocks: held[group].blocks,
        inferred: heads[group].inferred || held[group].inferred > 0,
        ..Row::default()
    };
    let mut rows: Vec<Row> = largest.iter().map(row).collect();
    if groups > largest.len() && !grouper.by.is_inclusive() {
        let sum = |of: fn(&Held) -> u64| largest.iter().fold(0, |sum: u64, &group| sum.wrapping_add(of(&held[group])));
        rows.push(Row {
            label: OTHER.to_owned(),
            bytes: all.bytes.wrapping_sub(sum(|held| held.bytes)),
            blocks: all.blocks - sum(|held| held.blocks),
            inferred: all.inferred > sum(|held| held.inferred),
            ..Row::default()
        });
    }
    Leaders { total_bytes: all.bytes, rows }
}
