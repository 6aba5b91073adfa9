//! Computes the loss over chunks of tokens, one after the other.
//!
//! Each piece is checkpointed: its logits are live in forward, and again in backward; logits of two pieces are never
//! live at once.

use super::Assumed;
use super::rewrite::{Patch, Rewrite, free, is_free};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::StackId;
use crate::replay::NEVER;
use crate::simulation::{Program, Step, StepKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Smaller blocks are counters and sums.
const SMALL: u64 = 512;
/// Labels and statistics are this many times smaller than the logits.
const MINOR: u64 = 16;
/// Minimum number of tokens of a sequence whose logits, without those of one token, still count as its logits.
const TOKENS: u64 = 32;

/// Data about losses that could be computed in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossFigures {
    /// The maximum number of bytes that a loss keeps for backward: its logits.
    pub logits_bytes: u64,
    /// Mean time in microseconds from logits to loss in a forward pass; `None` if the file has no times.
    pub forward_us: Option<i64>,
}

impl LossFigures {
    /// Finds the losses of a program. An error says what is unknown.
    pub(super) fn of(program: &Program, device: &Device<'_>) -> Result<Self, String> {
        let steps = &program.steps;
        let losses = losses(&Rewrite::of(program), device)?;
        let times = Some(device.track.times()).filter(|times| device.track.has_times() && !times.is_empty());
        let time = |times: &[i64], place: usize| {
            let entry = steps.get(place).or(steps.last()).map_or(0, |step| step.entry as usize);
            times[entry.min(times.len() - 1)]
        };
        // A step lasts until the next one.
        let lasted =
            |times: &[i64], loss: &Loss| time(times, loss.made + 1).saturating_sub(time(times, loss.forward.start));
        let sum = |times: &[i64]| losses.iter().fold(0i64, |sum, loss| sum.saturating_add(lasted(times, loss)));
        let bytes = |loss: &Loss| steps.get(loss.made).map_or(0, |step| step.bytes);
        Ok(Self {
            logits_bytes: losses.iter().map(bytes).max().unwrap_or(0),
            forward_us: times.map(|times| sum(times) / losses.len().max(1) as i64),
        })
    }
}

/// A loss and its inputs, in one pass.
struct Loss {
    /// Steps of forward from the logits on, and of backward up to the end of the node of the layer that computes them.
    forward: Range<usize>,
    backward: Range<usize>,
    /// The step that allocates the block that the loss keeps for backward.
    made: usize,
    /// That block if a variable holds it beyond the pass, and the step after which a piece releases it.
    held: Option<(u32, usize)>,
    /// The input of the layer, and its gradient.
    input: Option<u32>,
    gradient: u32,
    /// Gradients of the layer's parameters: its weight, and its bias.
    weights: Vec<u32>,
    /// Whether `zero_grad` or a step of the optimizer comes between forward and backward.
    is_interrupted: bool,
}

/// Why chunks of a loss are uncertain in such a pass: for four programs that were recorded with and without them, the prediction was
/// off by 3% to 7% of the new peak.
const INTERRUPTED: &str =
    "zero_grad comes between forward and backward, so predictions for chunks may be several percent off";

/// Computes losses in pieces; an error says what is unknown.
pub(super) fn apply(rewrite: &mut Rewrite, device: &Device<'_>, pieces: u64) -> Result<Assumed, String> {
    let steps = Arc::clone(&rewrite.program.steps);
    let losses = losses(rewrite, device)?;
    let mut patch = Patch::default();
    for loss in &losses {
        split(rewrite, &mut patch, &steps, device, loss, pieces);
    }
    let is_interrupted = losses.iter().any(|loss| loss.is_interrupted);
    rewrite.apply(patch);
    Ok(Assumed {
        assumption: format!(
            "logits and loss are computed in {pieces} chunks of tokens, each under torch.utils.checkpoint, and the gradients \
             of the last layer are accumulated"
        ),
        doubt: is_interrupted.then(|| INTERRUPTED.to_owned()),
    })
}

fn losses(rewrite: &Rewrite, device: &Device<'_>) -> Result<Vec<Loss>, String> {
    let steps = rewrite.program.steps.as_slice();
    let (phases, history) = (device.phases(), device.history());
    let places = rewrite.places(history.entries());
    let mut losses = Vec::new();
    // A program may call `zero_grad` between forward and backward.
    let (mut pass, mut before_update) = (None, None);
    for span in &phases.spans {
        match span.phase {
            Phase::Forward => pass = Some(pass.map_or(span.start, |start: u32| start)),
            Phase::Backward => {
                let is_interrupted = before_update.is_some();
                // After `zero_grad`, a `GradScaler` scales the loss, which looks like a forward pass.
                let mut starts = [pass.take(), before_update.take()].into_iter().flatten();
                let Some(start) = starts.next() else { continue };
                let range = places[start as usize]..places[span.start as usize];
                // The program may be only the beginning of the recording.
                if range.end == steps.len() {
                    break;
                }
                if losses.last().is_some_and(|before| outlives_next(device, steps, before, span.end)) {
                    return Err("values computed from the logits outlive the next step".to_owned());
                }
                let end = places[span.end as usize];
                let found = loss(device, steps, range.clone(), end);
                let mut earlier =
                    || starts.next().map(|start| loss(device, steps, places[start as usize]..range.end, end));
                let found = found.or_else(|error| earlier().unwrap_or(Err(error)))?;
                losses.push(Loss { is_interrupted, ..found });
            }
            Phase::Optimizer => before_update = pass.take(),
            _ => {}
        }
    }
    if losses.is_empty() { Err("no forward pass followed by a backward pass was found".to_owned()) } else { Ok(losses) }
}

/// Whether something as large as the logits, computed in the forward pass of a loss, outlives the backward pass of the next step,
/// which ends at an instant: variables are bound anew by then.
fn outlives_next(device: &Device<'_>, steps: &[Step], loss: &Loss, next: u32) -> bool {
    let least = steps.get(loss.made).map_or(0, |step| step.bytes / 2);
    steps[loss.forward.clone()].iter().filter(|step| step.kind == StepKind::Alloc && step.bytes >= least).any(|step| {
        let made = device.history().allocations.get(step.allocation as usize);
        made.is_some_and(|made| made.freed > next)
    })
}

/// The loss of one pass, whose backward ends no later than a given step.
fn loss(device: &Device<'_>, steps: &[Step], pass: Range<usize>, end: usize) -> Result<Loss, String> {
    let (history, phases) = (device.history(), device.phases());
    let made = |step: &Step| history.allocations.get(step.allocation as usize).copied();
    let allocs = |range: Range<usize>| {
        let placed = range.clone().zip(steps.get(range).unwrap_or(&[]));
        placed.filter(|(_, step)| step.kind == StepKind::Alloc)
    };
    let is_kept =
        |step: &Step| made(step).is_some_and(|made| made.freed != NEVER && phases.at(made.freed) == Phase::Backward);
    let largest = |is_loss: &dyn Fn(&Device<'_>, u32) -> bool| {
        let kept = allocs(pass.clone()).filter(|(_, step)| is_kept(step) && is_loss(device, step.allocation));
        kept.max_by_key(|(_, step)| step.bytes)
    };
    // A variable may hold the logarithms beyond the pass.
    let outlives = |step: &Step| {
        let freed = made(step).map_or(0, |made| made.freed);
        steps.get(end).is_some_and(|next| freed > next.entry)
    };
    let is_held = |(_, step): &(usize, &Step)| is_named_loss(device, step.allocation) && outlives(step);
    let held = allocs(pass.clone()).filter(is_held).max_by_key(|(_, step)| step.bytes);
    let named = largest(&is_named_loss).into_iter().chain(held).max_by_key(|(_, step)| step.bytes);
    let (last, kept) = named.or_else(|| largest(&is_plain_loss)).ok_or("found no loss whose result backward needs")?;
    let before: Vec<(usize, &Step)> = allocs(pass.start..last).collect();
    let mut sizes = LogitsSizes::of(kept.bytes);
    let near =
        before.iter().rev().map(|&(place, step)| (place, step, sizes.look_at(device, step.allocation, step.bytes)));
    let near = near.take_while(|&(.., holds)| holds.is_some()).filter(|&(.., holds)| holds == Some(true));
    let (logits, first, _) = near.last().ok_or("the logits from which the loss is computed were not found")?;
    // Plain code that allocates several blocks of one size may do anything, unless a layer allocates the first one.
    let role = |step: &Step| device.roles().role(device.track.stack_of(step.allocation as usize));
    if named.is_none() && role(first) != Role::Module {
        return Err("no loss was found after the last layer of a model".to_owned());
    }
    if !may_be_linear(device, first.allocation) {
        return Err("the layer that produces the logits is not linear".to_owned());
    }
    let backward = pass.end;
    // The node of the layer is the last one with a block of this size.
    let all_large: HashSet<u32> =
        allocs(logits..end).filter(|(_, step)| sizes.has(step.bytes)).map(|(_, step)| step.allocation).collect();
    let large =
        (backward..end).rfind(|&place| is_free(steps[place].kind) && all_large.contains(&steps[place].allocation));
    let large = large.ok_or("the backward pass of the loss was not found")?;
    let stop = (large..end).find(|&place| !is_free(steps[place].kind)).unwrap_or(end);
    let freed: HashSet<u32> =
        steps[backward..stop].iter().filter(|step| is_free(step.kind)).map(|step| step.allocation).collect();
    let left = allocs(backward..stop)
        .filter(|(_, step)| !freed.contains(&step.allocation) && step.bytes > SMALL && !stays(device, step));
    let left: Vec<&Step> = left.map(|(_, step)| step).collect();
    // Weight, bias and input of a linear layer.
    let (Some(gradient), 2..=3) = (left.last(), left.len()) else {
        return Err("the logits are not produced by a single linear layer".to_owned());
    };
    let weights = left.iter().map(|step| step.allocation).filter(|&it| it != gradient.allocation).collect();
    // Its node allocates the gradient of the logits, frees that of the logarithms, and releases the logarithms.
    let node =
        (backward..stop).find(|&place| is_free(steps[place].kind) && all_large.contains(&steps[place].allocation));
    let held = node.filter(|_| outlives(kept)).map(|place| (kept.allocation, place));
    if !freed.contains(&kept.allocation) && held.is_none() {
        return Err("memory that the loss keeps outlives the backward pass of the last layer".to_owned());
    }
    let is_input = |step: &&Step| {
        is_free(step.kind)
            && made(step).is_some_and(|made| made.requested == gradient.bytes && phases.at(made.born) == Phase::Forward)
    };
    let input = steps[backward..stop].iter().find(is_input);
    Ok(Loss {
        forward: logits..backward,
        backward: backward..stop,
        made: last,
        held,
        input: input.map(|step| step.allocation),
        gradient: gradient.allocation,
        weights,
        is_interrupted: false,
    })
}

/// Whether a block is a workspace, which is allocated at the first use and stays.
fn stays(device: &Device<'_>, step: &Step) -> bool {
    device.categories().get(step.allocation as usize).category == Category::Workspace
}

/// The sizes of the blocks that hold the logits of a loss, found from the loss backward.
pub(crate) struct LogitsSizes {
    /// The first one is what the loss keeps for backward.
    sizes: Vec<u64>,
}

impl LogitsSizes {
    /// Those of a loss that keeps a number of bytes.
    pub(crate) fn of(kept: u64) -> Self {
        Self { sizes: vec![kept] }
    }

    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.sizes.contains(&bytes)
    }

    /// Whether a block before those seen so far holds logits; `None` if it is another large one. Logits can be in half precision, and
    /// have one more token in each sequence, whose last one has no label: `logits[:, :-1]`.
    pub(crate) fn look_at(&mut self, device: &Device<'_>, allocation: u32, bytes: u64) -> Option<bool> {
        let kept = self.sizes[0];
        if bytes.saturating_mul(MINOR) <= kept {
            return Some(false);
        }
        let is_about = |bytes: u64| bytes.checked_sub(kept).is_some_and(|more| more < kept / TOKENS);
        let twice = bytes.saturating_mul(2);
        let holds = self.has(bytes)
            || self.has(twice)
            || is_about(bytes)
            || is_about(twice) && layer(device, allocation).is_some_and(is_linear);
        if holds && !self.has(bytes) {
            self.sizes.push(bytes);
        }
        holds.then_some(true)
    }
}

/// Whether no layer of PyTorch but `Linear` allocates a block: chunks of a sequence need a layer that treats each token alone.
fn may_be_linear(device: &Device<'_>, allocation: u32) -> bool {
    layer(device, allocation).is_none_or(is_linear)
}

/// The file of the layer of PyTorch that allocates a block.
fn layer<'a>(device: &Device<'a>, allocation: u32) -> Option<&'a str> {
    let snapshot = device.snapshot();
    snapshot.stacks.frames(device.track.stack_of(allocation as usize)).find_map(|frame| {
        let file = snapshot.strings.get(frame.filename).rsplit_once("torch/nn/modules/")?.1;
        (!matches!(file, "module.py" | "container.py")).then_some(file)
    })
}

fn is_linear(file: &str) -> bool {
    file == "linear.py"
}

fn is_named_loss(device: &Device<'_>, allocation: u32) -> bool {
    is_log_softmax(device, device.track.stack_of(allocation as usize))
}

/// Whether a stack contains the cross entropy or the `log_softmax` of `torch.nn.functional`.
pub(crate) fn is_log_softmax(device: &Device<'_>, stack: StackId) -> bool {
    let snapshot = device.snapshot();
    snapshot.stacks.frames(stack).any(|frame| {
        matches!(snapshot.strings.get(frame.name), "cross_entropy" | "log_softmax")
            && snapshot.strings.get(frame.filename).replace('\\', "/").ends_with("torch/nn/functional.py")
    })
}

/// Whether code outside of modules allocates a block that backward needs: the result of a tensor's own `log_softmax`
/// has no PyTorch frame.
pub(crate) fn is_plain_loss(device: &Device<'_>, allocation: u32) -> bool {
    let made = device.history().allocations[allocation as usize];
    device.roles().role(device.track.stack_of(allocation as usize)) == Role::Plain
        && device.phases().at(made.born) == Phase::Forward
        && made.freed != NEVER
        && device.phases().at(made.freed) == Phase::Backward
}

fn split(rewrite: &mut Rewrite, patch: &mut Patch, steps: &[Step], device: &Device<'_>, loss: &Loss, pieces: u64) {
    let history = device.history();
    let is_piece = |step: &Step| {
        step.bytes > SMALL && (step.allocation as usize) < history.allocations.len() && !stays(device, step)
    };
    let of_forward: HashSet<u32> = steps[loss.forward.clone()]
        .iter()
        .filter(|step| step.kind == StepKind::Alloc && is_piece(step))
        .map(|step| step.allocation)
        .collect();
    let of_backward: HashSet<u32> = steps[loss.backward.clone()]
        .iter()
        .filter(|step| step.kind == StepKind::Alloc && is_piece(step))
        .map(|step| step.allocation)
        .collect();
    let Some(&whole) = steps[loss.backward.clone()].iter().find(|step| step.allocation == loss.gradient) else {
        return;
    };
    // Several functions may read the logits, and each keeps what its backward needs.
    let frees = steps[loss.backward.clone()].iter().filter(|step| is_free(step.kind));
    let held = loss.held.map(|(allocation, _)| allocation);
    let kept: HashSet<u32> =
        frees.map(|step| step.allocation).chain(held).filter(|allocation| of_forward.contains(allocation)).collect();
    let mut emit = Emit { rewrite, patch, pieces, entry: whole.entry };
    for &allocation in of_forward.iter().chain(&of_backward) {
        emit.patch.remove(allocation);
    }
    // Forward: a chunk leaves no memory behind.
    let start = loss.forward.start;
    emit.entry = steps.get(start).map_or(0, |step| step.entry);
    for _ in 0..pieces {
        let input = emit.alloc(start, &whole);
        let mut made = HashMap::new();
        for step in steps[loss.forward.clone()].iter().filter(|step| of_forward.contains(&step.allocation)) {
            emit.again(start, step, &mut made);
        }
        emit.free_all(start, made);
        emit.free(start, input);
    }
    // Backward: each piece is recomputed, up to the blocks that the loss keeps.
    let start = loss.backward.start;
    emit.entry = steps.get(start).map_or(0, |step| step.entry);
    let mut gradients = Vec::new();
    let mut sums: HashMap<u32, u32> = HashMap::new();
    for piece in 0..pieces {
        let input = emit.alloc(start, &whole);
        let mut made = HashMap::new();
        for step in steps[loss.forward.clone()].iter().filter(|step| of_forward.contains(&step.allocation)) {
            emit.again(start, step, &mut made);
        }
        let (needed, gone) = made.into_iter().partition(|(allocation, _)| kept.contains(allocation));
        emit.free_all(start, gone);
        let mut made: HashMap<u32, u32> = needed;
        for (place, step) in loss.backward.clone().zip(&steps[loss.backward.clone()]) {
            if of_backward.contains(&step.allocation) || kept.contains(&step.allocation) {
                if step.kind == StepKind::Alloc && loss.weights.contains(&step.allocation) {
                    let weight = emit.whole(start, step);
                    made.insert(step.allocation, weight);
                } else {
                    emit.again(start, step, &mut made);
                }
            }
            let held = loss.held.filter(|&(_, node)| node == place).and_then(|(held, _)| made.remove(&held));
            if let Some(held) = held {
                emit.free(start, held);
            }
        }
        emit.free(start, input);
        gradients.extend(made.remove(&loss.gradient));
        for &weight in &loss.weights {
            let Some(new) = made.remove(&weight) else { continue };
            let Some(&sum) = sums.get(&weight) else {
                sums.insert(weight, new);
                continue;
            };
            // The first two are summed into a new block; later ones are added to it.
            if piece == 1
                && let Some(step) = steps.iter().find(|step| step.kind == StepKind::Alloc && step.allocation == weight)
            {
                let both = emit.whole(start, step);
                emit.free(start, sum);
                sums.insert(weight, both);
            }
            emit.free(start, new);
        }
        emit.free_all(start, made);
    }
    let gradient = emit.whole(start, &whole);
    for piece in gradients {
        emit.free(start, piece);
    }
    emit.patch.inherit(loss.gradient, gradient);
    for (weight, sum) in sums {
        emit.patch.inherit(weight, sum);
    }
    if let Some(input) = loss.input {
        emit.patch.free_at(start, input, emit.entry);
    }
}

struct Emit<'e> {
    rewrite: &'e mut Rewrite,
    patch: &'e mut Patch,
    pieces: u64,
    entry: u32,
}

impl Emit<'_> {
    /// A piece of a block.
    fn alloc(&mut self, place: usize, step: &Step) -> u32 {
        self.request(place, step, step.bytes.div_ceil(self.pieces))
    }

    /// The whole block.
    fn whole(&mut self, place: usize, step: &Step) -> u32 {
        self.request(place, step, step.bytes)
    }

    fn request(&mut self, place: usize, step: &Step, bytes: u64) -> u32 {
        let allocation = self.rewrite.add(step.allocation);
        self.patch.insert(place, Step { allocation, bytes, entry: self.entry, ..*step });
        allocation
    }

    fn free(&mut self, place: usize, allocation: u32) {
        self.patch.insert(place, free(allocation, self.entry));
    }

    fn again(&mut self, place: usize, step: &Step, made: &mut HashMap<u32, u32>) {
        if step.kind == StepKind::Alloc {
            let copy = self.alloc(place, step);
            made.insert(step.allocation, copy);
        } else if is_free(step.kind)
            && step.kind != StepKind::RequestFree
            && let Some(copy) = made.remove(&step.allocation)
        {
            self.free(place, copy);
        }
    }

    fn free_all(&mut self, place: usize, made: HashMap<u32, u32>) {
        let mut left: Vec<u32> = made.into_values().collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        for copy in left {
            self.free(place, copy);
        }
    }
}
