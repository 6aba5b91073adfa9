//! `torch.utils.checkpoint` around calls of functions.

use super::rewrite::{Patch, Rewrite, free, is_free};
use super::{Chosen, Gap, Recompute};
use crate::replay::{History, NEVER};
use crate::simulation::{Step, StepKind};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Checkpoints calls: tensors that they save for backward are freed when they end, and the calls are recomputed before
/// their backward.
pub(super) fn apply(rewrite: &mut Rewrite, chosen: &Chosen, history: &History) {
    let places = rewrite.places(rewrite.program.until.unwrap_or(history.entries()));
    let end = rewrite.program.steps.len();
    let place = |instant: u32| places.get(instant as usize).copied().unwrap_or(end);
    let steps = Arc::clone(&rewrite.program.steps);
    let mut patch = Patch::default();
    let mut calls: Vec<&Recompute> = chosen.calls.iter().map(Arc::as_ref).collect();
    calls.sort_rows_by_key(|call| call.resume);
    // Each thread of the autograd engine has its own workspaces, allocated at the first use and never freed.
    let mut workspaces: HashMap<Option<u32>, Vec<Step>> = HashMap::new();
    for workspace in &chosen.workspaces {
        let is_it = |step: &&Step| step.kind == StepKind::Alloc && step.allocation == workspace.like;
        workspaces.entry(workspace.behind).or_default().extend(steps.iter().find(is_it));
    }
    // An input of several calls stays live until the first of these calls is recomputed, which happens last.
    let mut inputs: BTreeMap<u32, u32> = BTreeMap::new();
    for input in calls.iter().flat_map(|call| &call.inputs) {
        let until = inputs.entry(input.allocation).or_default();
        *until = input.to.max(*until);
    }
    for (&allocation, &until) in &inputs {
        patch.free_at(place(until), allocation, until);
    }
    for call in calls {
        // If no backward follows, freed blocks are not recomputed.
        let comes_back = call.resume != NEVER;
        let is_dropped = |gap: &&Gap| !comes_back || gap.to == call.resume;
        let (dropped, released): (Vec<&Gap>, Vec<&Gap>) = call.gaps.iter().partition(is_dropped);
        for gap in dropped {
            patch.free_at(place(gap.from), gap.allocation, gap.from);
        }
        if !comes_back {
            continue;
        }
        let resume = place(call.resume);
        for workspace in workspaces.remove(&None).unwrap_or_default() {
            let allocation = rewrite.add(workspace.allocation);
            patch.insert(resume, Step { allocation, entry: call.resume, ..workspace });
        }
        let steps = &steps[place(call.start)..place(call.stop).max(place(call.start))];
        let copies = Again { rewrite, patch: &mut patch, resume, call, history }.run(steps, &mut workspaces);
        for (allocation, copy) in copies {
            if call.kept.binary_search(&allocation).is_err() {
                patch.insert(resume, free(copy, call.resume));
                continue;
            }
            match released.iter().find(|gap| gap.allocation == allocation) {
                Some(gap) => patch.insert(place(gap.from), free(copy, gap.from)),
                None => patch.inherit(allocation, copy),
            }
        }
    }
    rewrite.apply(patch);
}

/// A recomputed call before another step.
struct Again<'a> {
    rewrite: &'a mut Rewrite,
    patch: &'a mut Patch,
    resume: usize,
    call: &'a Recompute,
    history: &'a History,
}

impl Again<'_> {
    /// Runs the steps of the call again. Returns which of its blocks are live at the end, with their new numbers. Workspaces
    /// are allocated only once, identified by what precedes them.
    fn run(&mut self, steps: &[Step], workspaces: &mut HashMap<Option<u32>, Vec<Step>>) -> Vec<(u32, u32)> {
        let mut copies: HashMap<u32, u32, RandomState> = HashMap::default();
        // Blocks that are never freed were allocated at the first use, and are already live.
        let history = self.history;
        let is_freed =
            |allocation: u32| history.allocations.get(allocation as usize).is_some_and(|made| made.freed != NEVER);
        for step in steps.iter().filter(|step| self.call.born.contains(&step.allocation)) {
            if step.kind == StepKind::Alloc && is_freed(step.allocation) {
                let copy = self.alloc(step);
                copies.insert(step.allocation, copy);
                for workspace in workspaces.remove(&Some(step.allocation)).unwrap_or_default() {
                    self.alloc(&workspace);
                }
            } else if is_free(step.kind) {
                let copy = match step.kind {
                    StepKind::RequestFree => copies.get(&step.allocation).copied(),
                    _ => copies.remove(&step.allocation),
                };
                if let Some(copy) = copy {
                    self.patch.insert(self.resume, Step { allocation: copy, entry: self.call.resume, ..*step });
                }
            }
        }
        let mut left: Vec<(u32, u32)> = copies.into_iter().collect();
        left.sort_unstable();
        left
    }

    /// Repeats the request of a step; returns the number of the new allocation.
    fn alloc(&mut self, step: &Step) -> u32 {
        let copy = self.rewrite.add(step.allocation);
        self.patch.insert(self.resume, Step { allocation: copy, entry: self.call.resume, ..*step });
        copy
    }
}
