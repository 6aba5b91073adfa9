//! A second copy of the weights stays on the device: a state dict that was loaded or copied there, or a model that is never
//! called.
//!
//! **Sign:** blocks of one line with the sizes of at least 90% of the weights, made by `torch.load`, `deepcopy`, `Module.to` or a
//! loop over the state dict, that stay live next to the weights. A moving average of the weights is used in each step, and is no
//! such copy.
//!
//! **Fix:** keep the copy on the CPU; load with `map_location="cpu"`.
//!
//! **Figures** are simulated without these blocks. States that `Optimizer.load_state_dict` keeps are not counted.

use super::model_calls::{ModelCall, ModelCalls, born_in, inside};
use super::rules::Evidence;
use super::{Finding, Fix, Rewrite, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, PlaceId, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Least share of a copy's bytes, in percent, in blocks with the sizes of parameters.
const LEAST_LIKE: u64 = 90;
const LEAST_BLOCKS: usize = 4;

/// The number of tensors of each weight's size in a checkpoint with optimizer state: momentum, or both moments of Adam.
const WITH_STATES: [usize; 2] = [2, 3];

/// Bytes of the largest element.
const ELEMENT: u64 = 16;
/// Least number of steps that a copy stays live without being called.
const LEAST_STEPS: usize = 3;

/// What is unknown about a copy that is made before training.
const MAY_BE_AVERAGE: &str =
    "the recording does not show whether the program updates this copy in place, as for a running average";

type Block = (u32, Allocation);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Way {
    Loaded,
    /// `copy.deepcopy` of plain tensors.
    Copied,
    /// `copy.deepcopy` of a model.
    Model,
    /// One tensor at a time, by a line of the user's code.
    Cloned,
    /// `Module.to` or `Module.cuda` of a second model.
    Moved,
}

/// One finding for each line that makes a copy that stays live while the model is trained or called.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let phases = device.phases();
    let used = |made: &Allocation| {
        phases.spans.iter().any(|span| span.phase == Phase::Forward && made.born <= span.start && made.freed > span.end)
    };
    let steps = Steps::of(device);
    let Made { mut copies, moved: models, cloned: mut lines } = Made::of(device, &steps, used);
    lines.retain(|_, blocks| steps.are_replaced(blocks));
    copies.extend(lines.into_iter().map(|(line, blocks)| ((Way::Cloned, line), blocks)));
    let models = moved(device, calls, &steps, &models);
    copies.extend(models.into_iter().map(|(line, blocks)| ((Way::Moved, line), blocks)));
    copies.retain(|(way, _), blocks| {
        // `Tensor.__deepcopy__` first makes an empty tensor, whose block is freed at once.
        blocks.retain(|(_, made)| made.requested > ELEMENT);
        // Copies that replace each other are one mistake, the last one included.
        let is_one_mistake = *way != Way::Copied || steps.are_replaced(blocks);
        blocks.retain(|(_, made)| is_one_mistake || used(made));
        *way != Way::Model
            || is_kept_aside(device, &steps, blocks)
            || is_never_called(device, calls, &steps, blocks)
            || are_snapshots(device, calls, &steps, blocks)
    });
    let finding = |((way, line), blocks): ((Way, u32), Vec<Block>)| {
        let all = bytes(&blocks);
        let blocks = if way == Way::Loaded { without_states(device, blocks) } else { blocks };
        let states = all.saturating_sub(bytes(&blocks));
        let last = *steps.copies(&blocks).last()?;
        // A copy of a model in training may be its best state so far; one that is made before may become a running average.
        let is_early = way == Way::Model && steps.until(last.first()?.1.born) < LEAST_STEPS;
        let doubt = is_early.then_some(MAY_BE_AVERAGE);
        is_like_weights(device, &blocks, last).then(|| finding(way, line, &blocks, bytes(last), states, doubt))
    };
    copies.into_iter().filter_map(finding).collect()
}

/// Blocks that may be part of a copy, found in one pass over the allocations.
#[derive(Default)]
struct Made {
    /// By the functions that copy or load, of each line that calls them.
    copies: BTreeMap<(Way, u32), Vec<Block>>,
    /// By moves of modules, of each call path in the user's code.
    moved: BTreeMap<Vec<FrameId>, Vec<Block>>,
    /// By lines that allocate one tensor at a time, which stays for the rest of the step. Lines that repeatedly allocate a whole
    /// copy, each replacing the previous one, keep the best or latest weights. A copy that is allocated once and stays, such as a
    /// running average, is in use.
    cloned: BTreeMap<u32, Vec<Block>>,
}

impl Made {
    fn of(device: &Device<'_>, steps: &Steps, used: impl Fn(&Allocation) -> bool) -> Self {
        let (stacks, sites, roles) = (&device.snapshot().stacks, device.sites(), device.roles());
        let ways: Vec<Option<Way>> = (0..stacks.len() as u32).map(|stack| way(device, StackId(stack))).collect();
        let way_of = |stack: StackId| ways.get(stack.index()).copied().flatten();
        let is_plain = |stack: StackId| roles.role(stack) == Role::Plain && stack != StackId::EMPTY;
        let may_copy = |stack: StackId| way_of(stack).is_some() || is_plain(stack) || roles.moves_module(stack);
        let mut found = Self::default();
        let mut step = 0;
        for (index, made, stack) in device.allocations_by(may_copy) {
            let block = (index, *made);
            if let Some(way) = way_of(stack)
                && (way != Way::Loaded || used(made))
                && let Some(line) = sites.site_frame(stack)
            {
                found.copies.entry((way, line.0)).or_default().push(block);
            }
            if made.born == 0 {
                continue;
            }
            if made.requested > ELEMENT && roles.moves_module(stack) {
                let frames = stacks.frame_ids(stack).iter().copied();
                let own = frames.filter(|&frame| sites.is_own(frame)).collect();
                found.moved.entry(own).or_default().push(block);
            }
            while steps.ends.get(step).is_some_and(|&end| end <= made.born) {
                step += 1;
            }
            // It is unknown how long the last copy would stay live.
            let outlives_step = steps.ends.get(step).is_none_or(|&end| end <= made.freed);
            if outlives_step
                && is_plain(stack)
                && !is_weight(device, index)
                && let Some(line) = sites.site_frame(stack)
            {
                found.cloned.entry(line.0).or_default().push(block);
            }
        }
        found
    }
}

/// Lines that move to the device a model that is never called, with a layer that the called model has in another size, such as the
/// head of a pretrained model. A running average has all the sizes of its model, and no allocation shows that it is updated.
fn moved(
    device: &Device<'_>,
    calls: &ModelCalls,
    steps: &Steps,
    models: &BTreeMap<Vec<FrameId>, Vec<Block>>,
) -> BTreeMap<u32, Vec<Block>> {
    let is_of_others =
        |own: &[FrameId], line: FrameId| models.keys().any(|other| other != own && other.contains(&line));
    let idle = models.iter().filter_map(|(own, blocks)| {
        let line = own.iter().copied().find(|&line| !is_of_others(own, line))?;
        let others: Vec<Block> =
            models.iter().filter(|(other, _)| *other != own).flat_map(|(_, other)| other).copied().collect();
        let mut sizes: HashMap<u64, usize> = HashMap::new();
        for (_, made) in &others {
            *sizes.entry(made.requested).or_default() += 1;
        }
        let differs = blocks.iter().any(|(_, made)| made.requested > SCALAR && !sizes.contains_key(&made.requested));
        let like = bytes(&like_weights(sizes, blocks));
        let is_like = like.saturating_mul(100) >= bytes(blocks).saturating_mul(LEAST_LIKE);
        if !differs || !is_like {
            return None;
        }
        // Most of the other model has gradients, so it is the one that is called.
        let trained: HashSet<u64> = device.allocations_of(Category::Gradient).map(|(_, made)| made.requested).collect();
        let of_trained: Vec<Block> =
            others.iter().filter(|(_, made)| trained.contains(&made.requested)).copied().collect();
        let is_idle = bytes(&of_trained) > bytes(&others) / 2;
        (is_idle && is_never_called(device, calls, steps, blocks)).then(|| (line.0, blocks.clone()))
    });
    idle.collect()
}

/// Whether copies of a model replace each other, and none of them is called: a target network or a teacher is called in
/// most steps, without a backward pass.
fn is_kept_aside(device: &Device<'_>, steps: &Steps, blocks: &[Block]) -> bool {
    let Some((_, first)) = blocks.first() else { return false };
    let mut spans = device.phases().spans.iter().filter(|span| span.start >= first.born).peekable();
    let (mut trained, mut other) = (0, 0);
    while let Some(span) = spans.next() {
        match (span.phase, spans.peek().map(|next| next.phase)) {
            (Phase::Forward, Some(Phase::Backward)) => trained += 1,
            (Phase::Forward, _) => other += 1,
            _ => {}
        }
    }
    steps.are_replaced(blocks) && other * 2 <= trained
}

/// Whether a copy of a model stays live through several steps that call only the original: every call keeps a graph
/// and has a backward pass, or comes from a place that called the original before the copy was made. The copy has no gradients.
fn is_never_called(device: &Device<'_>, calls: &ModelCalls, steps: &Steps, blocks: &[Block]) -> bool {
    let Some(copied) = blocks.iter().map(|(_, made)| made.born).max() else { return false };
    let stays = blocks.iter().all(|(_, made)| steps.until(made.freed) >= steps.until(copied) + LEAST_STEPS);
    let (before, later) = calls.all.split_at(calls.all.partition_point(|call| call.start < copied));
    // A running average that is made late, and evaluated like the model, is called from places of its own.
    let known: HashSet<PlaceId> = if steps.until(copied) >= LEAST_STEPS {
        before.iter().map(|call| call.place).collect()
    } else {
        HashSet::new()
    };
    let is_of_original =
        |call: &ModelCall| call.is_trained(device) && call.keeps_graph(device) || known.contains(&call.place);
    stays
        && later.first().is_some_and(|first| !calls_two_alike(device, first))
        && later.iter().all(is_of_original)
        && !has_gradients(device, steps, blocks)
}

/// Whether several copies of a model stay, and the first is never called. A running average is a single copy.
fn are_snapshots(device: &Device<'_>, calls: &ModelCalls, steps: &Steps, blocks: &[Block]) -> bool {
    let copies = steps.copies(blocks);
    let are_alike = copies.windows(2).all(|pair| requested(pair[0]) == requested(pair[1]));
    copies.len() > 1
        && are_alike
        && copies.iter().all(|copy| steps.stays(copy, blocks))
        && copies.first().is_some_and(|first| is_never_called(device, calls, steps, first))
}

/// Whether two lines of a model's function call much the same layers, such as a student and its teacher in one module.
fn calls_two_alike(device: &Device<'_>, call: &ModelCall) -> bool {
    let stacks: HashSet<StackId> =
        born_in(device, call.start, call.end).map(|(index, _)| device.track.stack_of(index as usize)).collect();
    let paths: Vec<Vec<FrameId>> = stacks.iter().map(|&stack| inside(device, stack, call.line)).collect();
    let Some(first) = paths.first() else { return false };
    let is_shared =
        |depth: usize| paths.iter().all(|path| path.iter().rev().nth(depth) == first.iter().rev().nth(depth));
    let shared = (0..first.len()).take_while(|&depth| is_shared(depth)).count();
    let mut branches: HashMap<FrameId, HashSet<&[FrameId]>> = HashMap::new();
    for path in &paths {
        if let Some((&line, layers)) = path[..path.len() - shared].split_last() {
            branches.entry(line).or_default().insert(layers);
        }
    }
    let all: Vec<&HashSet<&[FrameId]>> = branches.values().collect();
    let are_alike = |one: &HashSet<&[FrameId]>, other: &HashSet<&[FrameId]>| {
        one.intersection(other).count() * 2 > one.len().max(other.len()) && (one.len() + other.len()) * 2 > paths.len()
    };
    (1..all.len()).any(|place| all[..place].iter().any(|one| are_alike(one, all[place])))
}

/// Whether the gradients with the sizes of these copies need more bytes than the weights without the copies do.
fn has_gradients(device: &Device<'_>, steps: &Steps, blocks: &[Block]) -> bool {
    let sizes: HashSet<u64> = blocks.iter().map(|(_, made)| made.requested).collect();
    let bytes_at = |instant: Instant, wanted: &dyn Fn(u32) -> bool| {
        let all = (0u32..).zip(&device.history().allocations);
        let live =
            all.filter(|(index, made)| sizes.contains(&made.requested) && made.allocated_at(instant) && wanted(*index));
        live.map(|(_, made)| made.requested).fold(0, u64::saturating_add)
    };
    let is_gradient = |index: u32| device.categories().get(index as usize).category == Category::Gradient;
    let is_own = |index: u32| is_weight(device, index) && !is_one_of(blocks, index);
    steps.ends.last().is_none_or(|&last| {
        // Gradients are live when the optimizer starts.
        let step = device.phases().spans.iter().find(|span| span.end == last && span.phase == Phase::Optimizer);
        let instant = step.map_or(last, |span| span.start);
        bytes_at(instant, &is_gradient) > bytes_at(instant, &is_own)
    })
}

/// The ends of all optimizer steps. If an optimizer allocates nothing in some of them, as a fused one does, these are not visible; then
/// the ends of the backward passes before them.
struct Steps {
    ends: Vec<Instant>,
    last_request: Instant,
}

impl Steps {
    fn of(device: &Device<'_>) -> Self {
        let ends = |phase: Phase| -> Vec<Instant> {
            device.phases().spans.iter().filter(|span| span.phase == phase).map(|span| span.end).collect()
        };
        let (steps, passes) = (ends(Phase::Optimizer), ends(Phase::Backward));
        Self {
            ends: if steps.len() < passes.len() { passes } else { steps },
            last_request: device.history().allocations.last().map_or(0, |newest| newest.born),
        }
    }

    fn until(&self, instant: Instant) -> usize {
        self.ends.partition_point(|&end| end <= instant)
    }

    /// Blocks belong to one copy if no step ends between them.
    fn copies<'b>(&self, blocks: &'b [Block]) -> Vec<&'b [Block]> {
        blocks.chunk_by(|(_, one), (_, next)| self.until(one.born) == self.until(next.born)).collect()
    }

    /// Whether one of the copies in these blocks stays: the program never frees it, or frees both it and the newest copy after
    /// its last request, as at exit.
    fn stays(&self, copy: &[Block], blocks: &[Block]) -> bool {
        let exits = blocks.last().is_some_and(|(_, newest)| newest.freed != NEVER && newest.freed > self.last_request);
        copy.iter().all(|(_, made)| made.freed == NEVER || exits && made.freed > self.last_request)
    }

    /// Whether there are several copies, each freed once the next one is complete. Some may stay, such as the best one of each run,
    /// but not most.
    fn are_replaced(&self, blocks: &[Block]) -> bool {
        let stays = |copy: &[Block]| self.stays(copy, blocks);
        let replaces = |pair: &[&[Block]]| {
            let next = pair[1][0].1.born;
            requested(pair[0]) == requested(pair[1])
                && (stays(pair[0]) || pair[0].iter().all(|(_, made)| made.freed != NEVER && made.freed > next))
        };
        let copies = self.copies(blocks);
        let staying = copies.iter().rev().skip(1).filter(|copy| stays(copy)).count();
        copies.len() > 1 && staying * 2 < copies.len() && copies.windows(2).all(replaces)
    }
}

fn requested(blocks: &[Block]) -> u64 {
    blocks.iter().map(|(_, made)| made.requested).fold(0, u64::saturating_add)
}

pub(super) fn bytes(blocks: &[Block]) -> u64 {
    blocks.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add)
}

fn is_weight(device: &Device<'_>, index: u32) -> bool {
    let category = device.categories().get(index as usize).category;
    matches!(category, Category::Parameter | Category::Buffer | Category::ModelState)
}

/// The number of weights of each size that are live besides the copies when the model is next used: it uses none of the copies.
fn own_sizes(device: &Device<'_>, blocks: &[Block], last: &[Block]) -> HashMap<u64, usize> {
    let copied = last.iter().map(|(_, made)| made.born).max().unwrap_or(0);
    let mut spans = device.phases().spans.iter();
    let used =
        spans.find(|span| span.phase == Phase::Forward && span.start >= copied).map_or(copied, |span| span.start);
    let mut own: HashMap<u64, usize> = HashMap::new();
    for (index, made) in (0u32..).zip(&device.history().allocations) {
        if is_weight(device, index) && !is_one_of(blocks, index) && made.allocated_at(used) {
            *own.entry(made.requested).or_default() += 1;
        }
    }
    own
}

fn is_one_of(blocks: &[Block], index: u32) -> bool {
    blocks.binary_search_by_key(&index, |&(index, _)| index).is_ok()
}

/// The blocks that have the sizes of weights; each weight matches one block.
fn like_weights(mut own: HashMap<u64, usize>, blocks: &[Block]) -> Vec<Block> {
    let mut is_left = |(_, made): &&Block| {
        own.get_mut(&made.requested).is_some_and(|count| {
            let is_left = *count > 0;
            *count = count.saturating_sub(1);
            is_left
        })
    };
    blocks.iter().filter(|block| is_left(block)).copied().collect()
}

/// Whether the last copy has the sizes of weights that are live besides it.
fn is_like_weights(device: &Device<'_>, blocks: &[Block], last: &[Block]) -> bool {
    let like = like_weights(own_sizes(device, blocks, last), last);
    like.len() >= LEAST_BLOCKS && bytes(&like).saturating_mul(100) >= bytes(last).saturating_mul(LEAST_LIKE)
}

/// Removes the optimizer state from a checkpoint if the optimizer uses the loaded state: then each size occurs two or three
/// times as often as among the weights. If the optimizer has allocated its own state, the loaded state is a copy, too.
fn without_states(device: &Device<'_>, blocks: Vec<Block>) -> Vec<Block> {
    let own = own_sizes(device, &blocks, &blocks);
    let mut loaded: HashMap<u64, usize> = HashMap::new();
    for (_, made) in &blocks {
        *loaded.entry(made.requested).or_default() += 1;
    }
    let has_states = WITH_STATES.into_iter().any(|times| {
        let is_multiple =
            |(_, made): &&Block| own.get(&made.requested).is_some_and(|own| own * times == loaded[&made.requested]);
        let like: Vec<Block> = blocks.iter().filter(is_multiple).copied().collect();
        bytes(&like).saturating_mul(100) >= bytes(&blocks).saturating_mul(LEAST_LIKE)
    });
    if !has_states {
        return blocks;
    }
    let weights = like_weights(own, &blocks);
    let states = device.allocations_of(Category::OptimizerState).filter(|&(index, _)| !is_one_of(&blocks, index));
    let states = states.map(|(_, made)| made.size).fold(0, u64::saturating_add);
    if states >= bytes(&weights) { blocks } else { weights }
}

/// The finding; `states` is the number of bytes of optimizer state that the line also loads, and that the optimizer uses.
fn finding(way: Way, line: u32, blocks: &[Block], each: u64, states: u64, doubt: Option<&'static str>) -> Finding {
    let kept = if states > 0 {
        format!("; another {} allocated here is optimizer state, which the optimizer keeps using", Bytes(states))
    } else {
        String::new()
    };
    let (change, code) = match way {
        Way::Loaded => (
            "load the state dict on the CPU, and delete it once the model has loaded it",
            vec!["checkpoint = torch.load(path, map_location=\"cpu\")", "del checkpoint  # after load_state_dict"],
        ),
        Way::Model => (
            "keep a copy of the state dict on the CPU instead of a copy of the model",
            vec!["best = {name: value.cpu() for name, value in model.state_dict().items()}"],
        ),
        Way::Moved => (
            "leave this model on the CPU if only its weights are used",
            vec!["pretrained = Model()  # without .cuda(): load_state_dict copies from the CPU"],
        ),
        Way::Copied | Way::Cloned => (
            "keep the copy of the state dict on the CPU",
            vec!["best = {name: value.cpu() for name, value in model.state_dict().items()}"],
        ),
    };
    let lives = Lifetimes { removed: blocks.iter().map(|&(index, _)| index).collect(), doubt, ..Lifetimes::default() };
    Finding {
        kind: RuleKind::DuplicateModel,
        line: Some(FrameId(line)),
        evidence: match way {
            Way::Moved => {
                format!("a model of {} is moved to the device here, and the recording shows no call to it", Bytes(each))
            }
            _ => format!(
                "{} allocated here matches the sizes of the weights and stays alive next to them{kept}",
                Bytes(each)
            ),
        },
        cost: (way == Way::Model).then(|| "each update then copies the weights to the CPU".to_owned()),
        fixes: vec![Fix::new(change, code, lives).by((way == Way::Loaded).then_some(Rewrite::LoadOnCpu))],
    }
}

/// How a stack allocates a part of a state dict; `None` if it does not.
pub(super) fn way(device: &Device<'_>, stack: StackId) -> Option<Way> {
    let snapshot = device.snapshot();
    let mut found = None;
    for frame in snapshot.stacks.frames(stack) {
        let is_of = |file: &str| snapshot.strings.get(frame.filename).replace('\\', "/").ends_with(file);
        match snapshot.strings.get(frame.name) {
            "load" | "_load" if is_of("torch/serialization.py") => return Some(Way::Loaded),
            "__deepcopy__" if is_of("torch/nn/parameter.py") => found = Some(Way::Model),
            "__deepcopy__" if is_of("torch/_tensor.py") => found = found.or(Some(Way::Copied)),
            "forward" | "_apply" => return None,
            _ => {}
        }
    }
    found
}
