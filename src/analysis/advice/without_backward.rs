//! The model is called with gradients enabled, but no backward pass follows, as in an evaluation. Each call keeps its activations
//! needlessly, until the program releases the result.
//!
//! **Sign:** calls from a line, of which most have no backward pass, keep what training would need for one.
//!
//! **Fix:** call the model under `torch.no_grad()`. If training calls it by the same line, the line named is that of the caller,
//! which training does not have.
//!
//! **Figures** are simulated with blocks that end when the module that makes them has returned.

use super::graphs::Graphs;
use super::kept_over_steps::{inputs, is_of_forward, sizes_of_inputs};
use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::replaced;
use super::rules::Evidence;
use super::variables::frame_of_function;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::bytes::Bytes;
use crate::model::{Action, FrameId, StackId};
use crate::replay::{Allocation, Instant, NEVER};
use crate::simulation::changes::{Editor, Lifetimes, is_log_softmax};
use std::collections::{HashMap, HashSet};

/// Frees of a release are at most this many entries apart: each is requested and completed, and there may be another one in between,
/// such as that of an input.
const CLOSE: Instant = 4;

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if calls.all.is_empty() {
        return findings(device, &ModelCalls::of_functions(device));
    }
    findings(device, calls)
}

fn findings(device: &Device<'_>, calls: &ModelCalls) -> Vec<Finding> {
    calls.by_place().into_iter().filter_map(|of_line| finding(device, calls, &of_line)).collect()
}

/// The memory that calls from a line keep although no backward pass follows them.
struct Wasted<'c> {
    calls: Vec<&'c ModelCall>,
    /// Bytes of the call that keeps the most.
    most: u64,
    /// Whether this memory outlives the next two calls from the line: a variable holds it through one.
    piles_up: bool,
}

/// The blocks of a call that outlive it, except for those that also do so under `no_grad`: workspaces of libraries, and keys and
/// values that the model returns.
fn kept(device: &Device<'_>, call: &ModelCall) -> Vec<(u32, Allocation)> {
    let categories = device.categories();
    let stays = |index: u32| matches!(categories.get(index as usize).category, Category::Workspace | Category::KvCache);
    let made = born_in(device, call.start, call.end);
    made.filter(|&(index, made)| made.freed > call.end && !stays(index)).collect()
}

/// Whether calls from a line that have no backward pass keep their graphs over two more calls.
pub(super) fn keep_graphs(device: &Device<'_>, calls: &ModelCalls, of_line: &[&ModelCall]) -> bool {
    wasted(device, calls, of_line).is_some_and(|wasted| wasted.piles_up)
}

fn wasted<'c>(device: &Device<'_>, all: &ModelCalls, of_line: &[&'c ModelCall]) -> Option<Wasted<'c>> {
    // The purpose of a call that runs out of memory is unknown.
    let fails =
        |call: &ModelCall| device.track.actions()[call.start as usize..call.until as usize].contains(&Action::Oom);
    let is_wasted = |call: &&ModelCall| !call.is_trained(device) && !fails(call) && all.keeps_graph(device, call);
    let calls: Vec<&ModelCall> = of_line.iter().copied().filter(is_wasted).collect();
    // A line that trains may end in a pass whose backward was not recorded.
    if calls.len() * 2 <= of_line.len() {
        return None;
    }
    let first = *calls.first()?;
    let kept = |call: &ModelCall| kept(device, call);
    let bytes = |blocks: &[(u32, Allocation)]| blocks.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    // An object or a container that the program owns keeps results under `no_grad` as well.
    let mut stored = kept(first);
    stored.retain(|&(index, made)| replaced::is_stored(device, all, index, made));
    if bytes(&stored) > bytes(&kept(first)) / 2 {
        return None;
    }
    let outlives = |calls: &&[&ModelCall]| {
        bytes(&kept(calls[0])) / 2 < {
            let later = kept(calls[0]).into_iter().filter(|(_, made)| made.freed > calls[2].end);
            later.map(|(_, made)| made.size).fold(0, u64::saturating_add)
        }
    };
    let outliving = calls.windows(3).filter(outlives).count();
    let piles_up = calls.len() >= 3 && outliving * 2 >= calls.len() - 2;
    let is_released = kept(first).iter().any(|(_, made)| made.freed != NEVER);
    if !piles_up && !is_released {
        return None;
    }
    let most = calls.iter().map(|call| bytes(&kept(call))).max()?;
    Some(Wasted { calls, most, piles_up })
}

fn finding(device: &Device<'_>, all: &ModelCalls, of_line: &[&ModelCall]) -> Option<Finding> {
    let Wasted { calls, most, piles_up } = wasted(device, all, of_line)?;
    let first = *calls.first()?;
    let lives = lives(device, all, &calls);
    // A list may hold what a function returns rather than its graph.
    if piles_up && all.functions().is_some() {
        return None;
    }
    if piles_up {
        let graphs =
            Graphs::of(device, of_line, inputs(device, of_line), |index, made| is_of_forward(device, index, made));
        let evidence = format!(
            "each call to the model leaves its graph alive, up to {}: a tensor that is stored here references it, and no \
             backward pass frees it",
            Bytes(most)
        );
        // After the call, another one may be trained.
        let is_beside_training = device
            .phases()
            .spans
            .iter()
            .any(|span| span.phase == Phase::Backward && (first.end..first.until).contains(&span.start));
        let own = own_line(device, all, first);
        let is_shared = own != first.line;
        let stored = if is_beside_training || is_shared { None } else { stored_at(device, first, &calls) };
        let line = stored.unwrap_or(own);
        return Some(graphs.finding(Some(line), evidence, Some(&lives)));
    }
    Some(Finding {
        kind: RuleKind::EvalWithoutNoGrad,
        line: Some(own_line(device, all, first)),
        evidence: format!("each call keeps {} for a backward pass that never comes", Bytes(most)),
        cost: None,
        fixes: vec![
            Fix::new(
                "call the model under torch.no_grad()",
                ["with torch.no_grad():  # or @torch.no_grad() above the function"],
                lives,
            )
            .by(Rewrite::NoGrad),
        ],
    })
}

/// The line that calls the model, or, if training calls it by the same line, the first caller of it that training does not have:
/// `torch.no_grad()` must not be around training.
fn own_line(device: &Device<'_>, all: &ModelCalls, call: &ModelCall) -> FrameId {
    let trained = all.all.iter().filter(|call| call.is_trained(device));
    let of_training: HashSet<FrameId> = trained.flat_map(|call| callers(device, call)).copied().collect();
    if !of_training.contains(&call.line) {
        return call.line;
    }
    let is_alone = |frame: &&FrameId| device.sites().is_own(**frame) && !of_training.contains(*frame);
    callers(device, call).iter().find(is_alone).copied().unwrap_or(call.line)
}

/// The line that calls a model, and its callers.
pub(super) fn callers<'d>(device: &'d Device<'_>, call: &ModelCall) -> &'d [FrameId] {
    let stacks = born_in(device, call.start, call.end).map(|(index, _)| device.track.stack_of(index as usize));
    let mut frames = stacks.map(|stack| device.snapshot().stacks.frame_ids(stack));
    let with_line = frames.find_map(|frames| frames.iter().position(|&it| it == call.line).map(|at| &frames[at..]));
    with_line.unwrap_or_default()
}

/// The last line that uses the result of a call: a line of the function that calls the model if there is one, otherwise the user's own.
fn stored_at(device: &Device<'_>, call: &ModelCall, calls: &[&ModelCall]) -> Option<FrameId> {
    let behind = born_in(device, call.end, call.until);
    // Stacks that also allocate before the call allocate inputs: they belong to the next call.
    let before: HashSet<StackId> =
        born_in(device, 0, call.start).map(|(index, _)| device.track.stack_of(index as usize)).collect();
    let sizes = sizes_of_inputs(device, call);
    let is_input = |index: u32, made: &Allocation| {
        before.contains(&device.track.stack_of(index as usize)) || sizes.contains(&made.requested)
    };
    // Without training, blocks between two calls may be computed from the result of the first one.
    let is_data = |made: &Allocation| device.phases().at(made.born) == Phase::Data && device.phases().has_training();
    // A tensor holds its graph, and a sum those of all calls: it is freed right behind them, not later.
    let last = end_of_release(device, call, calls);
    let own = behind.filter(|(index, made)| !is_data(made) && !is_input(*index, made) && made.freed <= last);
    let stacks: Vec<StackId> =
        own.map(|(index, _)| device.track.stack_of(index as usize)).filter(|&stack| stack != StackId::EMPTY).collect();
    // A line that draws a sample from the result stores no graph.
    let line = |stack: StackId| frame_of_function(device, stack, call.line);
    let samples = stacks.iter().filter(|&&stack| is_sample(device, stack));
    let sampled: HashSet<FrameId> = samples.filter_map(|&stack| line(stack)).collect();
    let stack = stacks.into_iter().rfind(|&stack| line(stack).is_none_or(|line| !sampled.contains(&line)))?;
    let inner = || device.sites().site_frame(stack).filter(|&frame| device.sites().is_own(frame));
    line(stack).or_else(inner)
}

/// The last instant at which a tensor that holds the graph of a call may be freed: behind the graph, and behind those of other calls
/// if the program frees them in the same go.
fn end_of_release(device: &Device<'_>, call: &ModelCall, calls: &[&ModelCall]) -> Instant {
    let freed = |call: &ModelCall| kept(device, call).into_iter().map(|(_, made)| made.freed).filter(|&at| at != NEVER);
    let Some(mut last) = freed(call).max() else { return NEVER };
    let mut all: Vec<Instant> = calls.iter().flat_map(|call| freed(call)).filter(|&at| at > last).collect();
    all.sort_unstable();
    for at in all {
        if at - last > CLOSE {
            break;
        }
        last = at;
    }
    last.saturating_add(CLOSE)
}

/// Whether a stack draws a sample of a distribution.
fn is_sample(device: &Device<'_>, stack: StackId) -> bool {
    let snapshot = device.snapshot();
    snapshot.stacks.frames(stack).any(|frame| {
        snapshot.strings.get(frame.name) == "sample"
            && snapshot.strings.get(frame.filename).replace('\\', "/").contains("torch/distributions/")
    })
}

/// Frees the memory that the calls keep at the time when the program frees their results.
pub(super) fn lives(device: &Device<'_>, all: &ModelCalls, calls: &[&ModelCall]) -> Lifetimes {
    let mut lives = Lifetimes::default();
    let passes = calls.iter().map(|call| call.start..call.end).collect();
    let blocks: Vec<u32> = calls.iter().flat_map(|call| kept(device, call)).map(|(index, _)| index).collect();
    let editor = Editor::new(device);
    let releases = match all.functions() {
        Some(functions) => editor.releases_of_functions(functions, passes, &blocks),
        None => editor.releases_without_backward(passes, &blocks),
    };
    let freed = |index: u32| device.track.allocation(index as usize).map_or(NEVER, |made| made.freed);
    lives.freed.extend(releases.into_iter().filter(|&(index, at)| at < freed(index)));
    for call in calls {
        lives.freed.extend(intermediates(device, call));
    }
    let returned: HashMap<u32, Option<Instant>> = calls.iter().flat_map(|call| returned(device, call, calls)).collect();
    lives.freed.retain(|(index, _)| !returned.contains_key(index));
    lives
        .freed
        .extend(returned.into_iter().filter_map(|(index, at)| Some((index, at.filter(|&at| at < freed(index))?))));
    lives.freed.sort_unstable();
    lives.freed.dedup_by_key(|(index, _)| *index);
    lives
}

/// The blocks that a variable holds until the line has run again, with the instant at which it has, if it does: the
/// block that a loss is computed from, and the keys and values that a model of transformers returns with it.
fn returned(device: &Device<'_>, call: &ModelCall, calls: &[&ModelCall]) -> Vec<(u32, Option<Instant>)> {
    let stack_of = |index: u32| device.track.stack_of(index as usize);
    let made: Vec<(u32, Allocation)> = born_in(device, call.start, call.until).collect();
    let Some(loss) = made.iter().position(|&(index, _)| is_log_softmax(device, stack_of(index))) else {
        return Vec::new();
    };
    let logits = made[..loss].iter().rev().find(|(_, it)| it.requested == made[loss].1.requested);
    let Some(&(logits, Allocation { freed, .. })) = logits else { return Vec::new() };
    let again =
        born_in(device, call.until, device.track.entries()).find(|&(later, _)| stack_of(later) == stack_of(logits));
    let again = again.map(|(_, again)| {
        let around = calls.iter().find(|call| call.start < again.born && again.born <= call.end);
        around.map_or(again.born, |call| call.end)
    });
    // Backward does not need the logits: a fix that frees them early keeps only the loss.
    let is_bound = again.is_none_or(|again| freed >= again);
    let cached = made.iter().map(|&(index, _)| index).filter(|&index| is_bound && is_cached(device, stack_of(index)));
    cached.chain([logits]).map(|index| (index, again)).collect()
}

/// Whether a cache of transformers allocates a block.
pub(super) fn is_cached(device: &Device<'_>, stack: StackId) -> bool {
    let snapshot = device.snapshot();
    let text = |id| snapshot.strings.get(id);
    snapshot
        .stacks
        .frames(stack)
        .any(|frame| text(frame.name) == "update" && text(frame.filename).ends_with("transformers/cache_utils.py"))
}

/// Blocks that functions of PyTorch compute from a result, such as the logarithms of a softmax: each is freed at the next one.
fn intermediates(device: &Device<'_>, call: &ModelCall) -> Vec<(u32, Instant)> {
    let sites = device.sites();
    let behind: Vec<(u32, Allocation)> = born_in(device, call.end, call.until).collect();
    let is_inner = |index: u32| {
        let frames = device.snapshot().stacks.frame_ids(device.track.stack_of(index as usize));
        let innermost = frames.iter().copied().find(|&frame| sites.kind(frame).is_python());
        innermost.is_some_and(|frame| !sites.is_own(frame))
    };
    let pairs = behind.windows(2).filter(|pair| is_inner(pair[0].0) && pair[0].1.freed > pair[1].1.born);
    pairs.map(|pair| (pair[0].0, pair[1].1.born)).collect()
}
