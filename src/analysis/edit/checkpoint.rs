//! `torch.utils.checkpoint` around calls of functions.

use super::draft::{Changes, Draft, free, is_free};
use crate::analysis::checkpoint::{Chosen, Gap, Recompute};
use crate::analysis::simulate::{Step, StepKind};
use crate::replay::{History, NEVER};
use std::collections::HashMap;

/// Checkpoints calls: what they keep for backward is freed when they are over, and they run again before it.
pub(super) fn apply(draft: &mut Draft, chosen: &Chosen, history: &History) {
    let places = draft.places(history.entries());
    let end = draft.program.steps.len();
    let place = |instant: u32| places.get(instant as usize).copied().unwrap_or(end);
    let steps = std::mem::take(&mut draft.program.steps);
    let mut changes = Changes::default();
    let mut calls: Vec<&Recompute> = chosen.calls.iter().collect();
    calls.sort_by_key(|call| call.resume);
    // Each thread of the engine has workspaces of its own, made at the first use and never freed.
    if let Some(first) = calls.first() {
        let is_workspace = |step: &&Step| step.kind == StepKind::Alloc && chosen.workspaces.contains(&step.allocation);
        for step in steps.iter().filter(is_workspace) {
            let allocation = draft.add(step.allocation);
            changes.insert(place(first.resume), Step { allocation, entry: first.resume, ..*step });
        }
    }
    for call in calls.into_iter().filter(|call| call.resume != NEVER) {
        let resume = place(call.resume);
        for input in &call.inputs {
            changes.free_at(place(input.to), input.allocation, input.to);
        }
        let (dropped, released): (Vec<Gap>, Vec<Gap>) = call.gaps.iter().partition(|gap| gap.to == call.resume);
        for gap in dropped {
            changes.free_at(place(gap.from), gap.allocation, gap.from);
        }
        let copies = run_again(
            draft,
            &mut changes,
            &steps[place(call.start)..place(call.stop).max(place(call.start))],
            resume,
            (call, history),
        );
        for (allocation, copy) in copies {
            if call.kept.binary_search(&allocation).is_err() {
                changes.insert(resume, free(copy, call.resume));
                continue;
            }
            match released.iter().find(|gap| gap.allocation == allocation) {
                Some(gap) => changes.insert(place(gap.from), free(copy, gap.from)),
                None => changes.inherit(allocation, copy),
            }
        }
    }
    draft.program.steps = steps;
    draft.change(changes);
}

/// Runs the steps of a call again, in front of another step; what of it is there in the end, with the number it has now.
fn run_again(
    draft: &mut Draft,
    changes: &mut Changes,
    steps: &[Step],
    resume: usize,
    (call, history): (&Recompute, &History),
) -> Vec<(u32, u32)> {
    let mut copies: HashMap<u32, u32> = HashMap::new();
    // What is never freed was made at the first use, and is there already.
    let is_freed =
        |allocation: u32| history.allocations.get(allocation as usize).is_some_and(|made| made.freed != NEVER);
    for step in steps.iter().filter(|step| call.born.contains(&step.allocation)) {
        let again = |allocation: u32| Step { allocation, entry: call.resume, ..*step };
        if step.kind == StepKind::Alloc && is_freed(step.allocation) {
            let copy = draft.add(step.allocation);
            copies.insert(step.allocation, copy);
            changes.insert(resume, again(copy));
        } else if is_free(step.kind) {
            let copy = match step.kind {
                StepKind::RequestFree => copies.get(&step.allocation).copied(),
                _ => copies.remove(&step.allocation),
            };
            if let Some(copy) = copy {
                changes.insert(resume, again(copy));
            }
        }
    }
    let mut left: Vec<(u32, u32)> = copies.into_iter().collect();
    left.sort_unstable();
    left
}
