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

use super::held::most_at_once;
use super::kept_over_steps::{Kept, LEAST_COLLECTED, is_of_forward, made_before, notable};
use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::variables::Function;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{PlaceId, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, NEVER};
use crate::simulation::changes::{Editor, Lifetimes};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What is computed from a result has at least 1/N of its bytes if it needs the device.
const PART_OF_READ: u64 = 64;

/// Results of every call that accumulate, and are released together or never.
pub(super) fn finding(
    device: &Device<'_>,
    calls: &ModelCalls,
    of_line: &[&ModelCall],
    kept: &[Kept<'_>],
) -> Option<Finding> {
    let stacks: HashSet<StackId> =
        kept.iter().flat_map(|kept| &kept.blocks).map(|&(index, _)| device.track.stack_of(index as usize)).collect();
    let mut of_stack: HashMap<StackId, Vec<(u32, Allocation, Instant)>> = HashMap::new();
    // Each replay of a captured graph overwrites its blocks.
    let is_wanted = |index: u32, stack| stacks.contains(&stack) && !calls.private.contains_key(&index);
    for held in held_longer(device, of_line, is_wanted) {
        of_stack.entry(device.track.stack_of(held.0 as usize)).or_default().push(held);
    }
    let inputs = made_before(device, of_line);
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
    // A variable holds some of the last results as well.
    let at_once = |blocks: &[(u32, Allocation, Instant)]| most_at_once(blocks.iter().map(|(_, made, _)| made)).0;
    let (&stack, _) = of_stack.iter().max_by_key(|(stack, blocks)| (at_once(blocks), stack.index()))?;
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
    let joined: Vec<u32> = of_stack.values().flat_map(|blocks| joined(device, blocks, call)).collect();
    if joined.iter().any(|&index| may_be_read(device, calls, of_line, index)) || are_read(device, of_line, &of_stack) {
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
    )
    .by(Rewrite::StoreOnCpu);
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
/// be released if nobody stored them: with the functions that make them, or in the backward pass of the call. What a hook makes has
/// no reader: it ends at once.
fn inner(
    device: &Device<'_>,
    of_line: &[&ModelCall],
    of_stack: &HashMap<StackId, Vec<(u32, Allocation, Instant)>>,
) -> HashMap<u32, Instant> {
    let stack_of = |index: u32| device.track.stack_of(index as usize);
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
    let of_hooks: HashSet<StackId> = of_stack.keys().copied().filter(|&stack| is_of_hook(device, stack)).collect();
    early.extend(
        made.iter()
            .filter(|(index, _)| of_hooks.contains(&stack_of(*index)))
            .filter_map(|&(index, _)| Some((index, device.track.allocation(index as usize)?.born + 1))),
    );
    early
}

/// Whether a module calls the user's function that makes these blocks, and that is not its `forward`.
fn is_of_hook(device: &Device<'_>, stack: StackId) -> bool {
    let (stacks, sites) = (&device.snapshot().stacks, device.sites());
    let frames = stacks.frame_ids(stack);
    let Some(own) = frames.iter().position(|&frame| sites.is_own(frame)) else { return false };
    let name = stacks.frame(frames[own]).map(|frame| device.snapshot().strings.get(frame.name));
    let is_module = |&frame: &FrameId| sites.installed_path(frame) == "torch/nn/modules/module.py";
    name.is_some_and(|name| name != "forward") && frames.get(own + 1).is_some_and(is_module)
}

/// The results that plain code computes from these blocks at once, such as with `torch.cat`: from at least three, and
/// from most of those that are live and in one list. A call may add to several lists, such as one for each layer.
fn joined(device: &Device<'_>, blocks: &[(u32, Allocation, Instant)], call: impl Fn(&Allocation) -> usize) -> Vec<u32> {
    let Some(first) = blocks.first().map(|(_, made, _)| made.born) else { return Vec::new() };
    let each = blocks.iter().map(|(_, made, _)| made.requested).min().unwrap_or(0).max(1);
    // No call follows the last results, so no variable is rebound.
    let last = blocks.iter().map(|(_, made, _)| made.requested).max().unwrap_or(0).saturating_mul(2);
    let mut of_calls: HashMap<usize, u64> = HashMap::new();
    for (_, made, _) in blocks {
        *of_calls.entry(call(made)).or_default() += 1;
    }
    let lists = of_calls.into_values().max().unwrap_or(1);
    let done = blocks.iter().map(|(_, made, _)| made.born).max().unwrap_or(first);
    let is_joined = |&(index, made): &(u32, Allocation)| {
        made.requested >= each.saturating_mul(3)
            && device.roles().role(device.track.stack_of(index as usize)) == Role::Plain
            && made.requested.is_multiple_of(each)
            && {
                let there = blocks.iter().filter(|(_, it, _)| it.freed > made.born && it.born < made.born);
                let all = there.map(|(_, it, _)| it.requested).fold(0, u64::saturating_add);
                // While calls go on, a batch may be as large as a part of what they have left.
                let lists = if made.born > done { lists } else { 1 };
                made.requested <= all.saturating_add(last)
                    && made.requested.saturating_mul(2).saturating_mul(lists) >= all
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

/// Whether plain code computes something from each of these results after the last call, such as the distances to a query: a line
/// allocates at least once for each of them while all are live.
fn are_read(
    device: &Device<'_>,
    of_line: &[&ModelCall],
    of_stack: &HashMap<StackId, Vec<(u32, Allocation, Instant)>>,
) -> bool {
    let Some(last) = of_line.last().map(|call| call.end) else { return false };
    of_stack.values().any(|blocks| {
        let freed = blocks.iter().map(|(_, made, _)| made.freed).min().unwrap_or(last);
        // A statistic of each result can be computed on the CPU as well.
        let least = blocks.iter().map(|(_, made, _)| made.requested / PART_OF_READ).min().unwrap_or(0);
        let mut of_line: HashMap<StackId, usize> = HashMap::new();
        for (index, made) in born_in(device, last, freed.min(device.track.entries())) {
            let stack = device.track.stack_of(index as usize);
            if made.requested >= least && device.roles().role(stack) == Role::Plain {
                *of_line.entry(stack).or_default() += 1;
            }
        }
        let most = of_line.into_values().max().unwrap_or(0);
        most >= blocks.len().max(LEAST_COLLECTED)
    })
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
        // A step may call the model twice.
        for later in [place + 2, place + 1] {
            for (index, made) in born_in(device, end(later), end(later + 1)) {
                again.insert(device.track.stack_of(index as usize), made.born);
            }
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
