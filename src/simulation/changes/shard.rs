//! Keeps one rank's share of the optimizer and of gradients: stages 1 and 2 of `ZeRO`.

use super::rewrite::{Patch, Rewrite, is_free};
use super::trained::Trained;
use crate::model::bytes::Bytes;
use crate::simulation::{Step, StepKind};
use std::collections::{BTreeMap, HashMap};

/// What happens to the gradients of other ranks' parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherGradients {
    AsRecorded,
    /// The rank's optimizer frees only its own gradients, so the others stay live.
    Stay,
    /// They are freed as soon as they are reduced.
    Gone,
}

/// Which parameters belong to a rank: by size, for each parameter of that size in the order of parameters.
struct Share {
    is_own: BTreeMap<u64, Vec<bool>>,
    bytes: u64,
}

impl Share {
    /// Parameters assigned as by `ZeroRedundancyOptimizer`: the largest first, each to the rank with the fewest bytes.
    /// The result is the share of the rank with the most bytes.
    fn of(sizes: &[u64], ranks: u32) -> Self {
        let mut loads = vec![0u64; ranks as usize];
        let rank_of = |loads: &[u64]| (0..loads.len()).min_by_key(|&rank| loads[rank]).unwrap_or(0);
        let mut owners = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let rank = rank_of(&loads);
            loads[rank] = loads[rank].saturating_add(size);
            owners.push(rank);
        }
        let most = (0..loads.len()).rev().max_by_key(|&rank| loads[rank]).unwrap_or(0);
        let mut is_own: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
        for (&size, owner) in sizes.iter().zip(owners) {
            is_own.entry(size).or_default().push(owner == most);
        }
        Self { is_own, bytes: loads[most] }
    }

    /// Whether the parameter of the `index`-th of `all` blocks of a size belongs to the rank: these blocks come in
    /// rounds over all parameters of that size.
    fn has(&self, size: u64, index: usize, all: usize) -> bool {
        let Some(is_own) = self.is_own.get(&size) else { return true };
        let place =
            if all.is_multiple_of(is_own.len()) { index % is_own.len() } else { index * is_own.len() / all.max(1) };
        is_own[place]
    }
}

/// Keeps one rank's share of the states; returns the assumption.
pub(super) fn apply(rewrite: &mut Rewrite, trained: &Trained, ranks: u32, others: OtherGradients) -> String {
    if rewrite.starts_with(|allocation| trained.states.binary_search(&allocation).is_ok()) {
        rewrite.request_start();
    }
    let share = Share::of(&trained.sizes(), ranks);
    let mut patch = Patch::default();
    let groups = trained.groups(&rewrite.program);
    let mut of_size: BTreeMap<u64, Vec<Vec<u32>>> = BTreeMap::new();
    for group in groups {
        let Some(first) = group.first() else { continue };
        of_size.entry(first.bytes).or_default().push(group.iter().map(|step| step.allocation).collect());
    }
    for update in &trained.scratch {
        let mut scratch: BTreeMap<u64, Vec<Vec<u32>>> = BTreeMap::new();
        let is_scratch = |step: &&Step| step.kind == StepKind::Alloc && update.binary_search(&step.allocation).is_ok();
        for step in rewrite.program.steps.iter().filter(is_scratch) {
            scratch.entry(step.bytes).or_default().push(vec![step.allocation]);
        }
        leave(&share, &scratch, &mut patch);
    }
    leave(&share, &of_size, &mut patch);
    if others != OtherGradients::AsRecorded {
        drop_gradients(rewrite, trained, &share, others, &mut patch);
    }
    rewrite.apply(patch);
    let gradients = match others {
        OtherGradients::AsRecorded => "gradients are not sharded and are freed as recorded",
        OtherGradients::Stay => {
            "the gradients of other ranks' parameters stay, since the rank's optimizer frees only its own"
        }
        OtherGradients::Gone => {
            "the gradients of other ranks' parameters are freed as soon as they are produced; the reduction buckets are not simulated"
        }
    };
    format!(
        "the figures are for the rank, out of {ranks}, that holds the most: {} of the {} of trainable parameters; each parameter is \
         assigned to one rank, the largest first, as in ZeroRedundancyOptimizer; {gradients}",
        Bytes(share.bytes),
        Bytes(trained.bytes()),
    )
}

fn leave(share: &Share, of_size: &BTreeMap<u64, Vec<Vec<u32>>>, patch: &mut Patch) {
    for (&size, all) in of_size {
        let others = all.iter().enumerate().filter(|&(index, _)| !share.has(size, index, all.len()));
        others.flat_map(|(_, allocations)| allocations).for_each(|&allocation| patch.remove(allocation));
    }
}

/// Frees gradients of other ranks' parameters when the node that computes them is done, in all backward passes, or in all
/// except the first: there they stay, and later gradients are added to them.
fn drop_gradients(rewrite: &Rewrite, trained: &Trained, share: &Share, others: OtherGradients, patch: &mut Patch) {
    let is_gradient = |step: &&Step| {
        step.kind == StepKind::Alloc
            && rewrite
                .origin(step.allocation)
                .is_some_and(|origin| trained.all_gradients.binary_search(&origin).is_ok())
    };
    let nodes = Nodes::of(&rewrite.program.steps);
    let mut seen: HashMap<(u64, usize), usize> = HashMap::new();
    let passes = passes(trained, rewrite.program.steps.iter().filter(is_gradient));
    for (pass, gradients) in passes.into_iter().enumerate() {
        let mut of_size: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        // Backward allocates them in the reverse order of parameters.
        for step in gradients.into_iter().rev() {
            of_size.entry(step.bytes).or_default().push(step);
        }
        for (&size, all) in &of_size {
            for (index, step) in all.iter().enumerate().filter(|&(index, _)| !share.has(size, index, all.len())) {
                let is_first = others == OtherGradients::Stay && *seen.entry((size, index)).or_insert(pass) == pass;
                if is_first {
                    patch.keep(step.allocation);
                } else {
                    patch.free_at(nodes.end_of(step.allocation), step.allocation, step.entry);
                }
            }
        }
    }
}

/// Gradients, by the update that they are computed for.
fn passes<'s>(trained: &Trained, gradients: impl Iterator<Item = &'s Step>) -> Vec<Vec<Step>> {
    let mut passes: Vec<Vec<Step>> = vec![Vec::new(); trained.updates.len() + 1];
    for step in gradients {
        let pass = trained.updates.partition_point(|update| update.start <= step.entry);
        passes[pass].push(*step);
    }
    passes
}

pub(super) struct Nodes<'s> {
    steps: &'s [Step],
    made: HashMap<u32, usize>,
}

impl<'s> Nodes<'s> {
    pub fn of(steps: &'s [Step]) -> Self {
        let allocs = steps.iter().enumerate().filter(|(_, step)| step.kind == StepKind::Alloc);
        Self { steps, made: allocs.map(|(place, step)| (step.allocation, place)).collect() }
    }

    /// The place at which the node that computed a gradient, and added it to an earlier one, is done: it allocates its
    /// results, releases its inputs and saved tensors, and then the added gradient. The next node starts with a request.
    pub fn end_of(&self, gradient: u32) -> usize {
        let made = self.made.get(&gradient).copied().unwrap_or(self.steps.len());
        let rest = || self.steps.iter().enumerate().skip(made + 1);
        let is_older = |allocation: u32| self.made.get(&allocation).is_none_or(|&place| place < made);
        let lets_go = rest().find(|(_, step)| is_free(step.kind) && is_older(step.allocation));
        let lets_go = lets_go.map_or(self.steps.len(), |(place, _)| place);
        let next = self.steps.iter().enumerate().skip(lets_go).find(|(_, step)| !is_free(step.kind));
        next.map_or(self.steps.len(), |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_dealt_out_the_largest_first() {
        let share = Share::of(&[10, 6, 5, 5, 1], 2);
        assert_eq!(share.bytes, 15, "10 and 5; the others are 6, 5 and 1");
        assert!(share.has(10, 0, 1) && !share.has(6, 0, 1) && !share.has(5, 0, 2) && share.has(5, 1, 2));
        // Two rounds over the parameters of that size.
        assert!(!share.has(5, 2, 4) && share.has(5, 3, 4));
    }
}
