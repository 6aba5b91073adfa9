//! When a program lets go of what forward makes, were nothing of it kept for backward.
//!
//! A recording with backward passes does not show it: autograd holds on to what it has saved. Python lets go of the result
//! of an expression once the operator that takes it has run, and of a variable once it is bound anew or its function
//! returns.

use super::recompute::Recomputing;
use crate::analysis::training::Call;
use crate::model::{Action, Frame, StackId};
use crate::replay::Instant;

impl Recomputing<'_> {
    /// When a block is let go of, at the latest where it is freed; `None` where it was not made by a call of a function.
    /// `around` are the calls that it was made in, the outermost first.
    pub(super) fn release(&self, index: u32, around: &[&Call]) -> Option<Instant> {
        let block = self.allocation(index);
        let (mut behind, mut level) = (block.born, around.len().checked_sub(1)?);
        // What a call returns is its caller's.
        while level > 0 && self.outputs(around[level], &self.born_in(around[level])).contains(&index) {
            behind = behind.max(around[level].end);
            level -= 1;
        }
        let call = around[level];
        if level == 0 && self.outputs(call, &self.born_in(call)).contains(&index) {
            return None;
        }
        Some(self.release_within(call, index, behind).min(block.freed))
    }

    /// When a block is let go of by the function of a call: one that it makes itself, or that a call which ends at an instant
    /// returns to it.
    fn release_within(&self, call: &Call, index: u32, behind: Instant) -> Instant {
        let is_alloc = |entry: &u32| self.actions[*entry as usize] == Action::Alloc;
        let Some(next) = (behind..call.end).find(is_alloc) else { return call.end };
        let user = self.child_at(call, behind, next);
        let own = self.track.stack_of(index as usize);
        if !self.is_other_line(call, own, self.track.stack(next)) {
            // What one operator makes has one stack.
            let same = |entry: &u32| !is_alloc(entry) || self.track.stack(*entry) == self.track.stack(next);
            let last = (next..call.end).take_while(same).filter(is_alloc).last().unwrap_or(next);
            return user.map_or(last + 1, |child| child.end);
        }
        // A variable: another value of its size takes its place, or it stays.
        let bytes = self.allocation(index).requested;
        let mut entry = next;
        while entry < call.end {
            let child = self.child_at(call, behind, entry);
            let until = child.map_or(entry + 1, |child| child.end);
            let is_like =
                |made: u32| self.track.history.allocation_of(made).is_some_and(|made| made.requested == bytes);
            let is_new = match child {
                Some(child) => {
                    let returned = self.outputs(child, &self.born_in(child));
                    returned.iter().any(|&made| self.allocation(made).requested == bytes)
                }
                None => is_alloc(&entry) && is_like(entry),
            };
            if is_new {
                return until;
            }
            entry = until;
        }
        call.end
    }

    /// The outermost call within another one that an entry is part of, and what came before an instant is not.
    fn child_at(&self, call: &Call, behind: Instant, entry: u32) -> Option<&Call> {
        let calls = &self.calls.calls;
        let first = calls.partition_point(|other| other.start < call.start);
        let begun = calls[first..].iter().take_while(|other| other.start <= entry);
        begun.into_iter().find(|other| {
            let is_inside = other.end <= call.end && (other.start, other.end) != (call.start, call.end);
            is_inside && entry < other.end && (behind <= other.start || other.end < behind)
        })
    }

    /// Whether the function of a call is at another line on one stack than on another: itself, or a function that it is in
    /// on both.
    fn is_other_line(&self, call: &Call, one: StackId, other: StackId) -> bool {
        let Some(function) = self.calls.function(call.function) else { return false };
        let frames = |stack: StackId| {
            let frames: Vec<&Frame> = self.track.snapshot.stacks.frames(stack).collect();
            let own = frames.iter().position(|frame| frame.filename == function.file && frame.name == function.name);
            own.map(|own| frames[..=own].iter().rev().copied().collect::<Vec<&Frame>>())
        };
        let (Some(one), Some(other)) = (frames(one), frames(other)) else { return false };
        let is_same = |(a, b): &(&&Frame, &&Frame)| a.filename == b.filename && a.name == b.name;
        one.iter().zip(&other).take_while(is_same).any(|(a, b)| a.line != b.line)
    }
}
