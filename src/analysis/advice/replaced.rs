//! The program frees memory where it assigns a new value: until then, an attribute of a module or a variable keeps what the previous
//! call made.
//!
//! **Sign:** the stack of the free. `Module.__setattr__` frees what an attribute held since an earlier call of the model; a line that runs
//! within a call, or that a returned function runs again, frees what an earlier call has made; a backward hook frees a gradient of the
//! previous pass; a line frees keys and values after a model was trained meanwhile; or the line that calls the model frees many outputs
//! of the previous call, or its keys and values, none of which a later call has extended.
//!
//! **Fix:** do not store it, delete it earlier, or pass `use_cache=False`; the line is the one that frees.
//!
//! **Figures** are simulated with blocks that end when the module that makes them returns, or with their backward pass.

use super::held::{Block, alike, freed_at_once, is_set_anew, most_at_once, of_instant, returned};
use super::kept_outputs::behind_its_readers;
use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::rules::Evidence;
use super::stacks::calls_transformers;
use super::variables::frame_of_function;
use super::without_backward::is_cached;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, History, Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;

/// Blocks that a line frees are reported if they hold 1/N of the peak at once.
const NOTABLE_PART: u64 = 50;
/// Smaller blocks than 1/N of the peak are not looked at.
const PART_OF_BLOCK: u64 = 2000;

/// Least number of outputs of a call that are not passed on to the next one.
const LEAST_OUTPUTS: usize = 6;
/// How many of the last allocations before a line replaces a block may be what its function made from it.
const LOOKED_AT: usize = 16;

/// What keeps blocks until a line frees them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Keeper {
    Attribute,
    /// An attribute of another object, or an element of a container: the functions of an earlier call have returned.
    Stored,
    /// The same, if the function that frees has returned in between.
    Returned,
    Cache,
    /// A variable holds keys and values while a model is trained.
    CacheInTraining,
    /// A backward hook stores a gradient.
    Hook,
    /// A variable holds an object with many outputs, such as the hidden states of all layers.
    Outputs,
}

/// One finding for each line that frees.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    // Walks over references say more of the others.
    let is_asked = |keeper: Keeper| device.held().is_none() || matches!(keeper, Keeper::Hook | Keeper::CacheInTraining);
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let large = (0..).zip(device.history().allocations.iter().copied());
    let large = large.filter(|(_, made)| made.size >= peak / PART_OF_BLOCK && made.freed != NEVER);
    let mut groups: IndexMap<(Keeper, FrameId), Vec<Block<'_>>> = IndexMap::new();
    for (index, made) in large {
        let block = Block { index, made, holders: Vec::new() };
        if let Some(group) = keeper(device, calls, &block).filter(|(keeper, _)| is_asked(*keeper)) {
            groups.entry(group).or_default().push(block);
        }
    }
    let found = groups.into_iter().filter_map(|((keeper, line), seen)| {
        let seen: Vec<&Block<'_>> = seen.iter().collect();
        let mut samples = [0, seen.len() / 2, seen.len() - 1].into_iter();
        // A program may pass a few outputs on to the next call.
        let outputs = || calls.all.iter().map(|call| made_in(&seen, call)).max().unwrap_or(0);
        let has_graph = || of_instant(calls, seen[0].made.born).is_some_and(|call| calls.keeps_graph(device, call));
        if keeper == Keeper::Outputs && (outputs() < LEAST_OUTPUTS || has_graph()) {
            return None;
        }
        let is_left = (keeper == Keeper::Returned).then(|| Left::of(device, line));
        let is_wanted = |block: &Block<'_>| {
            is_set_anew(device, block)
                && !is_read(device, line, &block.made)
                && is_left.as_ref().is_none_or(|left| left.within(&block.made))
        };
        let is_known = matches!(keeper, Keeper::Cache | Keeper::CacheInTraining | Keeper::Hook);
        if !is_known && !samples.all(|place| is_wanted(seen[place])) {
            return None;
        }
        let others = if keeper == Keeper::Hook { Vec::new() } else { alike(device, calls, &seen) };
        let blocks: Vec<&Block<'_>> = seen.iter().copied().chain(&others).collect();
        let most = most_at_once(blocks.iter().map(|block| &block.made));
        (most.0 >= peak / NOTABLE_PART).then(|| finding(device, calls, keeper, line, &blocks, most)).flatten()
    });
    found.collect()
}

/// How many of these blocks a call makes.
fn made_in(blocks: &[&Block<'_>], call: &ModelCall) -> usize {
    blocks.iter().filter(|block| call.start < block.made.born && block.made.born <= call.end).count()
}

/// Whether an object or a container has kept what a call made until a later call has replaced it.
pub(super) fn is_stored(device: &Device<'_>, calls: &ModelCalls, index: u32, made: Allocation) -> bool {
    let block = Block { index, made, holders: Vec::new() };
    made.freed != NEVER && {
        let keeper = keeper(device, calls, &block).map(|(keeper, _)| keeper);
        matches!(keeper, Some(Keeper::Attribute | Keeper::Stored))
    }
}

/// What has kept a block until a later call, and the line that replaced it.
fn keeper(device: &Device<'_>, calls: &ModelCalls, block: &Block<'_>) -> Option<(Keeper, FrameId)> {
    let (index, made) = (block.index as usize, &block.made);
    let of_model = [Category::Parameter, Category::OptimizerState, Category::ModelState];
    let category = device.categories().get(index).category;
    if of_model.contains(&category) {
        return None;
    }
    let stack = device.track.stack(History::entry_before(made.freed)?);
    let line = device.sites().site_frame(stack).filter(|&line| device.sites().is_own(line))?;
    let by = freed_by(device, stack)?;
    let pass = |instant: Instant| {
        let span = device.phases().span(History::entry_before(instant)?)?;
        (span.phase == Phase::Backward).then_some(span.start)
    };
    if let Some(first) = pass(made.born) {
        let is_hook = |&later: &Instant| later > first && by == line && is_run_by_autograd(device, stack);
        return pass(made.freed).filter(is_hook).map(|_| (Keeper::Hook, line));
    }
    let call = of_instant(calls, made.born).filter(|call| made.born <= call.end && call.until < made.freed)?;
    if category == Category::Gradient {
        return None;
    }
    if is_assignment(device, by) {
        return Some((Keeper::Attribute, line));
    }
    if by == line && is_within_call(device, calls, made.freed, stack) {
        return Some((Keeper::Stored, line));
    }
    if device.roles().role(stack) != Role::Plain || call.backward.is_some() {
        return None;
    }
    let is_cached = is_cached(device, device.track.stack_of(index));
    let keeper = if (is_cached || category == Category::KvCache) && trained_within(calls, made).is_some() {
        Keeper::CacheInTraining
    } else if line != call.line {
        Keeper::Returned
    } else if is_cached {
        Keeper::Cache
    } else {
        Keeper::Outputs
    };
    (by == line || keeper != Keeper::Returned).then_some((keeper, line))
}

/// The first call whose backward pass runs while a block is live.
fn trained_within<'c>(calls: &'c ModelCalls, made: &Allocation) -> Option<&'c ModelCall> {
    let mut later = calls.all.iter().filter(|call| call.start >= made.born);
    later.find(|call| call.backward.as_ref().is_some_and(|pass| pass.end < made.freed))
}

/// Which stacks have left the function of a line.
struct Left<'d, 'a> {
    device: &'d Device<'a>,
    has_left: Vec<bool>,
}

impl<'d, 'a> Left<'d, 'a> {
    fn of(device: &'d Device<'a>, line: FrameId) -> Self {
        let has_left = |stack: u32| {
            let stack = StackId(stack);
            device.sites().has_python(stack) && frame_of_function(device, stack, line).is_none()
        };
        let has_left = (0..device.snapshot().stacks.len() as u32).map(has_left).collect();
        Self { device, has_left }
    }

    /// Whether another function runs while a block is live: its function has returned.
    fn within(&self, made: &Allocation) -> bool {
        (made.born..made.freed.min(self.device.track.entries()))
            .any(|entry| self.has_left.get(self.device.track.stack(entry).index()).copied().unwrap_or(false))
    }
}

/// Whether the function that replaces a block has read it, as a memory of earlier tokens: before that line, it made a block that
/// may be the old one and a new one together.
fn is_read(device: &Device<'_>, line: FrameId, old: &Allocation) -> bool {
    let Some(entry) = History::entry_before(old.freed) else { return false };
    let stack = device.track.stack(entry);
    let is_of_function = |index: u32| {
        let other = device.track.stack_of(index as usize);
        let frame = frame_of_function(device, other, line);
        frame.is_some() && frame != Some(line) && outside(device, other, frame) == outside(device, stack, Some(line))
    };
    let both = old.requested + 1..=old.requested.saturating_mul(2);
    let before = born_in(device, old.born, old.freed).collect::<Vec<_>>().into_iter().rev();
    before.take(LOOKED_AT).any(|(index, made)| both.contains(&made.requested) && is_of_function(index))
}

/// The frames that have led to a frame of a stack.
fn outside<'d>(device: &'d Device<'_>, stack: StackId, frame: Option<FrameId>) -> &'d [FrameId] {
    let frames = device.snapshot().stacks.frame_ids(stack);
    let depth = frames.iter().position(|&it| Some(it) == frame);
    depth.map_or(&[], |depth| &frames[depth + 1..])
}

/// Whether a function that a call of a model runs at this instant frees, not the line that calls it.
fn is_within_call(device: &Device<'_>, calls: &ModelCalls, freed: Instant, stack: StackId) -> bool {
    let later = calls.all.partition_point(|call| call.start < freed).checked_sub(1);
    let call = later.map(|place| &calls.all[place]).filter(|call| freed <= call.end);
    let frames = device.snapshot().stacks.frame_ids(stack);
    call.is_some_and(|call| frames.iter().position(|&frame| frame == call.line).is_some_and(|depth| depth > 0))
}

/// Whether a backward pass runs a function, such as a hook: the threads of autograd have none of the program's frames below it.
fn is_run_by_autograd(device: &Device<'_>, stack: StackId) -> bool {
    let (snapshot, sites) = (device.snapshot(), device.sites());
    let frames = snapshot.stacks.frame_ids(stack).iter().filter(|&&frame| sites.kind(frame).is_python());
    let mut frames = frames.filter_map(|&frame| snapshot.stacks.frame(frame)).peekable();
    frames.peek().is_some() && frames.all(|frame| snapshot.strings.get(frame.name) != "<module>")
}

/// The innermost Python frame of a stack.
fn freed_by(device: &Device<'_>, stack: StackId) -> Option<FrameId> {
    let mut frames = device.snapshot().stacks.frame_ids(stack).iter().copied();
    frames.find(|&frame| device.sites().kind(frame).is_python())
}

/// Whether a frame assigns to an attribute of a module.
fn is_assignment(device: &Device<'_>, frame: FrameId) -> bool {
    let snapshot = device.snapshot();
    snapshot.stacks.frame(frame).is_some_and(|frame| {
        snapshot.strings.get(frame.name) == "__setattr__"
            && snapshot.strings.get(frame.filename).ends_with("torch/nn/modules/module.py")
    })
}

/// Whether each call that runs while the keys and values of another one are live makes its own, none of them larger than those.
fn is_never_read(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> bool {
    let makes = |call: &ModelCall| {
        born_in(device, call.start, call.end)
            .filter(|&(index, _)| is_cached(device, device.track.stack_of(index as usize)))
            .count()
    };
    let is_extended = |block: &&Block<'_>| {
        let freed = History::entry_before(block.made.freed).map_or(StackId::EMPTY, |entry| device.track.stack(entry));
        is_cached(device, freed)
    };
    let mut during = calls
        .all
        .iter()
        .filter(|call| blocks.iter().any(|block| block.made.born < call.start && call.end < block.made.freed));
    let Some(first) = blocks.first().and_then(|block| of_instant(calls, block.made.born)) else { return false };
    let all = makes(first);
    !blocks.iter().any(is_extended) && during.all(|call| makes(call) == all)
}

fn finding(
    device: &Device<'_>,
    calls: &ModelCalls,
    keeper: Keeper,
    line: FrameId,
    blocks: &[&Block<'_>],
    most: Bytes<u64>,
) -> Option<Finding> {
    let ends = |end: &dyn Fn(&Block<'_>) -> Option<Instant>| Lifetimes {
        freed: blocks
            .iter()
            .filter_map(|block| Some((block.index, end(block).filter(|&end| end < block.made.freed)?)))
            .collect(),
        ..Lifetimes::default()
    };
    let (evidence, fix) = match keeper {
        Keeper::Hook => {
            let done = |block: &Block<'_>| Some(device.phases().span(History::entry_before(block.made.born)?)?.end);
            let mut lives = ends(&done);
            // Autograd frees most gradients earlier.
            lives.at_least = true;
            let change = "do not keep the gradients of each backward pass where this line stores them";
            let code = ["# store what is needed with .detach().cpu(), or a statistic of it"];
            (
                format!(
                    "{most} of gradients of each backward pass stay alive until this line replaces them in the next one"
                ),
                Fix::new(change, code, lives),
            )
        }
        Keeper::CacheInTraining => {
            let trained = |block: &Block<'_>| trained_within(calls, &block.made).map(|call| call.start);
            let change = "delete the cache of keys and values before training";
            (
                format!(
                    "{most} of keys and values stay alive while the model is trained, until this line replaces them"
                ),
                Fix::new(
                    change,
                    ["del outputs  # all variables that refer to the cache, before the forward pass"],
                    ends(&trained),
                ),
            )
        }
        Keeper::Outputs => {
            let next = |block: &Block<'_>| of_instant(calls, block.made.born).map(|call| call.until);
            let at_once = |block: &Block<'_>| Some(returned(device, block.index, &block.made, false));
            let change = "delete the output before the next call of the model, or do not return what is not read";
            let code = ["del outputs  # at the end of each iteration; or output_hidden_states=False"];
            let unknown = "it is not known which outputs the program reads";
            (
                format!(
                    "{most} of the last call's outputs stay alive while the next call runs, until this line has run again"
                ),
                Fix::up_to(change, code, ends(&next), ends(&at_once), unknown),
            )
        }
        Keeper::Attribute | Keeper::Stored | Keeper::Returned => {
            // Backward may need what the attribute holds, or not.
            let at_latest = |block: &Block<'_>| {
                let trained = of_instant(calls, block.made.born).filter(|call| call.backward.is_some());
                let returned = || returned(device, block.index, &block.made, true);
                Some(trained.map_or_else(returned, |call| behind_its_readers(device, call, &block.made)))
            };
            let at_once = |block: &Block<'_>| Some(returned(device, block.index, &block.made, false));
            let holder =
                if keeper == Keeper::Attribute { "an attribute of a module" } else { "an object or a container" };
            let change = "do not keep the result of each call where this line stores it";
            let code = ["# delete the assignment; or store what is needed with .detach().cpu()"];
            let unknown = "it is not known when the program has finished with it";
            (
                format!("{holder} holds {most} that every call makes anew, until the next call replaces it"),
                Fix::up_to(change, code, ends(&at_latest), ends(&at_once), unknown),
            )
        }
        Keeper::Cache => {
            if !is_never_read(device, calls, blocks) {
                return None;
            }
            let change = "pass use_cache=False where no further token is generated";
            let stack = device.track.stack_of(blocks.first()?.index as usize);
            let lives = Lifetimes { freed: freed_at_once(device, calls, blocks), ..Lifetimes::default() };
            (
                format!(
                    "{most} are keys and values of calls that no later call extends, kept until this line has run again"
                ),
                Fix::new(change, ["outputs = model(..., use_cache=False)"], lives)
                    .by(calls_transformers(device, stack, line).then_some(Rewrite::Argument("use_cache=False"))),
            )
        }
    };
    Some(Finding { kind: RuleKind::Held, line: Some(line), evidence, cost: None, fixes: vec![fix] })
}
