//! Results of all batches are collected in a list on the device, such as predictions or losses of each token: memory grows with
//! every batch.
//!
//! **Sign:** blocks of one line that each call of the model makes, all of which outlive at least two more calls. They are freed
//! together, or never.
//!
//! **Fix:** move each result to the CPU when it is stored.
//!
//! **Figures** are simulated with results that end when the loop makes the next ones, for which a copy to the CPU is enough.
//! Plain results without a graph only: otherwise, the rule is `retained_graph`.

use super::function_graphs;
use super::graphs::Graphs;
use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::retained::retained;
use super::rules::Evidence;
use super::stacks::may_be_workspace;
use super::variables::Function;
use super::whole_copies;
use super::without_backward::keep_graphs;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, PlaceId, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::parallel;
use crate::replay::{Allocation, Instant, Metric, NEVER};
use crate::simulation::changes::{Editor, Lifetimes};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// Blocks of a call are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 200;
/// A block is small compared with another if it has at most this fraction (1/N) of its bytes.
pub(super) const SMALL: u64 = 16;
/// Least number of blocks of one line that are live at once if they are collected.
pub(super) const LEAST_COLLECTED: usize = 4;
pub(super) const LONGEST_LINE: usize = 64;

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
                .or_else(|| collected(device, calls, &of_line, &over_two))
        });
    findings.collect()
}

/// The least number of bytes of a call that is worth reporting.
fn notable(device: &Device<'_>) -> u64 {
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
    let enough = kept.iter().filter(|kept| kept.bytes() >= least).count();
    enough >= 2 && enough * 2 >= kept.len()
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
    let is_other = matches!(
        device.categories().get(index as usize).category,
        Category::Parameter
            | Category::Gradient
            | Category::OptimizerState
            | Category::ModelState
            | Category::KvCache
            | Category::Workspace
            | Category::Communication
    );
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

pub(super) fn is_freed_by_backward(device: &Device<'_>, made: &Allocation) -> bool {
    made.freed != NEVER && device.phases().at(made.freed) == Phase::Backward
}

/// Blocks of a line's calls that live longer than a variable would hold them, each with the instant at which the
/// variable would release it: when its stack allocates for the next call, or when the function returns.
fn held_longer(
    device: &Device<'_>,
    of_line: &[&ModelCall],
    wanted: impl Fn(u32, StackId) -> bool,
) -> Vec<(u32, Allocation, Instant)> {
    let function = of_line.first().and_then(|call| Function::of(device, call.line, of_line));
    let end = |place: usize| of_line.get(place).map_or(device.track.entries(), |call| call.start);
    let mut held = Vec::new();
    for (place, call) in of_line.iter().enumerate() {
        let mut again: HashMap<StackId, Instant> = HashMap::new();
        for (index, made) in born_in(device, end(place + 1), end(place + 2)) {
            again.insert(device.track.stack_of(index as usize), made.born);
        }
        for (index, made) in born_in(device, call.start, end(place + 1)) {
            let stack = device.track.stack_of(index as usize);
            let bound = again.get(&stack).copied();
            let at = bound.map(|at| function.as_ref().map_or(at, |it| it.released(call, of_line.get(place + 1), at)));
            let at = at.filter(|&at| at < made.freed);
            if let Some(at) = at.filter(|_| wanted(index, stack) && is_of_forward(device, index, &made)) {
                held.push((index, made, at));
            }
        }
    }
    held
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
    let line = reduced_at(device, last).or_else(|| reduced_behind(device, last))?;
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

/// The line that allocates a small block after several large ones, all of them outside of modules.
fn reduced_behind(device: &Device<'_>, kept: &Kept<'_>) -> Option<FrameId> {
    let stack = |index: u32| device.track.stack_of(index as usize);
    let plain: Vec<&(u32, Allocation)> =
        kept.blocks.iter().filter(|&&(index, _)| device.roles().role(stack(index)) == Role::Plain).collect();
    let largest = plain.iter().map(|(_, made)| made.size).max()?;
    let large = plain.iter().filter(|(_, made)| made.size > largest / SMALL).count();
    let (newest, made) = **plain.last()?;
    device.sites().site_frame(stack(newest)).filter(|_| large >= 2 && made.size <= largest / SMALL)
}

/// Results of every call that accumulate, and are released together or never.
fn collected(device: &Device<'_>, calls: &ModelCalls, of_line: &[&ModelCall], kept: &[Kept<'_>]) -> Option<Finding> {
    let stacks: HashSet<StackId> =
        kept.iter().flat_map(|kept| &kept.blocks).map(|&(index, _)| device.track.stack_of(index as usize)).collect();
    let mut of_stack: HashMap<StackId, Vec<(u32, Allocation, Instant)>> = HashMap::new();
    // Each replay of a captured graph overwrites its blocks.
    let is_wanted = |index: u32, stack| stacks.contains(&stack) && !calls.private.contains_key(&index);
    for held in held_longer(device, of_line, is_wanted) {
        of_stack.entry(device.track.stack_of(held.0 as usize)).or_default().push(held);
    }
    // Blocks that are allocated before the first call are inputs of the model.
    let first = of_line.first().map_or(0, |call| call.start);
    let inputs: HashSet<StackId> =
        born_in(device, 0, first).map(|(index, _)| device.track.stack_of(index as usize)).collect();
    let passes = calls.passes();
    let is_trained = |made: &Allocation| {
        let call = of_line.iter().rev().find(|call| call.start < made.born);
        call.is_some_and(|call| call.is_trained(device))
    };
    of_stack.retain(|stack, blocks| {
        piles_up(blocks)
            && !inputs.contains(stack)
            && !is_of_one_graph(of_line, blocks, &passes, is_trained)
            && !is_trained_on(device, calls, of_line, blocks, &passes)
    });
    let bytes = |blocks: &[(u32, Allocation, Instant)]| {
        blocks.iter().map(|(_, made, _)| made.size).fold(0, u64::saturating_add)
    };
    let (&stack, _) = of_stack.iter().max_by_key(|(stack, blocks)| (bytes(blocks), stack.index()))?;
    let call = |made: &Allocation| of_line.partition_point(|call| call.start < made.born);
    let mut of_calls: HashMap<usize, u64> = HashMap::new();
    for (_, made, _) in of_stack.values().flatten() {
        *of_calls.entry(call(made)).or_default() += made.size;
    }
    let each = of_calls.into_values().max()?;
    // Collected scalars hold almost no memory.
    if of_stack.values().map(|blocks| bytes(blocks)).fold(0, u64::saturating_add) < notable(device) {
        return None;
    }
    let joined: Vec<u32> = of_stack.values().flat_map(|blocks| joined(device, blocks)).collect();
    if joined.iter().any(|&index| may_be_read(device, calls, of_line, index)) {
        return None;
    }
    // Other models that are called in every round may still use the results.
    let round = of_line.first().map_or(0, |call| call.start)..of_line.get(1).map_or(0, |call| call.start);
    let of_round: HashSet<PlaceId> =
        calls.all.iter().filter(|call| round.contains(&call.start)).skip(1).map(|call| call.place).collect();
    let is_of_round = |call: &ModelCall| of_round.contains(&call.place);
    let inner = inner(device, of_line, &of_stack);
    // Only the program decides whether a variable keeps the last result until the next one is computed.
    let lives = |is_bound: bool| {
        let mut lives = Lifetimes::default();
        for blocks in of_stack.values() {
            let gone = |born: Instant, again: Instant| {
                let next = calls.all.iter().find(|call| call.start > born && !is_of_round(call)).map(|call| call.start);
                if is_bound { again } else { next.map_or(again, |next| next.min(again)) }
            };
            lives.freed.extend(blocks.iter().map(|&(index, made, again)| {
                let bound = gone(made.born, again);
                (index, inner.get(&index).filter(|_| !is_bound).map_or(bound, |&early| early.min(bound)))
            }));
        }
        // Without a variable, the last result before another phase is also freed, where the program rebinds the collection later.
        if !is_bound {
            let known: HashSet<u32> = lives.freed.iter().map(|&(index, _)| index).collect();
            let others = device
                .allocations_by(|stack| of_stack.contains_key(&stack))
                .filter(|(index, ..)| !known.contains(index));
            let next = |born: Instant| calls.all.iter().find(|call| call.start > born && !is_of_round(call));
            let early = others.filter_map(|(index, made, _)| {
                let at = inner.get(&index).copied().or_else(|| Some(next(made.born)?.start))?;
                Some((index, at)).filter(|&(_, at)| at < made.freed)
            });
            lives.freed.extend(early);
        }
        lives.removed.extend(&joined);
        lives.freed.sort_unstable();
        lives.removed.sort_unstable();
        lives.removed.dedup();
        lives
    };
    let fix = Fix::up_to(
        "move the collected results to the CPU",
        ["results.append(result.detach().cpu())  # where they are stored, such as in a forward hook"],
        lives(true),
        lives(false),
        "a variable may keep the last result until the next one is made",
    );
    Some(Finding {
        kind: RuleKind::AccumulatingMetrics,
        line: device.sites().site_frame(stack),
        evidence: format!(
            "each call keeps up to {} that it allocates here; the results of all calls are freed together, or never",
            Bytes(each)
        ),
        cost: Some("each call then copies its results to the CPU".to_owned()),
        fixes: vec![fix],
    })
}

/// Blocks that calls make before another one of these stacks, such as one in each layer, with the earliest instant at which they would
/// be released if nobody stored them: with the functions that make them, or in the backward pass of the call.
fn inner(
    device: &Device<'_>,
    of_line: &[&ModelCall],
    of_stack: &HashMap<StackId, Vec<(u32, Allocation, Instant)>>,
) -> HashMap<u32, Instant> {
    let made = device.allocations_by(|stack| of_stack.contains_key(&stack));
    let made: Vec<(u32, &ModelCall)> = made
        .filter_map(|(index, made, _)| {
            let call = of_line.partition_point(|call| call.start < made.born).checked_sub(1)?;
            Some((index, *of_line.get(call).filter(|call| made.born <= call.end)?))
        })
        .collect();
    let pairs = made.windows(2).filter(|pair| pair[0].1.start == pair[1].1.start).map(|pair| pair[0]);
    let (trained, others): (Vec<_>, Vec<_>) = pairs.partition(|(_, call)| call.backward.is_some());
    let mut early: HashMap<u32, Instant> = HashMap::new();
    early.extend(trained.iter().filter_map(|(index, call)| Some((*index, call.backward.as_ref()?.start))));
    if !others.is_empty() {
        let passes = of_line.iter().map(|call| call.start..call.end).collect();
        let others: Vec<u32> = others.iter().map(|&(index, _)| index).collect();
        early.extend(Editor::new(device).releases_without_backward(passes, &others));
    }
    early
}

/// The results that plain code computes from these blocks at once, such as with `torch.cat`: from at least three, and
/// from most of those that are live.
fn joined(device: &Device<'_>, blocks: &[(u32, Allocation, Instant)]) -> Vec<u32> {
    let Some(first) = blocks.first().map(|(_, made, _)| made.born) else { return Vec::new() };
    let each = blocks.iter().map(|(_, made, _)| made.requested).min().unwrap_or(0).max(1);
    // No call follows the last results, so no variable is rebound.
    let last = blocks.iter().map(|(_, made, _)| made.requested).max().unwrap_or(0).saturating_mul(2);
    let is_joined = |&(index, made): &(u32, Allocation)| {
        made.requested >= each.saturating_mul(3)
            && device.roles().role(device.track.stack_of(index as usize)) == Role::Plain
            && made.requested.is_multiple_of(each)
            && {
                let there = blocks.iter().filter(|(_, it, _)| it.freed > made.born && it.born < made.born);
                let all = there.map(|(_, it, _)| it.requested).fold(0, u64::saturating_add);
                made.requested <= all.saturating_add(last) && made.requested.saturating_mul(2) >= all
            }
    };
    born_in(device, first, device.track.entries()).filter(is_joined).map(|(index, _)| index).collect()
}

/// Whether the joined results may be read on the device, as the features that a search for nearest neighbors compares with: another
/// line calls a model without a backward pass while they are live. Training and further rounds have no use for metrics.
fn may_be_read(device: &Device<'_>, calls: &ModelCalls, of_line: &[&ModelCall], index: u32) -> bool {
    let Some(made) = device.track.allocation(index as usize) else { return false };
    let own = of_line.first().map(|call| call.place);
    let mut others = calls.all.iter().filter(|call| Some(call.place) != own && !call.is_trained(device));
    others.any(|call| (made.born..made.freed).contains(&call.start))
}

/// Whether no backward pass lies between most calls that make these blocks, as in a rollout. Blocks of the same call, such as
/// one of each layer, are not compared.
fn come_together(of_line: &[&ModelCall], blocks: &[(u32, Allocation, Instant)], passes: &[Range<Instant>]) -> bool {
    let passed = |made: &Allocation| passes.partition_point(|pass| pass.start < made.born);
    let call = |made: &Allocation| of_line.partition_point(|call| call.start < made.born);
    let of_calls = blocks.windows(2).map(|pair| (&pair[0].1, &pair[1].1)).filter(|(one, next)| call(one) != call(next));
    let (mut all, mut together) = (0, 0);
    for (one, next) in of_calls {
        all += 1;
        together += usize::from(passed(one) == passed(next));
    }
    together * 2 > all + 1
}

/// Whether one backward pass covers the blocks of several calls, such as the steps of a rollout: no other pass lies in between.
fn is_of_one_graph(
    of_line: &[&ModelCall],
    blocks: &[(u32, Allocation, Instant)],
    passes: &[Range<Instant>],
    is_trained: impl Fn(&Allocation) -> bool,
) -> bool {
    let trained = blocks.iter().filter(|(_, made, _)| is_trained(made)).count();
    come_together(of_line, blocks, passes) && trained * 2 > blocks.len()
}

/// Whether the results are data for training, such as those of a rollout: no backward pass lies between most of them, they stay
/// live for the first pass after the last of them, and so do the inputs of their calls. Nobody keeps the inputs of metrics.
fn is_trained_on(
    device: &Device<'_>,
    calls: &ModelCalls,
    of_line: &[&ModelCall],
    blocks: &[(u32, Allocation, Instant)],
    passes: &[Range<Instant>],
) -> bool {
    let passed = |instant: Instant| passes.partition_point(|pass| pass.start < instant);
    let is_input = |(index, made): &(u32, Allocation), until: Instant| {
        let stack = device.track.stack_of(*index as usize);
        made.freed > until && stack != StackId::EMPTY && matches!(device.roles().role(stack), Role::Plain | Role::Data)
    };
    let is_data = |(_, made, _): &(u32, Allocation, Instant)| {
        let Some(pass) = passes.get(passed(made.born)).filter(|pass| pass.end < made.freed) else { return false };
        let place = calls.all.partition_point(|call| call.start < made.born);
        let call = place.checked_sub(1).and_then(|place| calls.all.get(place));
        let before = place.checked_sub(2).and_then(|place| calls.all.get(place)).map_or(0, |call| call.end);
        call.is_some_and(|call| born_in(device, before, call.start).any(|input| is_input(&input, pass.start)))
    };
    come_together(of_line, blocks, passes) && blocks.iter().filter(|block| is_data(block)).count() * 2 > blocks.len()
}

/// Whether several blocks are live together and are freed together: a store of fixed size frees one block for each new one.
fn piles_up(blocks: &[(u32, Allocation, Instant)]) -> bool {
    // They are in order of allocation.
    let mut together: HashMap<usize, usize> = HashMap::new();
    for (_, made, _) in blocks {
        *together.entry(blocks.partition_point(|(_, other, _)| other.born < made.freed)).or_default() += 1;
    }
    let stay = blocks.iter().filter(|(_, made, _)| made.freed == NEVER).count();
    let most = together.values().copied().max().unwrap_or(0).max(stay);
    let alone = together.values().filter(|&&count| count == 1).count();
    most + 2 >= LEAST_COLLECTED && most >= 2 && alone * 4 <= blocks.len()
}
