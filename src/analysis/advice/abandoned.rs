//! A step that ended before its backward pass leaves its graph live: the program skipped a batch, or an exception ended the step.
//!
//! **Sign:** at most a third of the calls of the model from a line have no backward pass. What they keep is most of what they make,
//! or all that the other calls keep for backward, and it is still live when the call after the next one begins. A variable would
//! hold it until the next call has returned. In a recording with holders, a variable holds it through an autograd node; the line is the one that
//! stores it.
//!
//! **Fix:** keep the text of an exception that was caught, not the exception, whose traceback keeps all local variables; keep
//! numbers, not tensors, of a batch that was skipped.
//!
//! **Figures** are simulated with graphs that end with the last block that their step makes. They are a lower bound where a
//! variable may hold the last tensor until the next one is made.

use super::held::is_of_exception;
use super::kept_over_steps::{Kept, inputs, is_freed_by_backward, is_of_forward, notable};
use super::model_calls::{ModelCall, born_in};
use super::retained::keeps_most;
use super::rules::Evidence;
use super::stacks::may_be_workspace;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::held::Held;
use crate::model::StackId;
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::replay::{Allocation, Instant};
use crate::simulation::changes::Lifetimes;
use std::collections::{HashMap, HashSet};

/// At most 1/N of the calls leave a graph without a backward pass: otherwise, the line evaluates or samples as well.
const PART_ABANDONED: usize = 3;
/// Least number of stacks that allocate what training keeps for backward: a result alone has one.
const LEAST_STACKS: usize = 2;

/// One finding for each line that calls a model, at most.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    calls.by_place().into_iter().filter_map(|of_line| of_line_that_calls(device, &of_line)).collect()
}

fn of_line_that_calls(device: &Device<'_>, of_line: &[&ModelCall]) -> Option<Finding> {
    // At the earliest, and if a variable holds the tensor until the next one is made.
    let (mut soon, mut late) = (Lifetimes::default(), Lifetimes::default());
    let mut ends: HashMap<usize, Instant> = HashMap::new();
    let mut most = 0;
    let mut holder = None;
    let saved = stacks_of_graph(device, of_line);
    for (place, pair) in of_line.windows(2).enumerate().filter(|(_, pair)| !pair[0].is_trained(device)) {
        let (call, next) = (pair[0], pair[1]);
        let is_of_graph = |&(index, made): &(u32, Allocation)| {
            made.freed > next.until && is_of_forward(device, index, &made) && !may_be_workspace(device, index, &made)
        };
        let blocks = born_in(device, call.start, call.until.min(next.start)).filter(is_of_graph).collect();
        let kept = Kept { call, blocks };
        if kept.bytes() < notable(device) || !(keeps_most(device, &kept) || keeps_graph(device, &kept, &saved)) {
            continue;
        }
        if let Some(held) = device.held() {
            let Some(found) = holder_of_graph(held, &kept) else { continue };
            holder = Some(found);
        }
        let done = kept.blocks.iter().map(|(_, made)| made.born).max()?;
        let again = next.backward.as_ref().map_or(next.until, |backward| backward.start);
        soon.freed.extend(kept.blocks.iter().map(|&(index, _)| (index, done)));
        late.freed.extend(kept.blocks.iter().map(|&(index, _)| (index, again)));
        ends.insert(place, again);
        most = most.max(kept.bytes());
    }
    let (count, all) = (ends.len(), of_line.len());
    if count == 0 || count * PART_ABANDONED > all {
        return None;
    }
    // What keeps the graph keeps the batch.
    for (place, index, again) in inputs(device, of_line) {
        let Some(&end) = ends.get(&place) else { continue };
        soon.freed.push((index, again));
        late.freed.push((index, again.max(end)));
    }
    for lives in [&mut soon, &mut late] {
        lives.freed.sort_unstable();
        lives.freed.dedup_by_key(|(index, _)| *index);
    }
    let because = holder.map_or_else(
        || "something stores a tensor of the step, or the exception that ended it".to_owned(),
        |holder| format!("{} holds a tensor of each", holder.variable),
    );
    let (change, code) = match holder {
        None => (
            "keep no exception, and no tensor, of a step that ended before backward",
            "failures.append(repr(error))  # not the error: its traceback keeps all local variables",
        ),
        Some(_) => (
            "detach what is stored of a step that ended before backward, or store its number",
            "value = loss.item()  # store this instead of the loss, which holds the graph of its step",
        ),
    };
    let fix = Fix::up_to(change, [code], late, soon, "a variable may keep the last tensor until the next one is made");
    Some(Finding {
        kind: RuleKind::RetainedGraph,
        line: holder.and_then(|holder| holder.frame).or_else(|| of_line.first().map(|call| call.line)),
        evidence: format!(
            "{count} of {all} steps ended before their backward pass, and their graphs, up to {} each, stay alive: {because}",
            Bytes(most)
        ),
        cost: None,
        fixes: vec![fix],
    })
}

/// The stacks that make what the backward passes of a line's calls free.
fn stacks_of_graph(device: &Device<'_>, of_line: &[&ModelCall]) -> HashSet<StackId> {
    let of_call = |call: &&ModelCall| {
        let end = call.backward.as_ref().map_or(call.end, |backward| backward.start);
        born_in(device, call.start, end)
    };
    let made = of_line.iter().filter(|call| call.backward.is_some()).flat_map(of_call);
    let saved = made.filter(|(_, made)| is_freed_by_backward(device, made));
    saved.map(|(index, _)| device.track.stack_of(index as usize)).collect()
}

/// Whether a call keeps all that the others keep for backward.
fn keeps_graph(device: &Device<'_>, kept: &Kept<'_>, saved: &HashSet<StackId>) -> bool {
    let stack = |&(index, _): &(u32, Allocation)| device.track.stack_of(index as usize);
    let stays: HashSet<StackId> = kept.blocks.iter().map(stack).collect();
    saved.len() >= LEAST_STACKS && saved.is_subset(&stays)
}

/// What holds most blocks of a graph: a variable of the program, through an autograd node. Exceptions are findings of their own.
fn holder_of_graph<'h>(held: &Held<'h>, kept: &Kept<'_>) -> Option<&'h HeldBy> {
    let of_block = |(index, _): &(u32, Allocation)| held.first(*index as usize);
    let is_of_variable = |holder: &&HeldBy| {
        let is_variable = matches!(holder.root.as_str(), "local" | "global") && !is_of_exception(holder);
        holder.kind == HolderKind::Saved && !holder.library && is_variable
    };
    let saved: Vec<&HeldBy> = kept.blocks.iter().filter_map(of_block).filter(is_of_variable).collect();
    saved.first().copied().filter(|_| saved.len() * 2 > kept.blocks.len())
}
