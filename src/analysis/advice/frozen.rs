//! Weights have gradients that nothing uses, since no optimizer updates them.
//!
//! **Sign:** after at least three steps, the optimizer has states for some weights only; or it frees the gradients of some
//! weights in each step, and others are never freed.
//!
//! **Fix:** call `requires_grad_(False)` on these weights.
//!
//! **Figures** are simulated without these gradients, and without what backward computes only for them. They are a lower bound
//! where forward would also keep less.

use super::kept_over_steps::backward_line;
use super::low_rank;
use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Instant, Metric, NEVER};
use crate::simulation::changes::{Editor, Lifetimes};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Least number of optimizer steps after which memviz concludes that the optimizer does not update weights without state.
const LEAST_STEPS: usize = 3;
/// Maximum number of states that an optimizer keeps for a weight.
const MOST_STATES: usize = 3;
/// Unneeded gradients are reported from 1/N of the peak on.
const PART_WITHOUT_STATES: u64 = 20;
/// Weights that are updated have at most 1/N of the bytes of all gradients.
const PART_UPDATED: u64 = 20;
/// The same for weights that are known to be the last layers, whose gradients alone are freed in each step.
const PART_OF_HEAD: u64 = 10;
/// What is not simulated.
const SAVED_FOR_GRADIENTS: &str =
    "what forward keeps for the gradients of these weights would also be freed; that is not simulated";

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let found = without_states(device, calls).or_else(|| without_states_from_before(device, calls));
    found.or_else(|| never_cleared(device, calls)).or_else(|| low_rank::find(device, calls)).into_iter().collect()
}

/// Whether the optimizer has no state for some weights with gradients, and has state for all others.
pub(super) fn has_unused_gradients(device: &Device<'_>) -> bool {
    without_states(device, &ModelCalls::default()).is_some()
}

/// Gradients of the weights for which the optimizer has no state, if it has state for all others.
fn without_states(device: &Device<'_>, calls: &ModelCalls) -> Option<Finding> {
    let steps: Vec<_> = device.phases().spans.iter().filter(|span| span.phase == Phase::Optimizer).collect();
    let last = steps.last().filter(|_| steps.len() >= LEAST_STEPS)?;
    let sizes_at = |wanted: Category, instant: Instant| {
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        let live = device.allocations_of(wanted).filter(|(_, made)| made.allocated_at(instant));
        live.for_each(|(_, made)| *sizes.entry(made.requested).or_default() += 1);
        sizes
    };
    let gradients = sizes_at(Category::Gradient, last.start);
    let states = sizes_at(Category::OptimizerState, last.end);
    // States of another precision, or factored ones, show nothing. If only some weights of a size have states, other
    // ranks may have the states of the rest.
    let largest = gradients.keys().copied().filter(|size| states.contains_key(size)).max()?;
    let each = states[&largest] / gradients[&largest];
    let are_of_gradients =
        states.iter().all(|(size, count)| *size <= SCALAR || gradients.get(size).is_some_and(|of| of * each == *count));
    if !(1..=MOST_STATES).contains(&each) || !are_of_gradients {
        return None;
    }
    let without = gradients.keys().copied().filter(|size| *size > SCALAR && !states.contains_key(size));
    let without: BTreeSet<u64> = without.collect();
    if without.is_empty() {
        return None;
    }
    let removed: Vec<(u32, &Allocation)> =
        device.allocations_of(Category::Gradient).filter(|(_, made)| without.contains(&made.requested)).collect();
    let bytes = |instant: Instant| {
        let live = removed.iter().filter(|(_, made)| made.allocated_at(instant));
        live.map(|(_, made)| made.size).fold(0, u64::saturating_add)
    };
    let peak = device.history().maxima[Metric::Allocated as usize];
    let total = gradients.iter().map(|(size, count)| size * *count as u64).fold(0, u64::saturating_add);
    let (unused, most) = (bytes(last.start), u64::try_from(peak.bytes).unwrap_or(0));
    let before = device.history().allocations.iter().take_while(|made| made.born == 0).map(|made| made.size);
    let is_recorded = before.fold(0, u64::saturating_add) < unused;
    // A rank of a sharded optimizer updates a larger part.
    let is_small_part = total - unused.min(total) <= total / PART_UPDATED;
    if unused < most / PART_WITHOUT_STATES || !is_small_part || !is_recorded {
        return None;
    }
    // The optimizer's line does not lead to these weights; backward, which allocates their gradients, does.
    let line = calls.all.iter().find_map(|call| backward_line(device, call));
    let evidence = format!(
        "{} of gradients belong to weights for which the optimizer has no state; for every other weight it has {each}",
        Bytes(unused)
    );
    let removed = removed.iter().map(|&(index, _)| index).collect();
    let lives = frozen(device, calls, removed, |size| states.contains_key(&size));
    Some(freeze(line, evidence, lives))
}

/// The same if the optimizer had its states before the recording starts: each weight that it updates has several
/// blocks from before, and the optimizer's temporaries have only the sizes of such weights.
fn without_states_from_before(device: &Device<'_>, calls: &ModelCalls) -> Option<Finding> {
    let category = |index: u32| device.categories().get(index as usize).category;
    let all = || (0u32..).zip(&device.history().allocations);
    let trained: Vec<_> = calls.all.iter().filter(|call| call.backward.is_some()).collect();
    let last = trained.last().filter(|_| trained.len() >= LEAST_STEPS)?.backward.as_ref()?.end;
    let is_gradient = |index: u32| category(index) == Category::Gradient;
    let mut counts: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (index, made) in all().filter(|(_, made)| made.allocated_at(last) && made.requested > SCALAR) {
        if made.born == 0 {
            counts.entry(made.requested).or_default().0 += 1;
        } else if is_gradient(index) {
            counts.entry(made.requested).or_default().1 += 1;
        }
    }
    counts.retain(|_, (_, gradients)| *gradients > 0);
    // At least one state, and the weight itself.
    if counts.values().all(|(before, gradients)| before / gradients < 2) {
        return None;
    }
    let of_step = |made: &Allocation| device.phases().at(made.born) == Phase::Optimizer;
    let temporaries: HashSet<u64> = device
        .allocations_by(|stack| device.roles().role(stack) == Role::Optimizer)
        .filter(|&(_, made, _)| made.born > 0 && of_step(made))
        .map(|(_, made, _)| made.requested)
        .collect();
    let is_updated = |size: u64| temporaries.contains(&size);
    let (before, gradients) = *counts.iter().rev().find(|&(&size, _)| is_updated(size))?.1;
    let each = (before / gradients).checked_sub(1)?;
    // Other blocks may have the size of a weight by chance.
    let fits = |(&size, &(before, gradients)): (&u64, &(usize, usize))| {
        if is_updated(size) { before == gradients * (1 + each) } else { (gradients..gradients * 2).contains(&before) }
    };
    if !(1..=MOST_STATES).contains(&each) || !counts.iter().all(fits) {
        return None;
    }
    let is_unused = |size: u64| counts.contains_key(&size) && !is_updated(size);
    // Gradients of the step before the recording are freed before the first backward pass.
    let first = trained.first().and_then(|call| call.backward.as_ref()).map_or(0, |backward| backward.start);
    let removed: Vec<u32> = all()
        .filter(|&(index, made)| {
            let is_from_before = made.born == 0 && made.freed <= first;
            (is_from_before || made.born > 0 && is_gradient(index)) && is_unused(made.requested)
        })
        .map(|(index, _)| index)
        .collect();
    let bytes = |wanted: &dyn Fn(u64) -> bool| {
        let of_size = counts.iter().filter(|&(&size, _)| wanted(size));
        of_size.map(|(size, (_, gradients))| size.saturating_mul(*gradients as u64)).fold(0, u64::saturating_add)
    };
    let (unused, total) = (bytes(&is_unused), bytes(&|_| true));
    let peak = u64::try_from(device.history().maxima[Metric::Allocated as usize].bytes).unwrap_or(0);
    if unused < peak / PART_WITHOUT_STATES || total - unused > total / PART_UPDATED {
        return None;
    }
    let evidence = format!(
        "{} of gradients belong to weights for which the optimizer has no state and allocates no temporary tensors",
        Bytes(unused)
    );
    let lives = frozen(device, calls, removed, |size| size <= SCALAR || is_updated(size));
    Some(freeze(backward_line(device, trained[0]), evidence, lives))
}

/// Gradients that stay from the first step on. `optimizer.zero_grad()` frees the gradients of the optimizer's own weights: if it
/// frees those of some weights in each step, and only these have states, no optimizer has the others.
fn never_cleared(device: &Device<'_>, calls: &ModelCalls) -> Option<Finding> {
    let calls = calls.with_shared_passes(device);
    let mut passes = calls.passes();
    passes.dedup();
    let last = passes.last().filter(|_| passes.len() >= LEAST_STEPS)?.end;
    let of_pass = |place: usize| -> Vec<(u32, Allocation)> {
        let pass = &passes[place];
        let is_gradient = |index: u32| device.categories().get(index as usize).category == Category::Gradient;
        let made = born_in(device, pass.start, pass.end);
        made.filter(|&(index, made)| made.freed > pass.end && is_gradient(index)).collect()
    };
    let (unused, cleared): (Vec<_>, Vec<_>) = of_pass(0).into_iter().partition(|(_, made)| made.freed > last);
    let bytes =
        |gradients: &[(u32, Allocation)]| gradients.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    let (bytes_unused, bytes_cleared) = (bytes(&unused), bytes(&cleared));
    // A rank of a sharded optimizer has more of the weights, or some in between: the head of a model comes first in backward.
    let end = cleared.iter().map(|(_, made)| made.born).max()?;
    let is_head = unused.iter().all(|(_, made)| made.born > end)
        && bytes_cleared <= bytes_unused.saturating_add(bytes_cleared) / PART_OF_HEAD;
    if unused.is_empty() || !is_head {
        return None;
    }
    let is_unused: HashSet<u32> = unused.iter().map(|&(index, _)| index).collect();
    // Each step frees the gradients of the same weights before the next pass.
    let sizes = |gradients: &[(u32, Allocation)]| {
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, made) in gradients {
            *sizes.entry(made.requested).or_default() += 1;
        }
        sizes
    };
    let updated = sizes(&cleared);
    let is_cleared = |place: usize| {
        let gradients = of_pass(place);
        let gradients: Vec<_> = gradients.into_iter().filter(|(index, _)| !is_unused.contains(index)).collect();
        let next = passes.get(place + 1).map_or(NEVER, |next| next.start);
        sizes(&gradients) == updated
            && gradients.iter().all(|(_, made)| place + 1 == passes.len() || made.freed <= next)
    };
    if !(0..passes.len()).all(is_cleared) {
        return None;
    }
    // The same number of states for each weight that the optimizer updates, and none for another one of any of these sizes.
    let live = device.allocations_of(Category::OptimizerState).filter(|(_, made)| made.allocated_at(last));
    let states = sizes(&live.map(|(index, made)| (index, *made)).collect::<Vec<_>>());
    let count = |sizes: &BTreeMap<u64, usize>, size: u64| sizes.get(&size).copied().unwrap_or(0);
    let largest = updated.keys().copied().max()?;
    let each = count(&states, largest) / updated[&largest];
    let all: BTreeSet<u64> = unused.iter().map(|(_, made)| made.requested).chain(updated.keys().copied()).collect();
    let has_states = |&size: &u64| count(&states, size) == each * count(&updated, size);
    if !(1..=MOST_STATES).contains(&each) || !all.iter().filter(|size| **size > SCALAR).all(has_states) {
        return None;
    }
    let evidence = format!(
        "{} of gradients stay alive from the first step on and no optimizer has state for their weights, while each step frees the \
         gradients of all other weights; once they are frozen, backward ends at the first trained layer, and forward keeps \
         nothing for the layers before it",
        Bytes(bytes_unused)
    );
    let line = calls.all.iter().find_map(|call| backward_line(device, call));
    let removed = unused.iter().map(|&(index, _)| index).collect();
    let lives = frozen(device, &calls, removed, |size| updated.contains_key(&size));
    Some(freeze(line, evidence, lives))
}

fn freeze(line: Option<FrameId>, evidence: String, lives: Lifetimes) -> Finding {
    Finding {
        kind: RuleKind::OptimizerStatesOfFrozen,
        line,
        evidence,
        cost: None,
        fixes: vec![Fix::new(
            "freeze the weights that the optimizer does not update",
            [
                "updated = {p for group in optimizer.param_groups for p in group[\"params\"]}",
                "for weight in model.parameters():",
                "    weight.requires_grad_(weight in updated)",
            ],
            lives,
        )],
    }
}

/// Removes the gradients and states of frozen weights, and what only they need. Backward ends at the last gradient of
/// a trained weight: it allocates nothing after that, and forward keeps nothing for it. For weights whose gradients
/// come earlier, the recording does not show what forward keeps for them alone. `may_be_trained` decides by the size of a weight whether it is trained.
pub(super) fn frozen(
    device: &Device<'_>,
    calls: &ModelCalls,
    removed: Vec<u32>,
    may_be_trained: impl Fn(u64) -> bool,
) -> Lifetimes {
    let unused: HashSet<u32> = removed.iter().copied().collect();
    let is_gradient = |index: u32| device.categories().get(index as usize).category == Category::Gradient;
    let gradients = |call: &ModelCall| -> Vec<(u32, Allocation)> {
        let backward = call.backward.clone().unwrap_or_default();
        born_in(device, backward.start, backward.end).filter(|&(index, _)| is_gradient(index)).collect()
    };
    let is_trained = |(index, made): &&(u32, Allocation)| !unused.contains(index) && may_be_trained(made.requested);
    let trained: Vec<&ModelCall> = calls.all.iter().filter(|call| call.backward.is_some()).collect();
    let counts: Vec<usize> = trained.iter().map(|call| gradients(call).iter().filter(is_trained).count()).collect();
    let mut lives = Lifetimes { removed, ..Lifetimes::default() };
    // If a pass adds to the gradients of an earlier pass, its last gradient cannot be recognized.
    let is_known = counts.first().is_some_and(|&count| count > 0 && counts.iter().all(|&other| other == count));
    let mut is_whole = is_known;
    let mut kept: Vec<u32> = Vec::new();
    for call in trained.iter().filter(|_| is_known) {
        let of_pass = gradients(call);
        let Some(last) = of_pass.iter().filter(is_trained).map(|(_, made)| made.born).max() else { continue };
        is_whole &= of_pass.iter().all(|(index, made)| made.born > last || !unused.contains(index));
        let end = call.backward.as_ref().map_or(last, |backward| backward.end);
        let later = born_in(device, last, end).filter(|(_, made)| made.freed <= end);
        lives.removed.extend(later.map(|(index, _)| index));
        // Tensors that the last node saved are freed before anything else is allocated.
        let next = born_in(device, last, end).next().map_or(end, |(_, made)| made.born);
        let made = born_in(device, call.start, call.end).filter(|(_, made)| made.freed > next && made.freed <= end);
        kept.extend(made.map(|(index, _)| index));
    }
    lives.removed.sort_unstable();
    lives.removed.dedup();
    let passes = trained.iter().map(|call| call.start..call.end).collect();
    let freed = |index: u32| device.track.allocation(index as usize).map_or(NEVER, |made| made.freed);
    let released = Editor::new(device).releases_without_backward(passes, &kept).into_iter();
    lives.freed.extend(released.filter(|&(index, at)| at < freed(index)));
    if !is_whole {
        (lives.doubt, lives.at_least) = (Some(SAVED_FOR_GRADIENTS), true);
    }
    lives
}
