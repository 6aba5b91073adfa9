//! The effect of `torch.utils.checkpoint` on one call of a forward function.

mod nodes;

use super::autocast::Autocast;
use super::passes::Passes;
use crate::facts::code::sites::Sites;
use crate::facts::device::Device;
use crate::facts::training::{Call, Calls, Categories, Category, ForwardFunction, Phase, Phases, Roles};
use crate::model::{Action, FrameId, Snapshot, StackId};
use crate::replay::{Allocation, Instant, NEVER, Track};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;

/// One call, as it would run under `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recompute {
    pub start: u32,
    pub stop: u32,
    /// The allocations that it makes, as indexes into [`crate::replay::History::allocations`].
    pub born: Range<u32>,
    /// Of these, the allocations that its backward needs, in order.
    pub kept: Vec<u32>,
    /// Times at which blocks that the call keeps for backward would be freed.
    pub gaps: Vec<Gap>,
    /// Inputs of the call whose recorded free comes right after it. With checkpointing, they stay live until the call
    /// is recomputed.
    pub inputs: Vec<Gap>,
    /// The instant right before its backward starts: here the call is recomputed and allocates the freed blocks again.
    /// [`NEVER`] if no backward follows.
    pub resume: Instant,
    /// The maximum number of bytes that its recomputation allocates at once.
    pub rerun_peak_bytes: u64,
}

impl Recompute {
    /// The instant after which the program equals the recording, except for blocks that stay live.
    pub(in crate::simulation::changes) fn end_of_use(&self) -> Instant {
        if self.resume == NEVER { self.stop } else { self.resume.max(self.stop) }
    }
}

/// A period in which a recorded block is missing, or a block that was recorded as freed is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The block, as an index into [`crate::replay::History::allocations`].
    pub allocation: u32,
    /// The first instant at which this differs from the recording.
    pub from: Instant,
    /// The first instant at which it does not, or no longer does.
    pub to: Instant,
    pub bytes: u64,
}

/// Instants that are skipped together.
const CHUNK: u32 = 1024;
/// No backward node allocates and frees as many blocks in a row; this bounds the time for damaged files.
const LONGEST_NODE: usize = 256;

/// Tables for [`Recomputing`], built once per device.
#[derive(Debug)]
pub(crate) struct RecomputeTables {
    /// The number of allocations of each size, if no backward follows.
    of_size: HashMap<u64, u32>,
    /// The number of allocations made up to each instant.
    made_until: Vec<u32>,
    /// The allocation freed at each instant; [`NEVER`] for none.
    freed_at: Vec<u32>,
    /// For each [`CHUNK`] of instants, when the youngest of the blocks freed there was allocated.
    youngest_freed: Vec<Instant>,
    staying: Vec<u32>,
    autocast: Autocast,
    /// What each call returns, computed on first use: callers need it for each of their blocks.
    outputs: Vec<OnceLock<Vec<u32>>>,
}

impl RecomputeTables {
    pub(crate) fn of(device: &Device<'_>, calls: &Calls, passes: &Passes) -> Self {
        let (track, history) = (device.track, device.history());
        let instants = history.entries() as usize + 1;
        let mut made_until = Vec::with_capacity(instants);
        let mut freed_at = vec![NEVER; instants];
        let mut youngest_freed = vec![0; instants.div_ceil(CHUNK as usize)];
        let mut staying = Vec::new();
        for (index, allocation) in (0..).zip(&history.allocations) {
            made_until.resize(made_until.len().max(allocation.born as usize).min(instants), index);
            if let Some(slot) = freed_at.get_mut(allocation.freed as usize) {
                *slot = index;
                let youngest: &mut Instant = &mut youngest_freed[(allocation.freed / CHUNK) as usize];
                *youngest = allocation.born.max(*youngest);
            } else if allocation.freed == NEVER {
                staying.push(index);
            }
        }
        made_until.resize(instants, history.allocations.len() as u32);
        let mut of_size: HashMap<u64, u32> = HashMap::new();
        for allocation in history.allocations.iter().filter(|_| passes.is_open) {
            *of_size.entry(allocation.requested).or_default() += 1;
        }
        let autocast = Autocast::of(track, device.sites(), device.phases(), device.roles());
        let outputs = calls.calls.iter().map(|_| OnceLock::new()).collect();
        Self { of_size, made_until, freed_at, youngest_freed, staying, autocast, outputs }
    }
}

/// Computes a [`Recompute`] for each call on one device.
pub(crate) struct Recomputing<'a> {
    sites: &'a Sites<'a>,
    pub(in crate::simulation::changes) track: Track<'a>,
    phases: &'a Phases,
    roles: &'a Roles,
    categories: &'a Categories,
    pub(in crate::simulation::changes) actions: &'a [Action],
    pub(in crate::simulation::changes) calls: &'a Calls,
    passes: &'a Passes,
    of_size: &'a HashMap<u64, u32>,
    made_until: &'a [u32],
    freed_at: &'a [u32],
    youngest_freed: &'a [Instant],
    staying: &'a [u32],
    autocast: &'a Autocast,
    outputs: &'a [OnceLock<Vec<u32>>],
}

impl<'a> Recomputing<'a> {
    pub(crate) fn new(
        device: &'a Device<'_>,
        calls: &'a Calls,
        passes: &'a Passes,
        tables: &'a RecomputeTables,
    ) -> Self {
        let (sites, phases, roles) = (device.sites(), device.phases(), device.roles());
        let RecomputeTables { of_size, made_until, freed_at, youngest_freed, staying, autocast, outputs } = tables;
        let (track, actions, categories) = (device.track, device.track.actions(), device.categories());
        Self {
            sites,
            track,
            phases,
            roles,
            categories,
            actions,
            calls,
            passes,
            of_size,
            made_until,
            freed_at,
            youngest_freed,
            staying,
            autocast,
            outputs,
        }
    }

    /// The effect of checkpointing a call; `None` if it keeps nothing for backward.
    pub(crate) fn of(&self, call: &Call) -> Option<Recompute> {
        let born = self.born_in(call);
        if self.passes.is_open {
            return self.without_backward(call, born);
        }
        let mut kept: Vec<u32> = born.clone().filter(|&index| self.is_kept_for_backward(index, call.end)).collect();
        // Outputs stay live because of their consumers, even if the call's own backward needs them, too, as with `relu`.
        let outputs = self.outputs(call);
        kept.retain(|index| !outputs.contains(index));
        let (first_free, last_free) = self.frees(&kept)?;
        let is_own = |&index: &u32| {
            self.is_kept_by_activation(index) && !self.frees_younger(index, call)
                || self.is_same_node(index, first_free)
        };
        let (mut own, others): (Vec<u32>, Vec<u32>) = outputs.iter().copied().partition(is_own);
        own.retain(|&index| self.is_kept_for_backward(index, call.end));
        let begin = self.begin_of_backward(call, last_free, &others);
        // Blocks freed before the call's own backward starts were kept by its consumers: they are further outputs.
        kept.retain(|&index| self.allocation(index).freed > begin && !self.is_same_node(index, begin));
        let mut needed: Vec<u32> = kept.iter().chain(&own).copied().collect();
        needed.sort_unstable();
        let (first_free, _) = self.frees(&needed)?;
        let resume = self.begin_of_node(first_free, begin);
        let mut gaps = Vec::new();
        // An output that the call keeps, too, exists twice from then on, but its consumers have released the first copy.
        gaps.extend(own.iter().map(|&index| self.gap(index, resume, resume)));
        for &index in &kept {
            let freed = self.allocation(index).freed;
            gaps.push(self.gap(index, self.dropped(call, index, resume), resume));
            let released = self.end_of_node(freed);
            if released < freed && released > resume {
                gaps.push(self.gap(index, released, freed));
            }
        }
        let stop = self.stop(call, self.allocation(*needed.last()?).born);
        let rerun_peak_bytes = self.rerun_peak(call.start, stop, &born);
        let inputs = self.inputs(call, resume);
        Some(Recompute { start: call.start, stop, born, kept: needed, gaps, inputs, resume, rerun_peak_bytes })
    }

    /// The same for a call without a backward pass: it is not recomputed.
    fn without_backward(&self, call: &Call, born: Range<u32>) -> Option<Recompute> {
        let outputs = self.outputs(call);
        // Blocks that are allocated once and stay are workspaces or caches.
        let is_single = |index: u32| {
            let Allocation { requested, freed, .. } = *self.allocation(index);
            freed == NEVER && self.of_size.get(&requested) == Some(&1)
        };
        let is_dropped =
            |&index: &u32| self.is_kept_for_backward(index, call.end) && !outputs.contains(&index) && !is_single(index);
        let kept: Vec<u32> = born.clone().filter(is_dropped).collect();
        let gap = |&index: &u32| {
            let freed = self.allocation(index).freed;
            self.gap(index, self.dropped(call, index, freed), freed)
        };
        let gaps: Vec<Gap> = kept.iter().map(gap).collect();
        let until = gaps.iter().map(|gap| gap.to).max()?;
        Some(Recompute {
            start: call.start,
            stop: call.end,
            born,
            kept,
            gaps,
            inputs: self.inputs(call, until),
            resume: NEVER,
            rerun_peak_bytes: 0,
        })
    }

    /// The workspaces that the engine's thread allocates when it recomputes these calls for the first time, identified by the
    /// workspaces that forward allocated for the same operators. cuBLAS has one for each thread, allocated at the first use
    /// and never freed; those that backward itself needs exist from the first step on, which ends at an instant.
    pub(crate) fn workspaces(&self, calls: &[&Call], first_step: Instant) -> Vec<u32> {
        // Every candidate needs this for all blocks of its calls: a table costs a tenth of a set.
        let mut is_made = vec![false; self.track.snapshot.stacks.len()];
        for index in calls.iter().flat_map(|call| self.born_in(call)) {
            if let Some(is_made) = is_made.get_mut(self.track.stack_of(index as usize).index()) {
                *is_made = true;
            }
        }
        let stacks = (0u32..).zip(is_made).filter(|&(_, is_made)| is_made).map(|(stack, _)| StackId(stack));
        let operators: HashSet<Option<FrameId>> = stacks.map(|stack| self.operator_of(stack)).collect();
        let is_phase = |index: u32, phase: Phase| self.phases.at(self.allocation(index).born) == phase;
        let requested = |index: u32| self.allocation(index).requested;
        // Blocks that a variable holds at the end of the recording also stay.
        let is_workspace = |index: u32| self.categories.get(index as usize).category == Category::Workspace;
        let of_engine = |size: u64| {
            let made = self.staying.iter().take_while(|&&index| self.allocation(index).born <= first_step);
            made.filter(|&&index| requested(index) == size).any(|&index| is_phase(index, Phase::Backward))
        };
        let staying = self.staying.iter().copied().filter(|&index| is_phase(index, Phase::Forward));
        let staying = staying.filter(|&index| operators.contains(&self.operator(index)) && is_workspace(index));
        let mut sizes: Vec<(u64, u32)> = staying.map(|index| (requested(index), index)).collect();
        sizes.sort_unstable();
        // Blocks that are allocated more than once are kept by the program itself.
        let once = sizes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() == 1).map(|same| same[0]);
        once.filter(|&(size, _)| !of_engine(size)).map(|(_, index)| index).collect()
    }

    /// The line of Python that runs the operator that allocated a block.
    pub(crate) fn operator(&self, index: u32) -> Option<FrameId> {
        self.operator_of(self.track.stack_of(index as usize))
    }

    fn operator_of(&self, stack: StackId) -> Option<FrameId> {
        let frames = self.track.snapshot.stacks.frame_ids(stack);
        frames.iter().copied().find(|&frame| self.sites.kind(frame).is_python())
    }

    /// Entries of the forward pass that an entry is part of.
    pub(crate) fn pass_around(&self, entry: u32) -> Option<&Range<u32>> {
        self.passes.around(entry)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.passes.is_open
    }

    fn gap(&self, allocation: u32, from: Instant, to: Instant) -> Gap {
        Gap { allocation, from, to, bytes: self.allocation(allocation).size }
    }

    pub(crate) fn allocation(&self, index: u32) -> &Allocation {
        &self.track.history.allocations[index as usize]
    }

    pub(crate) fn born_in(&self, call: &Call) -> Range<u32> {
        let all = self.track.history.allocations.len() as u32;
        let until = |entry: u32| self.made_until.get(entry as usize).copied().unwrap_or(all);
        until(call.start)..until(call.end)
    }

    /// Whether a block outlives the call and a backward frees it; if none follows, whether it outlives the pass.
    pub(crate) fn is_kept_for_backward(&self, index: u32, end: Instant) -> bool {
        let freed = self.allocation(index).freed;
        if self.passes.is_open {
            return self.passes.around(end.saturating_sub(1)).is_some_and(|pass| freed > pass.end);
        }
        freed > end && freed != NEVER && self.phases.at(freed) == Phase::Backward
    }

    /// The first and the last instant at which one of these blocks is freed.
    fn frees(&self, blocks: &[u32]) -> Option<(Instant, Instant)> {
        let frees = || blocks.iter().map(|&index| self.allocation(index).freed);
        Some((frees().min()?, frees().max()?))
    }

    /// The outputs of a call: of the blocks that its last operator allocated, the one that is freed first. The others,
    /// such as the mean that `layer_norm` keeps, stay live until the operator's own backward.
    pub(crate) fn outputs(&self, call: &Call) -> Cow<'a, [u32]> {
        match self.calls.place(call) {
            Some(place) => Cow::Borrowed(self.outputs_of(place)),
            None => Cow::Owned(self.find_outputs(call)),
        }
    }

    /// The same for the call at a place of [`Calls::calls`].
    pub(crate) fn outputs_of(&self, place: usize) -> &'a [u32] {
        self.outputs[place].get_or_init(|| self.find_outputs(&self.calls.calls[place]))
    }

    fn find_outputs(&self, call: &Call) -> Vec<u32> {
        let born = self.born_in(call);
        let freed = |index: u32| self.allocation(index).freed;
        let stack = |index: u32| self.track.stack_of(index as usize);
        // A block that is never freed can be an output only if no backward frees anything.
        let is_alive = |&index: &u32| {
            freed(index) > call.end && (freed(index) != NEVER || self.passes.is_open) && !self.is_cast(index)
        };
        let alive: Vec<u32> = born.clone().filter(is_alive).collect();
        let outlives = |&index: &u32| {
            let is_left = || (call.end..freed(index)).all(|entry| self.actions[entry as usize] != Action::Alloc);
            freed(index) == NEVER || !self.is_return(freed(index) - 1) || !is_left()
        };
        let Some(&last) = alive.iter().rev().find(|index| outlives(index)) else { return Vec::new() };
        let rest = alive.iter().rev().skip_while(|&&index| stack(index) != stack(last));
        let mut of_operator: Vec<u32> = rest.take_while(|&&index| stack(index) == stack(last)).copied().collect();
        let largest = of_operator.iter().max_by_key(|&&index| self.allocation(index).size);
        if largest.is_some_and(|largest| !outlives(largest)) {
            // A block that the last operator allocated is a local variable: the output was allocated earlier, or computed in place.
            let kept = alive.into_iter().filter(|&index| self.is_kept_for_backward(index, call.end));
            return kept.min_by_key(|&index| freed(index)).into_iter().collect();
        }
        of_operator.retain(outlives);
        if self.is_recurrent(call) && born.clone().all(|index| stack(index) == stack(last)) {
            // A recurrent cell of PyTorch is a single operator; its outputs have one size and come last.
            let requested = |index: u32| self.allocation(index).requested;
            return of_operator.into_iter().take_while(|&index| requested(index) == requested(last)).collect();
        }
        // Without a backward, nothing is freed first: then the output is the largest, and the others are masks and statistics.
        let order = |&index: &u32| (freed(index), Reverse(self.allocation(index).size), index);
        of_operator.into_iter().min_by_key(order).into_iter().collect()
    }

    fn is_recurrent(&self, call: &Call) -> bool {
        self.calls.function(call.function).is_some_and(|function| is_recurrent(self.track.snapshot, function))
    }

    /// Whether an entry frees the local variables of a call that has just returned: Python frees them while the frame
    /// of the caller, `Module._call_impl`, is innermost.
    fn is_return(&self, entry: u32) -> bool {
        let stack = self.track.stack(entry);
        let innermost = self.track.snapshot.stacks.frame_ids(stack).first();
        self.phases.frees_tell && innermost.is_some_and(|&frame| self.roles.is_module_call(frame))
    }

    /// The inputs of a call that only the caller keeps until an instant: those that it releases as soon as the call
    /// returns, and the result of the operator right before the call, if the caller releases it later in the forward pass.
    fn inputs(&self, call: &Call, until: Instant) -> Vec<Gap> {
        let is_alloc = |entry: &u32| self.actions[*entry as usize] == Action::Alloc;
        let after = (call.end..self.track.history.entries()).take(LONGEST_NODE).take_while(|entry| !is_alloc(entry));
        let freed = after.filter(|&entry| self.phases.frees_tell && !self.is_return(entry)).map(|entry| entry + 1);
        let of_caller = freed.filter_map(|instant| {
            let index = self.freed_at[instant as usize];
            let block = self.track.history.allocations.get(index as usize)?;
            let is_given = block.born <= call.start && self.phases.at(block.born) == Phase::Forward;
            (is_given && instant < until).then(|| self.gap(index, instant, until))
        });
        let mut inputs: Vec<Gap> = of_caller.collect();
        let made = self.track.history.born_after(call.start) as u32;
        let start = self.pass_around(call.start).map_or(call.start, |pass| pass.start);
        let earlier = (0..made).rev().take_while(|&index| self.allocation(index).born > start);
        let mut there = earlier.filter(|&index| self.allocation(index).freed > call.end).peekable();
        let stack = |index: u32| self.track.stack_of(index as usize);
        let operator = there.peek().map(|&last| stack(last));
        let of_operator = there.take_while(|&index| Some(stack(index)) == operator);
        let result = of_operator.max_by_key(|&index| (self.allocation(index).size, index));
        let last = result.filter(|&index| self.phases.at(self.allocation(index).freed) == Phase::Forward);
        if let Some(last) = last.filter(|last| inputs.iter().all(|input| input.allocation != *last))
            && self.phases.frees_tell
            && self.allocation(last).freed < until
        {
            inputs.push(self.gap(last, self.allocation(last).freed, until));
        }
        inputs
    }

    /// When a checkpointed call frees a block, before an instant.
    fn dropped(&self, call: &Call, index: u32, before: Instant) -> Instant {
        if self.is_cast(index) { self.autocast.end(call.end, before) } else { self.release_in(call, index) }
    }

    /// When autocast frees its copy of a parameter, before an instant.
    pub(crate) fn end_of_cast(&self, index: u32, before: Instant) -> Option<Instant> {
        self.is_cast(index).then(|| self.autocast.end(self.allocation(index).born, before))
    }

    /// Whether a block looks like the copy of a parameter that autocast keeps until its region ends. Autocast casts the arguments
    /// of an operator in reverse order: the bias, the weight, and then the input.
    fn is_cast(&self, index: u32) -> bool {
        const LARGEST_BIAS: u64 = 64 << 10;
        let stack = self.track.stack_of(index as usize);
        let is_copy = |bytes: u64| self.autocast.is_copy(self.sites, bytes, stack);
        let Allocation { requested, born, .. } = *self.allocation(index);
        if !is_copy(requested) {
            return false;
        }
        let before = (0..born.saturating_sub(1)).rev().take(LONGEST_NODE);
        let before = before.filter(|&entry| self.actions[entry as usize] == Action::Alloc);
        let mut before = before.take_while(|&entry| self.track.stack(entry) == stack);
        let before = before.find_map(|entry| self.track.history.allocation_of(entry));
        // A bias has an element for each row of the weight.
        before.is_none_or(|before| {
            let bytes = before.requested;
            let is_bias = bytes <= LARGEST_BIAS && bytes < requested && requested.is_multiple_of(bytes);
            !is_copy(bytes)
                || !self.is_kept_for_backward(self.track.history.links[before.born as usize - 1], born)
                || is_bias
        })
    }

    /// The entry at which a recomputed call stops: the one after the last block that backward needs. The non-reentrant
    /// checkpoint raises `_StopRecomputationError` there.
    fn stop(&self, call: &Call, last_needed: Instant) -> u32 {
        let mut rest = last_needed..call.end;
        rest.find(|&entry| self.actions[entry as usize] == Action::Alloc).unwrap_or(call.end)
    }

    /// The maximum number of bytes that a call allocates at once during recomputation.
    fn rerun_peak(&self, start: u32, stop: u32, born: &Range<u32>) -> u64 {
        let (mut live, mut peak) = (0u64, 0u64);
        for instant in start + 1..=stop {
            if self.actions[instant as usize - 1] == Action::Alloc {
                let made = self.track.history.allocation_of(instant - 1).filter(|allocation| allocation.freed != NEVER);
                live += made.map_or(0, |allocation| allocation.size);
                peak = peak.max(live);
            }
            let freed = self.freed_at[instant as usize];
            if born.contains(&freed) {
                live -= self.allocation(freed).size;
            }
        }
        peak
    }
}

/// Whether a function is the forward of one of PyTorch's recurrent layers.
pub(in crate::simulation::changes) fn is_recurrent(snapshot: &Snapshot, function: &ForwardFunction) -> bool {
    snapshot.strings.get(function.file).ends_with("nn/modules/rnn.py")
}
