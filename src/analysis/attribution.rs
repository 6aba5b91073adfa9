//! Who holds the memory at an instant.

use super::annotations::Annotations;
use super::filter::Filter;
use super::grouping::{FILTERED, GroupBy, Grouper, Holder, Key};
use super::sites::Sites;
use crate::model::{Snapshot, StackId};
use crate::replay::{History, Instant, Metric};
use indexmap::IndexMap;
use std::collections::HashMap;

/// Bytes held by one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The group.
    pub label: String,
    /// Bytes of the metric.
    pub bytes: u64,
    /// Blocks; segments for [`Metric::Reserved`].
    pub blocks: u64,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// The stack with most bytes in the group, innermost frame first; empty where stacks are not what is grouped.
    pub stack: Vec<String>,
}

/// Label of the row that [`Attribution::keep_top`] sums up the rest in.
pub const OTHER: &str = "(other)";
/// Who holds the memory at an instant. Rows sum to the total, unless grouping is inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// What rows stand for.
    pub by: GroupBy,
    /// Bytes of the metric at the instant.
    pub total_bytes: u64,
    /// Groups, largest first.
    pub rows: Vec<Row>,
}

/// What is added up for one key.
#[derive(Default)]
struct Group {
    bytes: u64,
    blocks: u64,
    /// Bytes per stack, to pick the row's example.
    stacks: IndexMap<StackId, u64>,
}

impl Group {
    fn add(&mut self, holder: &Holder) {
        self.bytes = self.bytes.wrapping_add(holder.bytes);
        self.blocks += 1;
        let stack_bytes = self.stacks.entry(holder.stack).or_default();
        *stack_bytes = stack_bytes.wrapping_add(holder.bytes);
    }
}

impl Attribution {
    /// Groups everything that counts for `metric` at an instant.
    pub fn of(
        sites: &Sites<'_>,
        annotations: &Annotations,
        filter: &Filter,
        snapshot: &Snapshot,
        history: &History,
        at: (Metric, Instant),
        by: GroupBy,
    ) -> Self {
        let grouper = Grouper::new(sites, annotations, filter, snapshot, history, by);
        let (total_bytes, rows) = grouped_rows(&grouper, snapshot, history, at);
        Self { by, total_bytes, rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    /// Keeps the `top` largest rows and sums up the rest in one labelled [`OTHER`]. Inclusive rows overlap, so there
    /// the rest is dropped.
    pub fn keep_top(&mut self, top: usize) {
        if self.rows.len() <= top {
            return;
        }
        let rest = self.rows.split_off(top);
        if self.by.is_inclusive() {
            return;
        }
        self.rows.push(Row {
            label: OTHER.to_owned(),
            bytes: rest.iter().fold(0, |sum: u64, row| sum.wrapping_add(row.bytes)),
            blocks: rest.iter().map(|row| row.blocks).sum(),
            inferred: false,
            stack: Vec::new(),
        });
    }
}

/// The rows of an attribution, largest first, with their keys, and the bytes of all blocks.
pub(super) fn grouped_rows(
    grouper: &Grouper<'_>,
    snapshot: &Snapshot,
    history: &History,
    at: (Metric, Instant),
) -> (u64, Vec<(Key, Row)>) {
    let (metric, instant) = at;
    let mut groups: IndexMap<Key, Group> = IndexMap::new();
    let mut known: HashMap<(StackId, bool), Vec<usize>> = HashMap::new();
    let mut total = 0u64;
    let counts = |born, gone| born <= instant && instant < gone;
    Holder::visit(snapshot, history, metric, counts, |holder| {
        total = total.wrapping_add(holder.bytes);
        let mut enter = || -> Vec<usize> {
            let index = |key| {
                let entry = groups.entry(key);
                let index = entry.index();
                entry.or_default();
                index
            };
            grouper.keys(holder).into_iter().map(index).collect()
        };
        let unshared;
        let indexes = if let Some(shared) = grouper.shared(holder) {
            known.entry(shared).or_insert_with(enter)
        } else {
            unshared = enter();
            &unshared
        };
        for &index in indexes {
            groups[index].add(holder);
        }
    });
    let mut rows = rows(grouper, groups);
    rows.sort_by(|(_, a), (_, b)| {
        b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)).then_with(|| a.stack.cmp(&b.stack))
    });
    (total, rows)
}

/// Rows with labels. Where two keys of different files would share one, both show their whole path.
fn rows(grouper: &Grouper<'_>, groups: IndexMap<Key, Group>) -> Vec<(Key, Row)> {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for key in groups.keys() {
        *uses.entry(grouper.label(key, false)).or_default() += 1;
    }
    let row = |(key, group): (Key, Group)| {
        let short = grouper.label(&key, false);
        let label = if uses.get(&short).is_some_and(|&uses| uses > 1) { grouper.label(&key, true) } else { short };
        let on_stacks = grouper.is_by_stack() && key != Key::Special(FILTERED);
        let example = group.stacks.iter().max_by_key(|&(&stack, &bytes)| (bytes, std::cmp::Reverse(stack)));
        let stack =
            example.filter(|_| on_stacks).map(|(&stack, _)| grouper.sites.stack_labels(stack)).unwrap_or_default();
        (key, Row { label, bytes: group.bytes, blocks: group.blocks, inferred: false, stack })
    };
    groups.into_iter().map(row).collect()
}
