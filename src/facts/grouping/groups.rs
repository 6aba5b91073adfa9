//! Groups in the order of their first blocks, and the labels of their rows.

use super::grouper::{Grouper, Shared};
use super::holder::Holder;
use super::key::Key;
use super::labels::FILTERED;
use crate::facts::code::sites::{CodeOrigin, LONG_STACKS, LONGEST_STACK, SHORTENED_STACK};
use crate::replay::Metric;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The label of a row, and an example of its stacks.
pub(crate) struct RowHead {
    pub(crate) label: String,
    pub(crate) inferred: bool,
    pub(crate) stack: Vec<String>,
}

/// Groups in the order of their first holders. Analyses keep their own sums for each group.
pub(crate) struct Groups<'g> {
    pub(crate) grouper: &'g Grouper<'g>,
    keys: IndexSet<Key>,
    /// The groups for each set of shared properties.
    known: HashMap<Shared, Vec<usize>, RandomState>,
    /// Groups of the last holder without shared properties.
    last: Vec<usize>,
}

impl<'g> Groups<'g> {
    pub(crate) fn new(grouper: &'g Grouper<'g>) -> Self {
        Self { grouper, keys: IndexSet::new(), known: HashMap::default(), last: Vec::new() }
    }

    /// The groups that a holder counts in: one, or under [`super::GroupBy::Function`] every function on its stack.
    pub(crate) fn of(&mut self, holder: &Holder) -> &[usize] {
        let Self { grouper, keys, known, last } = self;
        let mut enter = || grouper.keys(holder).into_iter().map(|key| keys.insert_full(key).0).collect();
        if let Some(shared) = grouper.shared(holder) {
            known.entry(shared).or_insert_with(enter)
        } else {
            *last = enter();
            last
        }
    }

    /// The groups that the allocation with this index counts in.
    pub(crate) fn of_allocation(&mut self, index: usize) -> &[usize] {
        match Holder::of_allocation(self.grouper.track, Metric::Active, index) {
            Some(holder) => self.of(&holder),
            None => &[],
        }
    }

    /// The code that allocated the allocation with this index.
    pub(crate) fn origin_of(&self, index: usize) -> CodeOrigin {
        let holder = Holder::of_allocation(self.grouper.track, Metric::Active, index);
        holder.map(|holder| self.grouper.origin(&holder)).unwrap_or_default()
    }

    /// The groups so far.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// Whether a group contains blocks that a filter excludes.
    pub(crate) fn is_filtered_out(&self, group: usize) -> bool {
        self.keys.get_index(group) == Some(&Key::Special(FILTERED))
    }

    /// The groups so far, with the labels of their rows and the stack with the most bytes in each, given each group's bytes
    /// by origin. If two keys of different files would have the same label, both labels get the whole path.
    pub(crate) fn heads<I: Iterator<Item = (CodeOrigin, u64)>>(
        &self,
        bytes_by_origin: impl Fn(usize) -> I,
    ) -> Vec<(Key, RowHead)> {
        let grouper = self.grouper;
        let mut uses: HashMap<String, usize> = HashMap::new();
        for key in &self.keys {
            *uses.entry(grouper.label(key, false)).or_default() += 1;
        }
        let mut length = 0;
        // Rows with the same deep stack share the example, which is built once.
        let mut examples: HashMap<(CodeOrigin, usize), Vec<String>, RandomState> = HashMap::default();
        let head = |(index, key): (usize, &Key)| {
            let short = grouper.label(key, false);
            let label = if uses.get(&short).is_some_and(|&uses| uses > 1) { grouper.label(key, true) } else { short };
            let on_stacks = grouper.by.is_by_stack() && *key != Key::Special(FILTERED);
            let example = bytes_by_origin(index).max_by_key(|&(origin, bytes)| (bytes, Reverse(origin)));
            let longest = if length < LONG_STACKS { LONGEST_STACK } else { SHORTENED_STACK };
            let labels = |(origin, _)| {
                let known = examples.entry((origin, longest));
                known.or_insert_with(|| grouper.sites.origin_labels(origin, longest)).clone()
            };
            let stack = example.filter(|_| on_stacks).map(labels);
            length += stack.iter().flatten().map(String::len).sum::<usize>();
            (key.clone(), RowHead { label, inferred: key.is_inferred(), stack: stack.unwrap_or_default() })
        };
        self.keys.iter().enumerate().map(head).collect()
    }
}
