//! A variable holds the output of the model through backward and the next forward pass, until the line runs again. Only the loss
//! needs it; autograd itself keeps what backward needs.
//!
//! **Sign:** a block that plain code frees when the line has run again, whose gradient, of the same size, is among the first
//! blocks that backward allocates.
//!
//! **Fix:** delete the output once the loss is computed.
//!
//! **Figures** are simulated with outputs that end before backward. They are a lower bound if the same object holds other
//! outputs, which backward may need.

use super::model_calls::{ModelCall, born_in};
use super::rules::Evidence;
use super::without_backward::is_cached;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, History, Instant, Metric, NEVER};
use crate::simulation::changes::{Lifetimes, is_log_softmax};
use std::collections::HashSet;

/// Outputs are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 100;
/// From this smaller share on, blocks of one object count: there may be many of them.
const PART_OF_OBJECT: u64 = 1000;
/// Number of large gradients at the start of backward that are examined.
const FIRST_GRADIENTS: usize = 2;

/// One finding, for the line that holds the most.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let calls = calls.with_shared_passes(device);
    let findings = calls.by_place().into_iter().filter_map(|of_line| finding(device, &of_line));
    findings.collect()
}

fn finding(device: &Device<'_>, of_line: &[&ModelCall]) -> Option<Finding> {
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let least = (peak / NOTABLE_PART).max(1);
    let mut lives = Lifetimes::default();
    let (mut most, mut line) = (0, None);
    let trained: Vec<(&ModelCall, Instant)> =
        of_line.iter().filter_map(|call| Some((*call, call.backward.as_ref()?.start))).collect();
    // A pattern of consecutive steps also applies to the last one.
    let mut stacks: HashSet<StackId> = HashSet::new();
    let is_output = |index: u32, made: &Allocation, backward: Instant| {
        !is_of_loss(device, index)
            && (is_loss_input(device, made, backward, least) || is_taken_by_log_softmax(device, index, made, backward))
    };
    for pair in trained.windows(2) {
        let ((call, backward), (_, next)) = (pair[0], pair[1]);
        for (index, made) in born_in(device, call.start, call.end) {
            let is_held = made.size >= least && made.freed > call.until && made.freed <= next;
            let Some(holder) = is_held.then(|| released_by(device, &made)).flatten() else { continue };
            if is_output(index, &made, backward) {
                stacks.insert(device.track.stack_of(index as usize));
                if made.size > most {
                    (most, line) = (made.size, Some(holder));
                }
            }
        }
    }
    if stacks.is_empty() {
        return None;
    }
    // A list keeps outputs of several calls: a variable holds only the last one.
    let mut listed = 0;
    for (place, &(call, backward)) in trained.iter().enumerate() {
        let next = trained.get(place + 1).map_or(NEVER, |(_, next)| *next);
        for (index, made) in born_in(device, call.start, call.end) {
            let is_held = made.freed > call.backward.as_ref().map_or(0, |backward| backward.end);
            if !is_held
                || !stacks.contains(&device.track.stack_of(index as usize))
                || !is_output(index, &made, backward)
            {
                continue;
            }
            let at = if is_taken_by_log_softmax(device, index, &made, backward) {
                backward
            } else {
                behind_first_gradient(device, &made, backward)
            };
            if made.freed > next {
                listed += 1;
                continue;
            }
            lives.freed.push((index, at));
        }
    }
    if listed > lives.freed.len() {
        return None;
    }
    // A single occurrence may be the end of a loop.
    if lives.freed.len() < 2 {
        return None;
    }
    // The step of the peak may have a larger batch than the steps in which the release of outputs was recorded.
    let sizes = lives.freed.iter().filter_map(|&(index, _)| device.track.allocation(index as usize));
    let (smallest, largest) =
        sizes.fold((u64::MAX, 0), |(smallest, largest), made| (made.size.min(smallest), made.size.max(largest)));
    let up_to = if smallest < largest { "up to " } else { "" };
    // Other outputs in the same object stay live with it, and backward may need some of them. It needs the keys and values of a cache.
    let stack = |index: u32| device.track.stack_of(index as usize);
    let others = |call: &ModelCall| -> Vec<(u32, Allocation)> {
        let end = call.backward.as_ref().map_or(0, |backward| backward.end);
        let is_other = |index: u32| !stacks.contains(&stack(index)) && !is_cached(device, stack(index));
        let made = born_in(device, call.start, call.end);
        made.filter(|&(index, made)| made.freed > end && is_other(index)).collect()
    };
    let smallest = (peak / PART_OF_OBJECT).max(1);
    let is_of_line =
        |made: &Allocation| made.size >= smallest && made.freed != NEVER && released_by(device, made) == line;
    let of_line = trained.iter().flat_map(|(call, _)| others(call)).filter(|(_, made)| is_of_line(made));
    let of_object: HashSet<StackId> = of_line.map(|(index, _)| stack(index)).collect();
    // Data that the next step reads, such as a state, is freed by backward of that step. It does not need what the line releases.
    let mut most = lives.clone();
    for &(call, backward) in &trained {
        for (index, made) in others(call).into_iter().filter(|&(index, _)| of_object.contains(&stack(index))) {
            most.freed.push((index, backward));
            lives.freed.push((index, behind_its_readers(device, call, &made)));
        }
    }
    let change = "delete the model's output once the loss is computed";
    let code = ["del outputs  # or self.outputs = None; after all other uses, before loss.backward()"];
    let unknown = "the line keeps other outputs, which backward may need";
    Some(Finding {
        kind: RuleKind::KeptOutputs,
        line,
        evidence: format!("{up_to}{} of output stays alive through backward and the next forward pass", Bytes(largest)),
        cost: None,
        fixes: vec![Fix::up_to(change, code, lives, most, unknown).by(Rewrite::DeleteOutput)],
    })
}

/// The user's line that releases a block, if plain code does so by rebinding a variable.
fn released_by(device: &Device<'_>, made: &Allocation) -> Option<FrameId> {
    let stack = device.track.stack(History::entry_before(made.freed)?);
    let is_plain = device.roles().role(stack) == Role::Plain && stack != StackId::EMPTY;
    device.sites().site_frame(stack).filter(|&frame| is_plain && device.sites().is_own(frame))
}

fn first_gradients<'d>(device: &'d Device<'_>, backward: Instant, least: u64) -> impl Iterator<Item = Allocation> + 'd {
    let made = born_in(device, backward, device.history().entries()).map(|(_, made)| made);
    let own = made.take_while(|made| device.phases().at(made.born) == Phase::Backward);
    own.filter(move |made| made.size >= least).take(FIRST_GRADIENTS)
}

/// An instant by which backward has passed all uses of a block: it frees memory that was kept before the block was allocated.
pub(super) fn behind_its_readers(device: &Device<'_>, call: &ModelCall, made: &Allocation) -> Instant {
    let Some(backward) = &call.backward else { return made.freed };
    let before: Vec<(u32, Allocation)> = born_in(device, call.start, made.born.saturating_sub(1)).collect();
    let mut freed = before.iter().rev().map(|(_, earlier)| earlier.freed);
    freed.find(|freed| (backward.start + 1..=backward.end).contains(freed)).unwrap_or(backward.end)
}

/// Whether a loss of `torch.nn.functional` allocates a block: `mse_loss` and others compute their mean in memory as large as their
/// input, which is then the storage of the result.
fn is_of_loss(device: &Device<'_>, index: u32) -> bool {
    let snapshot = device.snapshot();
    snapshot.stacks.frames(device.track.stack_of(index as usize)).next().is_some_and(|frame| {
        snapshot.strings.get(frame.name).ends_with("_loss")
            && snapshot.strings.get(frame.filename).ends_with("torch/nn/functional.py")
    })
}

fn is_loss_input(device: &Device<'_>, made: &Allocation, backward: Instant, least: u64) -> bool {
    first_gradients(device, backward, least).any(|gradient| gradient.requested == made.requested)
}

/// Whether the loss uses `log_softmax`, whose backward needs its result and not its input.
fn is_taken_by_log_softmax(device: &Device<'_>, index: u32, made: &Allocation, backward: Instant) -> bool {
    born_in(device, made.born, backward).any(|(other, later)| {
        other != index
            && (later.requested == made.requested || later.requested == made.requested.saturating_mul(2))
            && is_log_softmax(device, device.track.stack_of(other as usize))
    })
}

/// The instant at which the node that allocates the gradient of a block is done.
fn behind_first_gradient(device: &Device<'_>, made: &Allocation, backward: Instant) -> Instant {
    let gradient = first_gradients(device, backward, made.size).find(|gradient| gradient.requested == made.requested);
    gradient.map_or(backward, |gradient| gradient.born)
}
