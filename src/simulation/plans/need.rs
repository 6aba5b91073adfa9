//! What a program that ran out of memory needs: bounds, each with its reason.
//!
//! What was in use when the request failed, and the request itself, are needed with any allocator settings; with the recorded
//! ones, so is more than the device had. What would have followed is known as far as an earlier step or another recording shows
//! it. Once backward has begun, it is bounded without either: backward frees what forward keeps, so what can still be added are
//! the gradients of parameters, what backward allocates for one part of the model at a time, and what the optimizer allocates.

use super::{Failed, Unfinished};
use crate::facts::device::Device;
use crate::facts::training::{Calls, Category, FunctionId, Phase};
use crate::replay::{Allocation, Metric};
use crate::simulation::{Program, Simulator, simulate_to_refusal};
use std::cmp::Reverse;
use std::ops::Range;

/// Bytes that a program needs on a device, for the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The most in use at once, with the request that failed: needed with any allocator settings.
    pub live: u64,
    /// The most in use at once in what finished, a repeated step or another run, if every request before the failure has the same
    /// size there.
    pub finished: Option<u64>,
    /// At least this, with the recorded settings: these, and more than the device had on which the request failed.
    pub low: u64,
    /// At most this; `None` if nothing bounds it.
    pub high: Option<u64>,
    /// What bounds it from above.
    pub above: Above,
}

/// What bounds the need of a program from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// The last complete step before the failure, which is repeated.
    Step(Unfinished),
    /// Another recording of the program.
    Recording(Failed),
    /// What can still be added once backward has begun.
    Rest(Rest),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// What can be added to the memory that is reserved when a request fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Bytes of the request that failed.
    pub request: u64,
    /// Bytes of gradients that were not allocated yet, if every parameter gets one.
    pub gradients: u64,
    /// Bytes that backward needs at once besides those: at most what forward had in use at once for one part of the model, since a
    /// gradient is as large as its tensor, and lives as long in the reverse order.
    pub temporaries: u64,
    /// Bytes of optimizer states that were not allocated yet, which the next step has in use, too.
    pub states: u64,
    /// Bytes that the optimizer has in use at once, with these states.
    pub optimizer: u64,
    /// Bytes that are freed before the optimizer runs: kept for a backward pass that has begun to free what it used.
    pub freed: u64,
    /// Bytes of workspaces, which the thread that runs backward allocates again.
    pub workspaces: u64,
    /// Whether the request is part of a loss, and nothing else is assumed to follow in forward.
    pub is_last_of_forward: bool,
    /// Whether no complete optimizer step was recorded, so that it is assumed to keep [`STATES`] states per parameter, and to allocate as
    /// many temporaries.
    pub is_optimizer_assumed: bool,
}

/// Whether a program fits a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fits,
    /// It fits under the conditions of [`Need::conditions`].
    FitsIf,
    CannotFit,
    /// The bounds do not decide.
    Unknown,
}

/// What an upper bound assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The optimizer keeps no more than [`STATES`] states for each parameter.
    States,
    /// The loss that makes the failed request ends the forward pass.
    LossIsLast,
    /// No later step has larger inputs: those of the failed one differ from those of the complete one.
    InputsVary,
    /// No other step trains so many bytes of parameters, which the complete one does not.
    Untrained(u64),
}

/// Numbers that `AdamW` keeps for each parameter, which is more than most other optimizers do.
pub const STATES: u64 = 2;
/// Blocks are placed in segments, which may be larger than they: 1/N of what is added.
const PLACEMENT: u64 = 10;

/// At other sizes, kernels also allocate other buffers: 1/N of what is needed.
const OTHER_SIZES: u64 = 20;

/// Functions of `torch.nn.functional` that compute a loss, besides those whose names say so.
const LOSSES: [&str; 3] = ["cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits"];

const IN_FORWARD: &str = "no complete step was recorded, and the forward pass had not ended, so how much it would still have allocated is unknown";
const ELSEWHERE: &str = "no complete step was recorded, and the request is not part of a training step, so what would have followed is unknown";

impl Need {
    /// The need of a device whose failed step does not show what would have followed, whether or not it repeats a complete one;
    /// `None` if no request failed.
    pub(super) fn of(device: &Device<'_>, simulator: &Simulator, is_repeated: bool) -> Option<Self> {
        let &(refused, _) = simulator.program.refusals.first()?;
        let rest = Rest::after(device, refused, is_repeated);
        let reserved = u64::try_from(device.track.counters_at(refused + 1).reserved).unwrap_or(u64::MAX);
        let high = rest.ok().map(|rest| reserved.saturating_add(rest.bytes()));
        Self::between(&simulator.program, simulator, (None, high), rest.map_or_else(Above::Nothing, Above::Rest))
    }

    /// The need of a program that runs out of memory, given the most in use at once in what finished, and what bounds it from above.
    /// `None` if it does not.
    pub(crate) fn between(
        program: &Program,
        simulator: &Simulator,
        (finished, high): (Option<u64>, Option<u64>),
        above: Above,
    ) -> Option<Self> {
        let &(refused, told) = program.refusals.first()?;
        let setup = Simulator { capacity: Some(told), ..simulator.clone() }.setup(&simulator.settings);
        let live = program.live_bytes_to(program.steps_to_refusal(refused), &setup.rules);
        // If nothing else made it fail, a device needs more than this one had.
        let (outcome, _) = simulate_to_refusal(program, &setup, refused);
        let is_reproduced = outcome.fails_at.is_some() || outcome.refusals.first() == Some(&(refused, false));
        let low = if is_reproduced { live.max(told.saturating_add(1)) } else { live };
        let (is_resized, is_same) = match above {
            Above::Step(step) => (step.is_resized, step.equal == step.requests),
            Above::Recording(failed) => (failed.is_resized, failed.equal == failed.requests),
            Above::Rest(_) | Above::Nothing(_) => (false, false),
        };
        let finished = finished.filter(|_| is_same && !is_resized);
        let low = low.max(finished.unwrap_or(0));
        let margin = |high: u64| if is_resized { high / OTHER_SIZES } else { 0 };
        let high = high.map(|high| high.saturating_add(margin(high)).max(low));
        Some(Self { live, finished, low, high, above })
    }

    /// What the upper bound assumes.
    pub fn conditions(&self) -> Vec<Condition> {
        match self.above {
            Above::Step(step) => {
                let vary = step.is_resized.then_some(Condition::InputsVary);
                let untrained = Some(Condition::Untrained(step.untrained)).filter(|_| step.untrained > 0);
                vary.into_iter().chain(untrained).collect()
            }
            Above::Rest(rest) => {
                let states = rest.is_optimizer_assumed.then_some(Condition::States);
                rest.is_last_of_forward.then_some(Condition::LossIsLast).into_iter().chain(states).collect()
            }
            Above::Recording(_) | Above::Nothing(_) => Vec::new(),
        }
    }

    /// Whether the program fits a device on which the allocator can use this many bytes.
    pub fn verdict(&self, capacity: u64) -> Verdict {
        match self.high {
            _ if self.low > capacity => Verdict::CannotFit,
            Some(high) if high <= capacity && !self.conditions().is_empty() => Verdict::FitsIf,
            Some(high) if high <= capacity => Verdict::Fits,
            _ => Verdict::Unknown,
        }
    }
}

impl Rest {
    /// What can follow a request that failed; an error says why that is unknown.
    fn after(device: &Device<'_>, refused: u32, is_repeated: bool) -> Result<Self, &'static str> {
        let spans = &device.phases().spans;
        let at = spans.partition_point(|span| span.end <= refused);
        let phase = spans.get(at).map_or(Phase::Other, |span| span.phase);
        let request = device.track.entry(refused).map_or(0, |entry| entry.size);
        let live = |wanted: Category| sum(device.allocations_of(wanted).map(|(_, made)| made), refused);
        let parameters = live(Category::Parameter).saturating_add(live(Category::ModelState));
        let states = live(Category::OptimizerState);
        // The optimizer that fails in its first step has not shown all that it allocates.
        let finished = if phase == Phase::Optimizer { spans[at].start } else { refused };
        let rest = match KnownOptimizer::before(device, finished) {
            Some(known) => {
                // Parameters that had no gradients then may belong to another optimizer, which runs in another step.
                let is_other = !is_repeated && known.gradients > 0;
                let untrained = if is_other { parameters.saturating_sub(known.gradients) } else { 0 };
                let more = known.states_of(untrained).saturating_sub(states.saturating_sub(known.states));
                Self { states: more, optimizer: known.most.saturating_add(more.saturating_mul(2)), ..Self::default() }
            }
            None => Self {
                states: parameters.saturating_mul(STATES).saturating_sub(states),
                optimizer: parameters.saturating_mul(2 * STATES).saturating_sub(states),
                is_optimizer_assumed: true,
                ..Self::default()
            },
        };
        let rest = Self { request, ..rest };
        let gradients = parameters.saturating_sub(live(Category::Gradient));
        match phase {
            Phase::Optimizer => Ok(rest),
            Phase::Backward => {
                let forward = forward_before(device, at).ok_or(ELSEWHERE)?;
                let backward = spans[at].start..refused;
                let calls = Calls::of(device.track, device.phases(), device.sites(), device.roles());
                let freed =
                    if has_freed(device, &forward, &backward) { kept_for(device, &forward, refused) } else { 0 };
                Ok(Self { gradients, temporaries: largest_part(device, &calls, &forward, 0), freed, ..rest })
            }
            Phase::Forward | Phase::Other if is_in_loss(device, refused) => {
                let forward = forward_before(device, (at + 1).min(spans.len())).ok_or(ELSEWHERE)?;
                let forward = forward.start..refused;
                let calls = Calls::of(device.track, device.phases(), device.sites(), device.roles());
                // Backward starts with the gradient of what the loss makes now.
                let temporaries = largest_part(device, &calls, &forward, 0).saturating_add(request);
                let workspaces = live(Category::Workspace);
                Ok(Self { gradients, temporaries, workspaces, is_last_of_forward: true, ..rest })
            }
            Phase::Forward => Err(IN_FORWARD),
            Phase::Data | Phase::Other => Err(ELSEWHERE),
        }
    }

    /// All of it, with what the placement of blocks adds.
    fn bytes(self) -> u64 {
        let request = self.request.saturating_add(self.request / PLACEMENT);
        self.beside_request(0).saturating_add(request)
    }

    /// The same without the request that failed, if so much less is kept for backward.
    pub(crate) fn beside_request(self, less: u64) -> u64 {
        let sum = |all: [u64; 3]| all.into_iter().fold(0, u64::saturating_add);
        let in_backward = sum([self.gradients.saturating_add(self.workspaces), self.temporaries, self.states]);
        let in_optimizer =
            sum([self.gradients, self.optimizer, self.workspaces]).saturating_sub(self.freed.saturating_sub(less));
        let most = in_backward.max(in_optimizer);
        most.saturating_add(most / PLACEMENT)
    }
}

/// Bytes of these allocations that are live at an entry.
fn sum<'a>(made: impl Iterator<Item = &'a Allocation>, at: u32) -> u64 {
    made.filter(|made| made.allocated_at(at)).map(|made| made.size).fold(0, u64::saturating_add)
}

/// What forward allocated and keeps for backward.
fn activations<'a>(device: &'a Device<'_>, forward: &Range<u32>) -> impl Iterator<Item = &'a Allocation> {
    let history = device.history();
    let first = history.born_after(forward.start);
    let born = first..history.born_after(forward.end).max(first);
    let made = born.clone().zip(history.allocations.get(born).unwrap_or_default());
    made.filter(|&(index, _)| device.categories().get(index).category == Category::Activation).map(|(_, made)| made)
}

/// Whether backward frees what forward keeps for it, unlike with `retain_graph=True`.
fn has_freed(device: &Device<'_>, forward: &Range<u32>, backward: &Range<u32>) -> bool {
    activations(device, forward).any(|made| backward.contains(&made.freed))
}

/// Bytes live at an entry that forward allocated and backward will free.
fn kept_for(device: &Device<'_>, forward: &Range<u32>, at: u32) -> u64 {
    sum(activations(device, forward), at)
}

/// Whether a loss of `torch.nn.functional` makes this request.
fn is_in_loss(device: &Device<'_>, entry: u32) -> bool {
    let snapshot = device.snapshot();
    snapshot.stacks.frames(device.track.stack(entry)).any(|frame| {
        let name = snapshot.strings.get(frame.name);
        (LOSSES.contains(&name) || name.ends_with("_loss"))
            && snapshot.strings.get(frame.filename).replace('\\', "/").ends_with("torch/nn/functional.py")
    })
}

/// What finished optimizer steps show.
struct KnownOptimizer {
    /// The most that a step allocated at once.
    most: u64,
    /// Bytes of the states that they left.
    states: u64,
    /// The most bytes of gradients that were there when a step started.
    gradients: u64,
}

impl KnownOptimizer {
    /// What the optimizer steps that end before an entry show; `None` if there was none that kept something.
    fn before(device: &Device<'_>, before: u32) -> Option<Self> {
        let spans = device.phases().spans.iter().filter(|span| span.phase == Phase::Optimizer && span.end <= before);
        let mut spans: Vec<(Range<u32>, i64)> = spans.map(|span| (span.start..span.end, 0)).collect();
        let last = spans.last()?.0.end;
        let states = sum(device.allocations_of(Category::OptimizerState).map(|(_, made)| made), last);
        if states == 0 {
            return None;
        }
        let of_gradients = |at: u32| sum(device.allocations_of(Category::Gradient).map(|(_, made)| made), at);
        let gradients = spans.iter().map(|(span, _)| of_gradients(span.start)).max().unwrap_or(0);
        let (mut at, mut start) = (0, 0);
        device.track.walk_to(before, |instant, counters| {
            let allocated = counters.get(Metric::Allocated);
            while spans.get(at).is_some_and(|(span, _)| span.end < instant) {
                at += 1;
            }
            if let Some((span, most)) = spans.get_mut(at) {
                if instant <= span.start {
                    start = allocated;
                } else {
                    *most = (allocated - start).max(*most);
                }
            }
        });
        let most = spans.iter().map(|&(_, most)| most.unsigned_abs()).max()?;
        Some(Self { most, states, gradients })
    }

    /// Bytes of the states of so many bytes of parameters.
    fn states_of(&self, parameters: u64) -> u64 {
        let states = u128::from(parameters) * u128::from(self.states);
        u64::try_from(states.div_ceil(u128::from(self.gradients.max(1)))).unwrap_or(u64::MAX)
    }
}

/// The entries of the forward pass before a phase, given by its place, in its step.
pub(crate) fn forward_before(device: &Device<'_>, backward: usize) -> Option<Range<u32>> {
    let before = &device.phases().spans[..backward];
    let of_step = before.iter().rev().take_while(|span| !matches!(span.phase, Phase::Backward | Phase::Optimizer));
    let forward: Vec<Range<u32>> =
        of_step.filter(|span| span.phase == Phase::Forward).map(|span| span.start..span.end).collect();
    Some(forward.last()?.start..forward.first()?.end)
}

/// The most bytes that forward has in use at once of what it allocates for one part of the model: a call of a function that it
/// calls repeatedly, or what it does between two of these calls, which may have such parts itself. At least this many.
fn largest_part(device: &Device<'_>, calls: &Calls, within: &Range<u32>, least: u64) -> u64 {
    let whole = most_of_part(device, within);
    if whole <= least {
        return least;
    }
    let of_function = |id: FunctionId| -> Vec<Range<u32>> {
        let within = calls.of_function(id).filter(|call| within.start <= call.start && call.end <= within.end);
        let mut over = 0;
        let mut outer = Vec::new();
        for call in within.filter(|call| call.start < call.end) {
            if call.start >= over {
                outer.push(call.start..call.end);
                over = call.end;
            }
        }
        outer
    };
    let all = calls.functions().map(|(id, _)| of_function(id)).filter(|calls| calls.len() > 1);
    let covered = |calls: &Vec<Range<u32>>| calls.iter().map(|call| u64::from(call.end - call.start)).sum::<u64>();
    let Some(parts) = all.max_by_key(|calls| (covered(calls), Reverse(calls.len()))) else {
        return whole;
    };
    let largest = parts.iter().map(|part| most_of_part(device, part)).fold(least, u64::max);
    let starts = std::iter::once(within.start).chain(parts.iter().map(|part| part.end));
    let ends = parts.iter().map(|part| part.start).chain([within.end]);
    let between = starts.zip(ends).map(|(start, end)| start..end.max(start));
    between.fold(largest, |largest, part| largest_part(device, calls, &part, largest))
}

/// The most bytes in use at once during some entries, of what they allocate.
fn most_of_part(device: &Device<'_>, entries: &Range<u32>) -> u64 {
    let history = device.history();
    let first = history.born_after(entries.start);
    let made = history.allocations.get(first..history.born_after(entries.end).max(first)).unwrap_or_default();
    let mut changes: Vec<(u32, bool, u64)> = Vec::with_capacity(2 * made.len());
    for made in made {
        changes.push((made.born, true, made.size));
        if made.freed <= entries.end {
            changes.push((made.freed, false, made.size));
        }
    }
    changes.sort_unstable();
    let (mut live, mut most) = (0u64, 0u64);
    for (_, is_made, bytes) in changes {
        live = if is_made { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        most = most.max(live);
    }
    most
}
