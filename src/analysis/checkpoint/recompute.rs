//! What `torch.utils.checkpoint` would change about one call of a forward function.

use crate::analysis::training::{Call, Phase, Phases, Roles};
use crate::model::{Action, Snapshot};
use crate::replay::{Allocation, History, Instant, NEVER};
use std::ops::Range;

/// One call, as it would run under `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recompute {
    /// When blocks that the call keeps for backward would not be there.
    pub gaps: Vec<Gap>,
    /// The instant right before its backward begins: here the call runs again and what was dropped comes back.
    pub resume: Instant,
    /// The most that is allocated at once while it runs again.
    pub rerun_peak_bytes: u64,
}

/// A time without a block that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The block, as an index into [`History::allocations`].
    pub allocation: u32,
    /// The first instant without it.
    pub from: Instant,
    /// The first instant with it again, or the one at which it was freed anyway.
    pub to: Instant,
    /// Its bytes.
    pub bytes: u64,
}

/// Works out [`Recompute`]s for the calls of one device.
pub(super) struct Recomputing<'a> {
    snapshot: &'a Snapshot,
    history: &'a History,
    phases: &'a Phases,
    roles: &'a Roles,
    actions: &'a [Action],
    /// The allocation freed at each instant; [`NEVER`] for none.
    freed_at: Vec<u32>,
    /// Entries at which an autocast region ends, in order.
    autocast_ends: Vec<u32>,
    /// Sizes of what could be a parameter, sorted: blocks that are older than any forward and outlive it.
    parameter_sizes: Vec<u64>,
}

impl<'a> Recomputing<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, history: &'a History, phases: &'a Phases, roles: &'a Roles) -> Self {
        let mut freed_at = vec![NEVER; history.entries() as usize + 1];
        for (index, allocation) in history.allocations.iter().enumerate() {
            if let Some(slot) = freed_at.get_mut(allocation.freed as usize) {
                *slot = index as u32;
            }
        }
        let rows = history.rows.clone();
        let actions = snapshot.entries.actions().get(rows.clone()).unwrap_or(&[]);
        let leaves = |entry: &u32| roles.leaves_autocast(snapshot.entries.stack(rows.start + *entry as usize));
        let autocast_ends: Vec<u32> = (0..history.entries()).filter(leaves).collect();
        let mut parameter_sizes = Vec::new();
        if !autocast_ends.is_empty() {
            let first_forward = phases.spans.iter().find(|span| span.phase == Phase::Forward);
            let start = first_forward.map_or(0, |span| span.start);
            let old = history.allocations.iter().take_while(|allocation| allocation.born <= start);
            parameter_sizes = old.filter(|old| old.freed > start).map(|old| old.requested).collect();
            parameter_sizes.sort_unstable();
            parameter_sizes.dedup();
        }
        Self { snapshot, history, phases, roles, actions, freed_at, autocast_ends, parameter_sizes }
    }

    /// What checkpointing a call would change; `None` when it keeps nothing for backward.
    pub(super) fn of(&self, call: &Call) -> Option<Recompute> {
        let born = self.born_in(call);
        let mut kept: Vec<u32> = born.clone().filter(|&index| self.is_kept_for_backward(index, call.end)).collect();
        // The output lives on through its consumers, even where the call's own backward needs it, too, as `relu` does.
        let output = self.output(call, &born);
        kept.retain(|&index| Some(index) != output);
        let last_free = kept.iter().map(|&index| self.allocation(index).freed).max()?;
        let own = output.filter(|&output| self.is_kept_by_activation(output));
        let begin = self.begin_of_backward(call, last_free, output.filter(|_| own.is_none()));
        // What is freed before the call's own backward begins was kept by its consumers: more of its outputs.
        kept.retain(|&index| self.allocation(index).freed > begin);
        let first_free = kept.iter().copied().chain(own).map(|index| self.allocation(index).freed).min()?;
        let resume = self.begin_of_node(first_free).max(begin);
        let mut gaps = Vec::new();
        // An output that the call keeps, too, is there twice from then on, but its consumers have let go of the first one.
        gaps.extend(own.map(|index| self.gap(index, resume, resume)));
        for &index in &kept {
            let freed = self.allocation(index).freed;
            let from = if self.is_cast(index) { self.autocast_end(call.end, resume) } else { call.end };
            gaps.push(self.gap(index, from, resume));
            let released = self.end_of_node(freed);
            if released < freed && released > resume {
                gaps.push(self.gap(index, released, freed));
            }
        }
        let last_needed = kept.iter().copied().chain(own).map(|index| self.allocation(index).born).max()?;
        let rerun_peak_bytes = self.rerun_peak(call, &born, last_needed);
        Some(Recompute { gaps, resume, rerun_peak_bytes })
    }

    fn gap(&self, allocation: u32, from: Instant, to: Instant) -> Gap {
        Gap { allocation, from, to, bytes: self.allocation(allocation).size }
    }

    fn allocation(&self, index: u32) -> &Allocation {
        &self.history.allocations[index as usize]
    }

    /// The allocations made within a call.
    fn born_in(&self, call: &Call) -> Range<u32> {
        let behind =
            |entry: u32| self.history.allocations.partition_point(|allocation| allocation.born <= entry) as u32;
        behind(call.start)..behind(call.end)
    }

    /// Whether a block outlives the call and is freed by a backward.
    fn is_kept_for_backward(&self, index: u32, end: Instant) -> bool {
        let freed = self.allocation(index).freed;
        freed > end && freed != NEVER && self.phases.at(freed) == Phase::Backward
    }

    /// What a call returns: of the blocks that outlive it, the largest that its last operator made.
    fn output(&self, call: &Call, born: &Range<u32>) -> Option<u32> {
        let is_local = |freed: Instant| self.is_return(freed - 1);
        let outlives = |&index: &u32| {
            let freed = self.allocation(index).freed;
            freed > call.end && freed != NEVER && !is_local(freed)
        };
        let last = born.clone().rev().find(outlives)?;
        let stack = self.history.stack_of(self.snapshot, last as usize);
        let of_operator = born
            .clone()
            .rev()
            .skip_while(|&index| index != last)
            .take_while(|&index| self.history.stack_of(self.snapshot, index as usize) == stack);
        // The last of equals, which comes first here.
        of_operator
            .filter(outlives)
            .reduce(|best, next| if self.allocation(next).size > self.allocation(best).size { next } else { best })
    }

    /// Whether the node of backward that lets go of a block is that of an activation function which keeps its result: it
    /// makes a single gradient, of the same size.
    fn is_kept_by_activation(&self, index: u32) -> bool {
        let Allocation { freed, size, .. } = *self.allocation(index);
        if self.phases.at(freed) != Phase::Backward {
            return false;
        }
        let is_alloc = |entry: u32| self.actions[entry as usize] == Action::Alloc;
        let is_free =
            |entry: u32| matches!(self.actions[entry as usize], Action::FreeRequested | Action::FreeCompleted);
        let before = (0..freed - 1).rev().skip_while(|&entry| is_free(entry));
        let made: Vec<u32> =
            before.take_while(|&entry| !is_free(entry)).filter(|&entry| is_alloc(entry)).take(2).collect();
        let [gradient] = made[..] else { return false };
        self.history.allocation_of(gradient).is_some_and(|gradient| gradient.size == size)
    }

    /// Whether an entry frees the local variables of a call that has just returned: Python does it while the frame that
    /// called, `Module._call_impl`, is innermost.
    fn is_return(&self, entry: u32) -> bool {
        let stack = self.snapshot.entries.stack(self.history.rows.start + entry as usize);
        let innermost = self.snapshot.stacks.frame_ids(stack).first();
        self.phases.frees_tell && innermost.is_some_and(|&frame| self.roles.is_module_call(frame))
    }

    /// The last instant that belongs to the backward of something later than the call.
    ///
    /// The engine runs backward in the reverse order of forward, so the frees of blocks which forward made after the
    /// call, and of the call's output, come before those of the call itself.
    fn begin_of_backward(&self, call: &Call, last_free: Instant, output: Option<u32>) -> Instant {
        let is_later = |instant: &Instant| {
            let index = self.freed_at[*instant as usize];
            let Some(freed) = self.history.allocations.get(index as usize) else { return false };
            Some(index) == output || (freed.born > call.end && self.phases.at(freed.born) == Phase::Forward)
        };
        let started = |instant: &Instant| self.phases.at(*instant) == Phase::Backward;
        let earlier = (call.end..last_free).rev();
        earlier.clone().find(is_later).or_else(|| earlier.take_while(started).last()).unwrap_or(call.end)
    }

    /// When a node of backward lets go of a block that was recorded as freed at an instant, had the block been recomputed.
    ///
    /// The engine releases what a node has saved after it has summed the node's gradients to their shapes
    /// (`validate_outputs`). A recomputed tensor belongs to the node's function, which returns before that: it does not
    /// overlap with the blocks of the sum. Those are its result, a buffer, and semaphores (`gpu_reduce_kernel`), of which
    /// the last two are freed at once.
    fn end_of_node(&self, freed: Instant) -> Instant {
        /// More entries than a node frees and a sum makes.
        const LONGEST: u32 = 64;
        const LARGEST_SEMAPHORES: u64 = 64 << 10;
        let entries = freed.saturating_sub(LONGEST)..freed.saturating_sub(1);
        let is_alloc = |entry: &u32| self.actions[*entry as usize] == Action::Alloc;
        let mut allocs =
            entries.rev().filter(is_alloc).map_while(|entry| Some((entry, self.history.allocation_of(entry)?)));
        let (Some((_, semaphores)), Some((_, buffer)), Some((result, _))) =
            (allocs.next(), allocs.next(), allocs.next())
        else {
            return freed;
        };
        let is_sum = semaphores.size <= LARGEST_SEMAPHORES
            && semaphores.size <= buffer.size
            && semaphores.freed < buffer.freed
            && buffer.freed < freed;
        if is_sum { result } else { freed }
    }

    /// The instant before the node of backward that frees a block at an instant allocates anything.
    ///
    /// A node allocates its gradients and then lets go of what it was given and of what it saved. What it frees between
    /// its allocations are buffers that it has just made.
    fn begin_of_node(&self, freed: Instant) -> Instant {
        let is_alloc = |entry: u32| self.actions[entry as usize] == Action::Alloc;
        let mut begin = freed - 1;
        loop {
            let frees = begin;
            while begin > 0 && !is_alloc(begin - 1) {
                begin -= 1;
            }
            let allocs = begin;
            while begin > 0 && is_alloc(begin - 1) {
                begin -= 1;
            }
            let is_buffer = |entry: u32| {
                let allocation = self.history.allocation_of(entry);
                allocation.is_none_or(|allocation| allocation.born > begin && allocation.born <= allocs)
            };
            // The frees that follow the last allocations are not among those in between.
            if frees < freed - 1 && !(allocs..frees).all(is_buffer) {
                return frees;
            }
            if begin == 0 {
                return begin;
            }
        }
    }

    /// Whether a block looks like the copy of a parameter in half precision that autocast keeps until its region ends.
    fn is_cast(&self, index: u32) -> bool {
        let doubled = self.allocation(index).requested.saturating_mul(2);
        self.parameter_sizes.binary_search(&doubled).is_ok()
    }

    /// The end of the autocast region that is open at an instant.
    fn autocast_end(&self, instant: Instant, before: Instant) -> Instant {
        let next = self.autocast_ends.partition_point(|&entry| entry < instant);
        self.autocast_ends.get(next).copied().filter(|&end| end < before).unwrap_or(instant)
    }

    /// The most that a call has allocated at once when it runs again. It stops at what comes after the last block that
    /// backward needs: the non-reentrant checkpoint raises there (`_StopRecomputationError`).
    fn rerun_peak(&self, call: &Call, born: &Range<u32>, last_needed: Instant) -> u64 {
        let stop = (last_needed..call.end).find(|&entry| self.actions[entry as usize] == Action::Alloc);
        let stop = stop.unwrap_or(call.end);
        let (mut live, mut peak) = (0u64, 0u64);
        for instant in call.start + 1..=stop {
            if self.actions[instant as usize - 1] == Action::Alloc {
                live += self.history.allocation_of(instant - 1).map_or(0, |allocation| allocation.size);
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
