//! A graph stays alive after its backward pass: backward was called with `retain_graph`, or a tensor from an earlier step is part
//! of the loss. Each step then adds a graph.
//!
//! **Sign:** what a call of the model keeps outlives its backward pass and two more calls from the same line; or calls without a
//! backward pass keep their graphs that long, because a stored tensor references each of them.
//!
//! **Fix:** call `backward()` without `retain_graph`, and detach what later steps use; store numbers (`.item()`) instead of
//! tensors with their graphs; or call the model under `torch.no_grad()` where no backward pass follows.
//!
//! **Figures** are simulated with graphs that end with their backward passes. They are a lower bound, since a variable may hold
//! the last graph until the next one is built.

use super::kept_over_steps::{Kept, LONGEST_LINE, SMALL, backward_line, inputs, is_freed_by_backward, is_of_forward};
use super::model_calls::{ModelCall, born_in};
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Role;
use crate::model::StackId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Instant, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Least number of blocks, other than small ones, from the first half of a call that a retained graph keeps.
const LEAST_OF_SMALL: usize = 2;

/// Graphs that stay live after their backward pass.
pub(super) fn retained(device: &Device<'_>, of_line: &[&ModelCall], kept: &[Kept<'_>]) -> Option<Finding> {
    let is_retained = |kept: &&Kept<'_>| {
        // A variable may hold results until the line runs again.
        let made = born_in(device, kept.call.start, kept.call.end).filter(|(_, made)| made.freed > kept.call.end);
        let of_backward = made.filter(|(_, made)| is_freed_by_backward(device, made));
        let of_backward: u64 = of_backward.map(|(_, made)| made.size).fold(0, u64::saturating_add);
        let inner: u64 = kept
            .blocks
            .iter()
            .filter(|(_, made)| made.born <= kept.call.end)
            .map(|(_, made)| made.size)
            .fold(0, u64::saturating_add);
        kept.call.backward.is_some()
            && (kept.call.keeps_graph(device) || keeps_most(device, kept))
            && inner >= of_backward
    };
    let retained: Vec<&Kept<'_>> = kept.iter().filter(is_retained).collect();
    let first = *retained.first()?;
    let entries = first.call.backward.as_ref().map_or(0, |backward| backward.end - backward.start);
    let stack = |index: u32| device.track.stack_of(index as usize);
    let mut made_at: HashMap<StackId, Vec<u32>> = HashMap::new();
    for (index, _) in born_in(device, first.call.start, device.track.entries()) {
        made_at.entry(stack(index)).or_default().push(index);
    }
    // A variable keeps a result until its line has run again.
    let rebound = |index: u32| {
        let is_plain = device.roles().role(stack(index)) == Role::Plain;
        let again = made_at.get(&stack(index)).filter(|_| is_plain)?;
        let own = end_of_line(device, index);
        let next = again.get(again.partition_point(|&other| other <= own));
        let end = next.and_then(|&next| device.track.allocation(end_of_line(device, next) as usize));
        Some(end.map_or(NEVER, |end| end.born))
    };
    let lives = |is_bound: bool| {
        let mut lives = Lifetimes::default();
        for call in of_line {
            let Some(backward) = &call.backward else { continue };
            // The pass frees the blocks of the call, the newest first; after that it goes on through older graphs.
            let own = entries.min(backward.end - backward.start);
            let made = born_in(device, call.start, backward.start);
            let stay: Vec<(u32, Allocation)> =
                made.filter(|(index, made)| made.freed > backward.end && is_of_forward(device, *index, made)).collect();
            let at = |place: usize| {
                backward.start + (u64::from(own) * (place as u64 + 1) / stay.len().max(1) as u64) as Instant
            };
            let is_inside = |(index, _): &(u32, Allocation)| is_inside_function(device, *index);
            let gradients = if stay.iter().any(is_inside) { gradients_of(device, backward) } else { HashMap::new() };
            let freed = stay.iter().rev().enumerate().map(|(place, (index, made))| {
                if is_inside_function(device, *index) {
                    let gone = gradients.get(&made.requested).copied().unwrap_or_else(|| at(place));
                    return (*index, gone.min(at(place)), made.freed);
                }
                let bound = rebound(*index).filter(|_| is_bound).unwrap_or(0);
                (*index, at(place).max(bound), made.freed)
            });
            lives.freed.extend(freed.filter(|&(_, at, freed)| at < freed).map(|(index, at, _)| (index, at)));
        }
        lives.freed.extend(inputs(device, of_line).into_iter().map(|(_, index, again)| (index, again)));
        lives
    };
    let fix = Fix::up_to(
        "call backward without retain_graph, and detach what later steps use",
        [
            "loss.backward()",
            "kept = kept.detach()  # each tensor that a later step uses, such as a state or a collected loss",
        ],
        lives(true),
        lives(false),
        "variables may keep results until the next ones are made",
    );
    let most = retained.iter().map(|kept| kept.bytes()).max()?;
    Some(Finding {
        kind: RuleKind::RetainedGraph,
        line: backward_line(device, first.call).or(Some(first.call.line)),
        evidence: format!("every graph, up to {}, stays alive after its backward pass is done", Bytes(most)),
        cost: None,
        fixes: vec![fix],
    })
}

/// Whether a call keeps most of what its modules make first: these are no results. A small model makes few blocks.
pub(super) fn keeps_most(device: &Device<'_>, kept: &Kept<'_>) -> bool {
    let made: Vec<(u32, Allocation)> = born_in(device, kept.call.start, kept.call.end).collect();
    let largest = made.iter().map(|(_, made)| made.size).max().unwrap_or(0);
    let early = made.iter().take(made.len() / 2).filter(|(_, made)| made.size > largest / SMALL);
    let (mut all, mut stay) = (0, 0);
    for (index, _) in early {
        all += 1;
        stay += usize::from(kept.blocks.binary_search_by_key(index, |(other, _)| *other).is_ok());
    }
    stay >= LEAST_OF_SMALL && stay * 2 >= all
}

/// The last allocation of the line that makes a block, in this run of it: the line binds its result after that.
fn end_of_line(device: &Device<'_>, first: u32) -> u32 {
    let line = |index: u32| device.sites().site_frame(device.track.stack_of(index as usize));
    let own = line(first);
    let all = (first + 1..).take_while(|&index| device.track.allocation(index as usize).is_some());
    all.take(LONGEST_LINE).take_while(|&index| own.is_some() && line(index) == own).last().unwrap_or(first)
}

/// Whether a function of PyTorch makes a block for itself, such as the logarithms in `cross_entropy`: its next one, its result, is
/// much smaller. No variable holds the block.
fn is_inside_function(device: &Device<'_>, index: u32) -> bool {
    let stack = device.track.stack_of(index as usize);
    let sites = device.sites();
    let innermost =
        device.snapshot().stacks.frame_ids(stack).iter().copied().find(|&frame| sites.kind(frame).is_python());
    let made = |index: u32| device.track.allocation(index as usize);
    innermost.is_some_and(|frame| !sites.is_own(frame))
        && device.track.stack_of(index as usize + 1) == stack
        && made(index)
            .zip(made(index + 1))
            .is_some_and(|(it, next)| next.requested.saturating_mul(SMALL) <= it.requested)
}

/// When a backward pass has made two gradients of a size, by that size: that of a function's result, and that of its input. The
/// pass needs no intermediate of the function after that.
fn gradients_of(device: &Device<'_>, pass: &Range<Instant>) -> HashMap<u64, Instant> {
    let mut first: HashSet<u64> = HashSet::new();
    let mut second = HashMap::new();
    for (_, made) in born_in(device, pass.start, pass.end).filter(|(_, made)| !first.insert(made.requested)) {
        second.entry(made.requested).or_insert(made.born);
    }
    second
}
