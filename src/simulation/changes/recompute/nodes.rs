//! Backward nodes: what each one allocates and frees, derived from the order of entries.

use super::{CHUNK, LONGEST_NODE, Recomputing};
use crate::facts::training::{Call, Phase};
use crate::model::Action;
use crate::replay::{Allocation, Instant, NEVER};

impl Recomputing<'_> {
    /// Whether the node that frees a block also frees the block that is freed at an instant.
    pub(crate) fn is_same_node(&self, index: u32, freed: Instant) -> bool {
        let other = self.allocation(index).freed;
        let mut between = other.min(freed)..other.max(freed);
        other != NEVER && between.all(|entry| self.actions.get(entry as usize) != Some(&Action::Alloc))
    }

    /// Whether the backward node that releases a block belongs to an activation function that keeps its result: the node
    /// allocates a single gradient, of the same size.
    pub(super) fn is_kept_by_activation(&self, index: u32) -> bool {
        let Allocation { freed, requested, .. } = *self.allocation(index);
        if self.phases.at(freed) != Phase::Backward {
            return false;
        }
        let is_alloc = |entry: u32| self.actions[entry as usize] == Action::Alloc;
        let is_free =
            |entry: u32| matches!(self.actions[entry as usize], Action::FreeRequested | Action::FreeCompleted);
        let before = (0..freed - 1).rev().take(LONGEST_NODE).skip_while(|&entry| is_free(entry));
        let mut made = before.take_while(|&entry| !is_free(entry)).filter(|&entry| is_alloc(entry));
        let (Some(gradient), None) = (made.next(), made.next()) else { return false };
        self.track.history.allocation_of(gradient).is_some_and(|gradient| gradient.requested == requested)
    }

    /// The last instant of the backward of operators after the call.
    ///
    /// The engine runs backward in the reverse order of forward, so the frees of blocks that forward allocated after the
    /// call, and of the call's outputs, come before those of the call itself.
    pub(super) fn begin_of_backward(&self, call: &Call, last_free: Instant, outputs: &[u32]) -> Instant {
        let later = |instant: Instant| {
            let index = self.freed_at[instant as usize];
            let Some(freed) = self.track.history.allocations.get(index as usize) else { return false };
            outputs.contains(&index) || (freed.born > call.end && self.phases.at(freed.born) == Phase::Forward)
        };
        let mut instant = last_free;
        while instant > call.end {
            instant -= 1;
            // If no block of a whole chunk is as young as the call, there is nothing to find.
            let chunk = instant / CHUNK;
            if instant % CHUNK == CHUNK - 1 && self.youngest_freed[chunk as usize] < call.start {
                instant = chunk * CHUNK;
                continue;
            }
            if later(instant) {
                return instant;
            }
        }
        // Nothing later was kept, so the backward of the call is the first one.
        let spans = &self.phases.spans[self.phases.spans.partition_point(|span| span.end <= call.end)..];
        spans.iter().find(|span| span.phase == Phase::Backward).map_or(call.end, |span| span.start).min(last_free - 1)
    }

    /// When a backward node would release a block that was recorded as freed at an instant, if the block was recomputed.
    ///
    /// The engine releases what a node has saved after it has summed the node's gradients to their shapes
    /// (`validate_outputs`). A recomputed tensor belongs to the node's function, which returns before that: it does not
    /// overlap with the blocks of the sum. Those are its result, a buffer, and semaphores (`gpu_reduce_kernel`), of which
    /// the last two are freed at once.
    pub(super) fn end_of_node(&self, freed: Instant) -> Instant {
        const LARGEST_SEMAPHORES: u64 = 64 << 10;
        let entries = freed.saturating_sub(LONGEST_NODE as u32)..freed.saturating_sub(1);
        if self.frees_others(freed) {
            return freed;
        }
        let is_alloc = |entry: &u32| self.actions[*entry as usize] == Action::Alloc;
        let mut allocs =
            entries.rev().filter(is_alloc).map_while(|entry| Some((entry, self.track.history.allocation_of(entry)?)));
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

    /// Whether a node frees blocks of forward besides the one freed at an instant. Then it does more than a product
    /// with a weight (or with autocast's copy of one), and sums within its function.
    fn frees_others(&self, freed: Instant) -> bool {
        let is_alloc = |instant: &Instant| self.actions.get(*instant as usize - 1) == Some(&Action::Alloc);
        let before = (1..freed).rev().take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        let after =
            (freed + 1..=self.track.history.entries()).take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        before.chain(after).any(|instant| {
            let index = self.freed_at[instant as usize];
            let other = self.track.history.allocations.get(index as usize);
            other.is_some_and(|other| self.phases.at(other.born) == Phase::Forward) && !self.is_cast(index)
        })
    }

    /// Whether the node that frees a block also frees blocks that forward allocated after a call: the node of a
    /// pooling layer does, since it keeps its input and the indices of the maxima.
    pub(super) fn frees_younger(&self, index: u32, call: &Call) -> bool {
        let freed = self.allocation(index).freed;
        let is_alloc = |instant: &Instant| self.actions.get(*instant as usize - 1) == Some(&Action::Alloc);
        let before = (1..freed).rev().take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        let after =
            (freed + 1..=self.track.history.entries()).take(LONGEST_NODE).take_while(|instant| !is_alloc(instant));
        before.chain(after).any(|instant| {
            let other = self.track.history.allocations.get(self.freed_at[instant as usize] as usize);
            other.is_some_and(|other| other.born > call.end && self.phases.at(other.born) == Phase::Forward)
        })
    }

    /// The instant before the backward node that frees a block at an instant allocates anything.
    ///
    /// A node allocates its gradients and then releases its inputs and saved tensors. Blocks freed between its allocations
    /// are its temporary buffers. The result is not earlier than another instant.
    pub(crate) fn begin_of_node(&self, freed: Instant, earliest: Instant) -> Instant {
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
                let allocation = self.track.history.allocation_of(entry);
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
}
