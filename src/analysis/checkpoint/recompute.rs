//! What `torch.utils.checkpoint` would change about one call of a forward function.

use crate::analysis::training::{Call, Phase, Phases, Roles};
use crate::model::{Action, Snapshot};
use crate::replay::{Allocation, History, Instant, NEVER};
use std::ops::Range;

/// One call, as it would run under `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recompute {
    /// The first entry of the call.
    pub start: u32,
    /// The entry at which it stops when it runs again.
    pub stop: u32,
    /// The allocations that it makes, as indexes into [`History::allocations`].
    pub born: Range<u32>,
    /// Of these, what its backward needs, in order.
    pub kept: Vec<u32>,
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

/// Instants that are skipped together.
const CHUNK: u32 = 1024;
/// No node of backward makes and frees as many blocks in a row; it bounds the time for damaged files.
const LONGEST_NODE: usize = 256;

/// Works out [`Recompute`]s for the calls of one device.
pub(super) struct Recomputing<'a> {
    snapshot: &'a Snapshot,
    history: &'a History,
    phases: &'a Phases,
    roles: &'a Roles,
    actions: &'a [Action],
    /// The allocation freed at each instant; [`NEVER`] for none.
    freed_at: Vec<u32>,
    /// For each [`CHUNK`] of instants when the youngest of the blocks freed there was born.
    youngest_freed: Vec<Instant>,
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
        let born = |&index: &u32| history.allocations.get(index as usize).map_or(0, |allocation| allocation.born);
        let youngest_freed =
            freed_at.chunks(CHUNK as usize).map(|chunk| chunk.iter().map(born).max().unwrap_or(0)).collect();
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
        Self { snapshot, history, phases, roles, actions, freed_at, youngest_freed, autocast_ends, parameter_sizes }
    }

    /// What checkpointing a call would change; `None` when it keeps nothing for backward.
    pub(super) fn of(&self, call: &Call) -> Option<Recompute> {
        let born = self.born_in(call);
        let mut kept: Vec<u32> = born.clone().filter(|&index| self.is_kept_for_backward(index, call.end)).collect();
        // Outputs live on through their consumers, even where the call's own backward needs them, too, as `relu` does.
        let outputs = self.outputs(call, &born);
        kept.retain(|index| !outputs.contains(index));
        let (first_free, last_free) = self.frees(&kept)?;
        let is_own = |&index: &u32| self.is_kept_by_activation(index) || self.is_same_node(index, first_free);
        let (mut own, others): (Vec<u32>, Vec<u32>) = outputs.into_iter().partition(is_own);
        own.retain(|&index| self.is_kept_for_backward(index, call.end));
        let begin = self.begin_of_backward(call, last_free, &others);
        // What is freed before the call's own backward begins was kept by its consumers: more of its outputs.
        kept.retain(|&index| self.allocation(index).freed > begin);
        let mut needed: Vec<u32> = kept.iter().chain(&own).copied().collect();
        needed.sort_unstable();
        let (first_free, _) = self.frees(&needed)?;
        let resume = self.begin_of_node(first_free, begin);
        let mut gaps = Vec::new();
        // An output that the call keeps, too, is there twice from then on, but its consumers have let go of the first one.
        gaps.extend(own.iter().map(|&index| self.gap(index, resume, resume)));
        for &index in &kept {
            let freed = self.allocation(index).freed;
            let from =
                if self.is_cast(index) { self.autocast_end(call.end, resume) } else { self.consumed(call, index) };
            gaps.push(self.gap(index, from, resume));
            let released = self.end_of_node(freed);
            if released < freed && released > resume {
                gaps.push(self.gap(index, released, freed));
            }
        }
        let stop = self.stop(call, self.allocation(*needed.last()?).born);
        let rerun_peak_bytes = self.rerun_peak(call.start, stop, &born);
        Some(Recompute { start: call.start, stop, born, kept: needed, gaps, resume, rerun_peak_bytes })
    }

    /// Bytes of the workspaces that the engine's thread makes for itself when it runs these calls again for the first
    /// time. cuBLAS has one for each thread, made at the first use and never freed; those that backward needs itself are
    /// there already from the first step on, which ends at an instant.
    pub(super) fn workspace_bytes<'c>(&self, calls: impl IntoIterator<Item = &'c Call>, first_step: Instant) -> u64 {
        let stays = |allocation: &&Allocation| allocation.freed == NEVER;
        let of_engine = |size: u64| {
            let made = self.history.allocations.iter().take_while(|allocation| allocation.born <= first_step);
            let mut staying = made.filter(stays);
            staying.any(|other| other.requested == size && self.phases.at(other.born) == Phase::Backward)
        };
        let made = calls.into_iter().flat_map(|call| self.history.allocations[range(&self.born_in(call))].iter());
        let mut sizes: Vec<u64> = made.filter(stays).map(|allocation| allocation.requested).collect();
        sizes.sort_unstable();
        // What is made more than once is kept by the program itself.
        let once = sizes.chunk_by(|a, b| a == b).filter(|same| same.len() == 1).map(|same| same[0]);
        once.filter(|&size| !of_engine(size)).sum()
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

    /// The first and the last instant at which one of these blocks is freed.
    fn frees(&self, blocks: &[u32]) -> Option<(Instant, Instant)> {
        let frees = || blocks.iter().map(|&index| self.allocation(index).freed);
        Some((frees().min()?, frees().max()?))
    }

    /// What a call returns: of the blocks that its last operator made, the one that is freed first. The others, such as
    /// the mean that `layer_norm` keeps, wait for the operator's own backward.
    fn outputs(&self, call: &Call, born: &Range<u32>) -> Vec<u32> {
        let freed = |index: u32| self.allocation(index).freed;
        let stack = |index: u32| self.history.stack_of(self.snapshot, index as usize);
        let alive: Vec<u32> = born.clone().filter(|&index| freed(index) > call.end && freed(index) != NEVER).collect();
        let outlives = |&index: &u32| !self.is_return(freed(index) - 1);
        let Some(&last) = alive.iter().rev().find(|index| outlives(index)) else { return Vec::new() };
        let rest = alive.iter().rev().skip_while(|&&index| stack(index) != stack(last));
        let mut of_operator: Vec<u32> = rest.take_while(|&&index| stack(index) == stack(last)).copied().collect();
        let largest = of_operator.iter().max_by_key(|&&index| self.allocation(index).size);
        if largest.is_some_and(|largest| !outlives(largest)) {
            // What the last operator made is a local variable: the output was made before, or in place.
            let kept = alive.into_iter().filter(|&index| self.is_kept_for_backward(index, call.end));
            return kept.min_by_key(|&index| freed(index)).into_iter().collect();
        }
        of_operator.retain(outlives);
        if born.clone().all(|index| stack(index) == stack(last)) {
            // A cell of PyTorch's own is a single operator; its outputs are of one size and come last.
            let requested = |index: u32| self.allocation(index).requested;
            return of_operator.into_iter().take_while(|&index| requested(index) == requested(last)).collect();
        }
        of_operator.into_iter().min_by_key(|&index| (freed(index), index)).into_iter().collect()
    }

    /// Whether the same node of backward lets go of a block and of what is freed at an instant.
    fn is_same_node(&self, index: u32, freed: Instant) -> bool {
        let other = self.allocation(index).freed;
        let mut between = other.min(freed)..other.max(freed);
        other != NEVER && between.all(|entry| self.actions.get(entry as usize) != Some(&Action::Alloc))
    }

    /// Whether the node of backward that lets go of a block is that of an activation function which keeps its result: it
    /// makes a single gradient, of the same size.
    fn is_kept_by_activation(&self, index: u32) -> bool {
        let Allocation { freed, requested, .. } = *self.allocation(index);
        if self.phases.at(freed) != Phase::Backward {
            return false;
        }
        let is_alloc = |entry: u32| self.actions[entry as usize] == Action::Alloc;
        let is_free =
            |entry: u32| matches!(self.actions[entry as usize], Action::FreeRequested | Action::FreeCompleted);
        let before = (0..freed - 1).rev().take(LONGEST_NODE).skip_while(|&entry| is_free(entry));
        let made: Vec<u32> =
            before.take_while(|&entry| !is_free(entry)).filter(|&entry| is_alloc(entry)).take(2).collect();
        let [gradient] = made[..] else { return false };
        self.history.allocation_of(gradient).is_some_and(|gradient| gradient.requested == requested)
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
    /// call, and of the call's outputs, come before those of the call itself.
    fn begin_of_backward(&self, call: &Call, last_free: Instant, outputs: &[u32]) -> Instant {
        let later = |instant: Instant| {
            let index = self.freed_at[instant as usize];
            let Some(freed) = self.history.allocations.get(index as usize) else { return false };
            outputs.contains(&index) || (freed.born > call.end && self.phases.at(freed.born) == Phase::Forward)
        };
        let mut instant = last_free;
        while instant > call.end {
            instant -= 1;
            // Where nothing of a whole chunk is as young as the call, there is nothing to look for.
            let chunk = instant / CHUNK;
            if instant % CHUNK == CHUNK - 1 && self.youngest_freed[chunk as usize] < call.start {
                instant = chunk * CHUNK;
                continue;
            }
            if later(instant) {
                return instant;
            }
        }
        // Nothing later was kept: the call's backward is the first.
        let spans = &self.phases.spans[self.phases.spans.partition_point(|span| span.end <= call.end)..];
        spans.iter().find(|span| span.phase == Phase::Backward).map_or(call.end, |span| span.start).min(last_free - 1)
    }

    /// When a node of backward lets go of a block that was recorded as freed at an instant, had the block been recomputed.
    ///
    /// The engine releases what a node has saved after it has summed the node's gradients to their shapes
    /// (`validate_outputs`). A recomputed tensor belongs to the node's function, which returns before that: it does not
    /// overlap with the blocks of the sum. Those are its result, a buffer, and semaphores (`gpu_reduce_kernel`), of which
    /// the last two are freed at once.
    fn end_of_node(&self, freed: Instant) -> Instant {
        const LARGEST_SEMAPHORES: u64 = 64 << 10;
        let entries = freed.saturating_sub(LONGEST_NODE as u32)..freed.saturating_sub(1);
        if self.frees_others(freed) {
            return freed;
        }
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

    /// Whether a node lets go of other blocks of forward than the one freed at an instant. Then it is more than the
    /// product with a weight (or with autocast's copy of one), and sums within its function.
    fn frees_others(&self, freed: Instant) -> bool {
        let is_alloc = |instant: &Instant| self.actions.get(*instant as usize - 1) == Some(&Action::Alloc);
        let before = (1..freed).rev().take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        let after = (freed + 1..=self.history.entries()).take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        before.chain(after).any(|instant| {
            let index = self.freed_at[instant as usize];
            let other = self.history.allocations.get(index as usize);
            other.is_some_and(|other| self.phases.at(other.born) == Phase::Forward) && !self.is_cast(index)
        })
    }

    /// The instant before the node of backward that frees a block at an instant allocates anything.
    ///
    /// A node allocates its gradients and then lets go of what it was given and of what it saved. What it frees between
    /// its allocations are buffers that it has just made. No earlier than another instant.
    fn begin_of_node(&self, freed: Instant, earliest: Instant) -> Instant {
        let is_alloc = |entry: u32| self.actions[entry as usize] == Action::Alloc;
        let earliest = earliest.max(freed.saturating_sub(LONGEST_NODE as u32));
        let mut begin = freed - 1;
        loop {
            let frees = begin;
            while begin > earliest && !is_alloc(begin - 1) {
                begin -= 1;
            }
            let allocs = begin;
            while begin > earliest && is_alloc(begin - 1) {
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
            if begin <= earliest {
                return begin;
            }
        }
    }

    /// When a checkpointed call lets go of a block that is not kept for backward: once the next operator has run, or at
    /// the end of the call.
    fn consumed(&self, call: &Call, index: u32) -> Instant {
        let mut rest = self.allocation(index).born..call.end;
        let next = rest.find(|&entry| self.actions[entry as usize] == Action::Alloc);
        next.map_or(call.end, |entry| entry + 1)
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

    /// The entry at which a call stops when it runs again: what comes after the last block that backward needs. The
    /// non-reentrant checkpoint raises there (`_StopRecomputationError`).
    fn stop(&self, call: &Call, last_needed: Instant) -> u32 {
        let mut rest = last_needed..call.end;
        rest.find(|&entry| self.actions[entry as usize] == Action::Alloc).unwrap_or(call.end)
    }

    /// The most that a call has allocated at once when it runs again.
    fn rerun_peak(&self, start: u32, stop: u32, born: &Range<u32>) -> u64 {
        let (mut live, mut peak) = (0u64, 0u64);
        for instant in start + 1..=stop {
            if self.actions[instant as usize - 1] == Action::Alloc {
                let made = self.history.allocation_of(instant - 1).filter(|allocation| allocation.freed != NEVER);
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

fn range(indexes: &Range<u32>) -> Range<usize> {
    indexes.start as usize..indexes.end as usize
}
