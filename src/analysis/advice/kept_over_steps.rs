//! What the calls of one line keep over two more calls: their graphs, or their results.

use super::Finding;
use super::collected;
use super::function_graphs;
use super::graphs::Graphs;
use super::model_calls::{ModelCall, born_in};
use super::retained::retained;
use super::rules::Evidence;
use super::stacks::may_be_workspace;
use super::whole_copies;
use super::without_backward::keep_graphs;
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::parallel;
use crate::replay::{Allocation, Instant, Metric, NEVER};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Blocks of a call are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 200;
/// A block is small compared with another if it has at most this fraction (1/N) of its bytes.
pub(super) const SMALL: u64 = 16;
/// Least number of blocks of one line that are live at once if they are collected.
pub(super) const LEAST_COLLECTED: usize = 4;
pub(super) const LONGEST_LINE: usize = 64;
/// How many blocks after a cache are searched for later versions of it.
const LOOKED_AT: usize = 2048;

/// The blocks that one call keeps over two more calls.
pub(super) struct Kept<'c> {
    pub call: &'c ModelCall,
    pub blocks: Vec<(u32, Allocation)>,
}

impl Kept<'_> {
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add)
    }

    /// Only some of the blocks.
    fn only(&self, is_wanted: impl Fn(&(u32, Allocation)) -> bool) -> Self {
        Self { call: self.call, blocks: self.blocks.iter().copied().filter(is_wanted).collect() }
    }
}

/// One finding for each line that calls a model, at most: the graph of a branch without a backward pass, graphs that `retain_graph`
/// keeps, or results that accumulate on the device.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let passes = calls.passes();
    let findings =
        calls.by_place().into_iter().filter(|of_line| !keep_graphs(device, calls, of_line)).filter_map(|of_line| {
            let outlived: Vec<Kept<'_>> =
                parallel::filter_map(0..of_line.len(), |place| outliving(device, &of_line[place..], &passes));
            let is_of_forward = |(index, made): &(u32, Allocation)| is_of_forward(device, *index, made);
            let over_two: Vec<Kept<'_>> = outlived.iter().map(|kept| kept.only(is_of_forward)).collect();
            let least = notable(device);
            let intermediate = || {
                let of_lines: Vec<Kept<'_>> = outlived.iter().map(|kept| kept_intermediates(device, kept)).collect();
                is_enough(&of_lines, least).then(|| graph_of_intermediates(device, &of_line, &of_lines)).flatten()
            };
            if !is_enough(&over_two, least) {
                return intermediate();
            }
            retained(device, &of_line, &over_two)
                .or_else(|| branch(device, &of_line, &over_two))
                .or_else(intermediate)
                .or_else(|| function_graphs::graph_of_function(device, &of_line, outlived))
                .or_else(|| collected::finding(device, calls, &of_line, &over_two))
        });
    findings.collect()
}

/// The least number of bytes of a call that is worth reporting.
pub(super) fn notable(device: &Device<'_>) -> u64 {
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    (peak / NOTABLE_PART).max(1)
}

/// What is allocated between the first of these calls and the next one, and outlives two more; `None` at the end of the recording. A
/// step may call a part of a model several times, and a variable holds results until the next step: if backward passes lie in
/// between, two of them count.
fn outliving<'c>(device: &Device<'_>, calls: &[&'c ModelCall], passes: &[Range<Instant>]) -> Option<Kept<'c>> {
    let (&call, next) = (calls.first()?, calls.get(1)?);
    let passed = |instant: Instant| passes.partition_point(|pass| pass.start < instant);
    let before = passed(call.end);
    let is_after = |later: &&&ModelCall| matches!(passed(later.start) - before, 0 | 2..);
    let after = calls.get(2..)?.iter().find(is_after)?.start;
    let made = born_in(device, call.start, next.start.min(call.scope));
    let outlives = |&(index, made): &(u32, Allocation)| made.freed > after && !may_be_workspace(device, index, &made);
    Some(Kept { call, blocks: made.filter(outlives).collect() })
}

/// Intermediates of a line with a small result among what outlives two more calls: `(a - b).abs().mean()` keeps the difference. No
/// variable holds it, so autograd does.
fn kept_intermediates<'c>(device: &Device<'_>, outlived: &Kept<'c>) -> Kept<'c> {
    let track = device.track;
    let line = |index: u32| device.sites().site_frame(track.stack_of(index as usize));
    // Results may hold allocations of PyTorch's functions: the scalar of `mse_loss` shares the storage of all losses.
    let own_line = |index: u32| whole_copies::line(device, index);
    let is_plain = |index: u32| device.roles().role(track.stack_of(index as usize)) == Role::Plain;
    let is_intermediate = |(index, made): &(u32, Allocation)| {
        let Some(own) = own_line(*index).filter(|_| is_plain(*index)) else { return false };
        let behind = (index + 1..).map_while(|index| Some((index, track.allocation(index as usize)?)));
        let of_line = behind.take_while(|(index, _)| line(*index) == Some(own)).take(LONGEST_LINE);
        let is_small = |(_, other): &(u32, &Allocation)| other.requested.saturating_mul(SMALL) <= made.requested;
        // Nothing large follows a small result: a line that makes all parameters anew makes large and small ones in turn.
        let mut results = of_line.skip_while(|other| !is_small(other)).peekable();
        results.peek().is_some() && results.all(|other| is_small(&other))
    };
    outlived.only(|block| is_intermediate(block) && !is_freed_by_backward(device, &block.1))
}

fn is_enough(kept: &[Kept<'_>], least: u64) -> bool {
    // A step may call the model twice, and a function keeps the results of its last steps for no further call.
    let enough = kept.iter().filter(|kept| kept.bytes() >= least).count();
    enough >= 2 && enough * 3 >= kept.len()
}

/// The graph of a line whose result is kept, without a backward pass through it.
fn graph_of_intermediates(device: &Device<'_>, of_line: &[&ModelCall], kept: &[Kept<'_>]) -> Option<Finding> {
    let last = kept.iter().max_by_key(|kept| kept.bytes())?;
    let stack = |index: u32| device.track.stack_of(index as usize);
    let stacks: HashSet<StackId> = last.blocks.iter().map(|&(index, _)| stack(index)).collect();
    let largest = last.blocks.iter().max_by_key(|(_, made)| made.size)?.0;
    let is_wanted =
        |index: u32, made: &Allocation| stacks.contains(&stack(index)) && !is_freed_by_backward(device, made);
    let graphs = Graphs::of(device, of_line, Vec::new(), is_wanted);
    let evidence = format!(
        "the graphs of all steps stay alive, up to {} each: the result of this line is stored, and no backward pass goes through it",
        Bytes(last.bytes())
    );
    Some(graphs.finding_beside_loss(device.sites().site_frame(stack(largest)), evidence))
}

/// Whether a forward pass allocated a block, rather than the model or the optimizer.
pub(super) fn is_of_forward(device: &Device<'_>, index: u32, made: &Allocation) -> bool {
    let is_other = match device.categories().get(index as usize).category {
        Category::Parameter
        | Category::Gradient
        | Category::OptimizerState
        | Category::ModelState
        | Category::Workspace
        | Category::Communication => true,
        Category::KvCache => !is_superseded(device, index, made),
        _ => false,
    };
    let stack = device.track.stack_of(index as usize);
    let role = device.roles().role(stack);
    let is_result = match device.phases().at(made.born) {
        Phase::Forward => true,
        // Without training, blocks between two calls may be computed from the result of the first one.
        Phase::Data => !device.phases().has_training(),
        _ => false,
    };
    let is_forward = role == Role::Module || role == Role::Plain && is_result;
    // Blocks that a later backward pass frees were kept for it: several forward passes may precede one backward pass.
    !is_other && is_forward && !is_freed_by_backward(device, made) && stack != StackId::EMPTY
}

/// Whether a cache is live beside three later versions, each of which is longer by as much: nothing reads it any more.
fn is_superseded(device: &Device<'_>, index: u32, made: &Allocation) -> bool {
    let stack = device.track.stack_of(index as usize);
    let behind =
        (index as usize + 1..).take(LOOKED_AT).map_while(|other| Some((other, device.track.allocation(other)?)));
    let later = behind
        .take_while(|(_, next)| next.born < made.freed)
        .filter(|&(other, _)| device.track.stack_of(other) == stack);
    let mut last = made.requested;
    let mut growth = Vec::new();
    for (_, next) in later {
        if next.requested != last {
            growth.push(next.requested.checked_sub(last));
            last = next.requested;
        }
        if let [first, second, third] = growth[..] {
            return first.is_some() && first == second && second == third;
        }
    }
    false
}

pub(super) fn is_freed_by_backward(device: &Device<'_>, made: &Allocation) -> bool {
    made.freed != NEVER && device.phases().at(made.freed) == Phase::Backward
}

/// Inputs that only the graphs of calls keep alive: the first layer saves them for backward. Each comes with the place
/// of its call, and with the instant at which its variable would release it: when its line allocates the next input.
pub(super) fn inputs(device: &Device<'_>, of_line: &[&ModelCall]) -> Vec<(usize, u32, Instant)> {
    let done = |call: &ModelCall| call.backward.as_ref().map_or(call.end, |backward| backward.end);
    let mut of_stack: BTreeMap<u32, Vec<(usize, u32, Allocation, Instant)>> = BTreeMap::new();
    let mut start = 0;
    for (place, call) in of_line.iter().enumerate() {
        for (index, made) in born_in(device, start, call.start).filter(|&(index, _)| may_be_input(device, index)) {
            let stack = device.track.stack_of(index as usize);
            of_stack.entry(stack.0).or_default().push((place, index, made, done(call)));
        }
        start = done(call);
    }
    let mut released = Vec::new();
    for blocks in of_stack.into_values() {
        for pair in blocks.windows(2) {
            let ((place, index, made, done), again) = (pair[0], pair[1].2.born);
            if made.freed > done && made.freed > again {
                released.push((place, index, again));
            }
        }
    }
    released
}

/// The sizes of the inputs of the first call, which may be allocated on another line than those of the next ones.
pub(super) fn sizes_of_inputs(device: &Device<'_>, first: &ModelCall) -> HashSet<u64> {
    let born = born_in(device, 0, first.start)
        .filter(|&(index, made)| made.freed > first.start && may_be_input(device, index));
    born.map(|(_, made)| made.requested).collect()
}

/// Whether a block may be the input of a model, given that it is allocated before a call.
fn may_be_input(device: &Device<'_>, index: u32) -> bool {
    let stack = device.track.stack_of(index as usize);
    let category = device.categories().get(index as usize).category;
    matches!(device.roles().role(stack), Role::Plain | Role::Data)
        && matches!(category, Category::Input | Category::Unknown | Category::Activation | Category::Temporary)
        && stack != StackId::EMPTY
}

/// The line that calls `backward` after a call of a model: it allocates the gradients that the pass starts from.
pub(super) fn backward_line(device: &Device<'_>, call: &ModelCall) -> Option<FrameId> {
    let backward = call.backward.as_ref()?;
    let stacks = (backward.start..backward.end).map(|entry| device.track.stack(entry));
    let stack = stacks
        .into_iter()
        .find(|&stack| device.sites().has_python(stack) && device.roles().role(stack) == Role::Backward)?;
    device.sites().site_frame(stack)
}

/// A branch besides the loss: a small block is computed from a large one, and both stay live.
fn branch(device: &Device<'_>, of_line: &[&ModelCall], kept: &[Kept<'_>]) -> Option<Finding> {
    let last = kept.iter().max_by_key(|kept| kept.bytes())?;
    let line = reduced_at(device, last).or_else(|| reduced_behind(device, &made_before(device, of_line), last))?;
    let stacks: HashSet<StackId> =
        last.blocks.iter().map(|&(index, _)| device.track.stack_of(index as usize)).collect();
    let is_wanted = |index: u32, made: &Allocation| {
        stacks.contains(&device.track.stack_of(index as usize)) && is_of_forward(device, index, made)
    };
    // Without training, inputs are also results of the last call.
    let inputs = if device.phases().has_training() { inputs(device, of_line) } else { Vec::new() };
    let graphs = Graphs::of(device, of_line, inputs, is_wanted);
    let evidence = format!(
        "the graphs of all steps stay alive, up to {} each: a stored tensor keeps its graph, which no \
         backward pass frees",
        Bytes(last.bytes())
    );
    let trained = of_line.iter().filter(|call| call.is_trained(device)).count();
    // The loss needs a backward pass through the model, so no_grad is no fix.
    Some(match trained {
        0 => graphs.finding(graphs.line_of_results().or(Some(line)), evidence, None),
        _ => graphs.finding_beside_loss(Some(line), evidence),
    })
}

/// The line that allocates a large block, and a small one that is computed from it.
fn reduced_at(device: &Device<'_>, kept: &Kept<'_>) -> Option<FrameId> {
    let mut lines: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for &(index, made) in &kept.blocks {
        let Some(line) = device.sites().site_frame(device.track.stack_of(index as usize)) else { continue };
        let (largest, newest) = lines.entry(line.0).or_default();
        (*largest, *newest) = ((*largest).max(made.size), made.size);
    }
    let reduced = lines.into_iter().filter(|(_, (largest, newest))| *newest <= *largest / SMALL);
    reduced.max_by_key(|&(_, (largest, _))| largest).map(|(line, _)| FrameId(line))
}

/// Where blocks are allocated before the first call: they are inputs of the model.
pub(super) fn made_before(device: &Device<'_>, of_line: &[&ModelCall]) -> HashSet<StackId> {
    let first = of_line.first().map_or(0, |call| call.start);
    born_in(device, 0, first).map(|(index, _)| device.track.stack_of(index as usize)).collect()
}

/// The line that allocates a small block after several large ones, all of them outside of modules.
fn reduced_behind(device: &Device<'_>, inputs: &HashSet<StackId>, kept: &Kept<'_>) -> Option<FrameId> {
    let stack = |index: u32| device.track.stack_of(index as usize);
    let is_plain = |&&(index, _): &&(u32, Allocation)| {
        device.roles().role(stack(index)) == Role::Plain && !inputs.contains(&stack(index))
    };
    let plain: Vec<&(u32, Allocation)> = kept.blocks.iter().filter(is_plain).collect();
    let largest = plain.iter().map(|(_, made)| made.size).max()?;
    let large = plain.iter().filter(|(_, made)| made.size > largest / SMALL).count();
    let (newest, made) = **plain.last()?;
    device.sites().site_frame(stack(newest)).filter(|_| large >= 2 && made.size <= largest / SMALL)
}
