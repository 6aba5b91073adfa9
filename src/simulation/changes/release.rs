//! When a program would free the results of forward if nothing were kept for backward.
//!
//! A recording with backward passes does not show it, since autograd keeps the saved tensors. Python releases the result of
//! an expression once the operator that uses it has run, and that of a variable once it is reassigned or its function
//! returns. Backward shows which operator uses a block: its nodes run in the reverse order of forward, and each frees what
//! its operator saved. So whatever is freed before a block, or by the same node, was saved by a later operator than what is
//! freed after it, or by the same operator.

use super::recompute::Recomputing;
use crate::facts::training::Call;
use crate::model::{Action, Frame, StackId};
use crate::replay::{Instant, NEVER};
use std::cmp::Reverse;
use std::ops::Range;

/// Number of operators and calls after a block that are searched for its last use.
const MOST_EVENTS: usize = 256;

/// An event within the function of a call: one of its own operators, or another call.
struct Event<'a> {
    /// The first entry that allocates a block.
    entry: u32,
    until: Instant,
    /// The blocks that it allocates or returns, as indexes into [`crate::replay::History::allocations`].
    made: &'a [u32],
}

impl<'a> Recomputing<'a> {
    /// When a block is released, at the latest when it is freed; `None` if it was not allocated in a call of a function.
    /// `around` are the calls that it was allocated in, the outermost first, as indexes into [`Calls::calls`].
    ///
    /// [`Calls::calls`]: crate::facts::training::Calls::calls
    pub(crate) fn release(&self, index: u32, around: &[usize]) -> Option<Instant> {
        let block = self.allocation(index);
        let (mut behind, mut level) = (block.born, around.len().checked_sub(1)?);
        let returns = |place: usize| self.outputs_of(place).contains(&index);
        // The caller frees the result of a call.
        while level > 0 && returns(around[level]) {
            behind = behind.max(self.calls.calls[around[level]].end);
            level -= 1;
        }
        let call = &self.calls.calls[around[level]];
        if level == 0 && returns(around[level]) {
            return self.end_of_round(call).map(|end| end.min(block.freed));
        }
        Some(self.release_within(call, index, behind).min(block.freed))
    }

    /// For an outermost call that is one of several in a row, such as the layers of a model that is not itself a module: the
    /// end of the next call, which uses the result of this one.
    fn end_of_round(&self, call: &Call) -> Option<Instant> {
        let pass = self.pass_around(call.start)?;
        let whole = Call { start: pass.start, end: pass.end, ..*call };
        let first = (call.start..call.end).find(|&entry| self.is_alloc(entry))?;
        let next = self.events(&whole, call.end).next()?;
        (self.track.stack(first) == self.track.stack(next.entry)).then_some(next.until)
    }

    /// The same within a call in which the block was allocated: the result of the call is released when it ends.
    pub(crate) fn release_in(&self, call: &Call, index: u32) -> Instant {
        let entry = self.allocation(index).born.saturating_sub(1);
        let calls = &self.calls.calls;
        let first = calls.partition_point(|other| other.start < call.start);
        let begun = (first..).zip(&calls[first..]).take_while(|(_, other)| other.start <= entry);
        let around = begun.filter(|(_, other)| entry < other.end && other.end <= call.end);
        let around: Vec<usize> = around.map(|(place, _)| place).collect();
        self.release(index, &around).unwrap_or(call.end).min(call.end)
    }

    /// When the function of a call releases a block: one that it allocates itself, or that a call which ends at an
    /// instant returns to it.
    fn release_within(&self, call: &Call, index: u32, behind: Instant) -> Instant {
        let events: Vec<Event<'_>> = self.events(call, behind).take(MOST_EVENTS).collect();
        let is_later = |event: &Event<'_>| event.made.iter().any(|&made| self.is_used_before(made, index));
        let unused = events.iter().rposition(is_later).map_or(0, |last| last + 1);
        let own = self.track.stack_of(index as usize);
        let is_on_line = |event: &Event<'_>| !self.is_other_line(call, own, self.track.stack(event.entry));
        if let Some(user) = events.get(unused).filter(|_| events[..=unused].iter().all(is_on_line)) {
            return user.until;
        }
        if behind == self.allocation(index).born
            && let Some(end) = self.end_if_hidden(call, index)
        {
            return end;
        }
        // A variable: another value of the same size replaces it, or it stays.
        let bytes = self.allocation(index).requested;
        let is_like = |event: &Event<'_>| event.made.iter().any(|&made| self.allocation(made).requested == bytes);
        // The last operation of a line counts, in each round of a loop.
        let is_last = |at: usize| {
            let stack = |event: &Event<'_>| self.track.stack(event.entry);
            let is_next = |one, next| one == next || self.is_other_line(call, one, next);
            events.get(at + 1).is_none_or(|next| is_next(stack(&events[at]), stack(next)))
        };
        let new = (unused..events.len()).find(|&at| is_like(&events[at]) && is_last(at));
        new.map_or(call.end, |at| events[at].until)
    }

    fn events<'c>(&'c self, call: &'c Call, behind: Instant) -> impl Iterator<Item = Event<'a>> + 'c {
        let mut at = behind;
        let calls = &self.calls.calls;
        let mut place = calls.partition_point(|other| other.start < behind);
        std::iter::from_fn(move || {
            let entry = (at..call.end).find(|&entry| self.is_alloc(entry))?;
            while calls.get(place).is_some_and(|other| other.start < at) {
                place += 1;
            }
            let made = if let Some(child) = self.child_at(call, place, entry) {
                at = calls[child].end;
                self.outputs_of(child)
            } else {
                at = self.end_of_operator(call, entry);
                let history = self.track.history;
                let is_known = |index: &&u32| (**index as usize) < history.allocations.len();
                let made = history.links.get(entry as usize).filter(is_known);
                made.map_or(&[][..], std::slice::from_ref)
            };
            Some(Event { entry, until: at, made })
        })
    }

    /// Whether the last operator that saved one block comes before the one that saved another, or is the same operator: the
    /// block is freed after the other, or by the same node.
    fn is_used_before(&self, one: u32, other: u32) -> bool {
        let (block, freed) = (self.allocation(one), self.allocation(other).freed);
        !self.is_open()
            && self.is_kept_for_backward(one, block.born)
            && (block.freed > freed || self.is_same_node(one, freed))
    }

    /// The end of the operator that allocated a block in addition to its result, such as a mask or statistics, only
    /// for backward: among the blocks that one operator leaves, the result is freed first.
    fn end_if_hidden(&self, call: &Call, index: u32) -> Option<Instant> {
        let run = self.run_around(call, index);
        let next = (run.end..call.end).find(|&entry| self.is_alloc(entry)).unwrap_or(call.end);
        let made = run.clone().filter(|&entry| self.is_alloc(entry));
        let made = made.filter_map(|entry| self.track.history.links.get(entry as usize).copied());
        let is_there =
            |&made: &u32| self.track.history.allocations.get(made as usize).is_some_and(|it| it.freed > next);
        let own = self.allocation(index);
        let is_result = |made: u32| {
            let block = self.allocation(made);
            let is_same = block.freed != NEVER && own.freed != NEVER && self.is_same_node(made, own.freed);
            let order = if is_same { 0 } else { block.freed };
            (order, Reverse(block.size), made) < (if is_same { 0 } else { own.freed }, Reverse(own.size), index)
        };
        made.filter(is_there).any(is_result).then_some(run.end)
    }

    /// The entries around the one that allocated a block, within a call, with allocations on the same stack.
    fn run_around(&self, call: &Call, index: u32) -> Range<u32> {
        let entry = self.allocation(index).born.saturating_sub(1);
        let stack = self.track.stack(entry);
        let other = |&entry: &u32| self.is_alloc(entry) && self.track.stack(entry) != stack;
        let start = (call.start..entry).rev().find(other).map_or(call.start, |before| before + 1);
        let end = (entry..call.end).find(other).unwrap_or(call.end);
        let last = (start..end).rev().find(|&entry| self.is_alloc(entry)).unwrap_or(entry);
        start..last + 1
    }

    /// The instant at which the operator that allocates a block at an entry has everything it needs: after its result it
    /// requests a workspace, which it keeps, or frees before anything else is allocated.
    fn end_of_operator(&self, call: &Call, entry: u32) -> Instant {
        let mut end = entry + 1;
        while let Some(next) = (end..call.end).find(|&entry| self.is_alloc(entry)) {
            let Some(made) = self.track.history.allocation_of(next) else { break };
            let is_given_back = || (next + 1..made.freed).all(|entry| !self.is_alloc(entry));
            if self.track.stack(next) != self.track.stack(entry) || !(made.freed == NEVER || is_given_back()) {
                break;
            }
            end = next + 1;
        }
        end
    }

    fn is_alloc(&self, entry: u32) -> bool {
        self.actions[entry as usize] == Action::Alloc
    }

    /// Among the calls from a place on, the outermost one within another call that contains an entry.
    fn child_at(&self, call: &Call, first: usize, entry: u32) -> Option<usize> {
        let mut begun = self.calls.calls[first..].iter().take_while(|other| other.start <= entry);
        let child = begun.position(|other| {
            let is_inside = other.end <= call.end && (other.start, other.end) != (call.start, call.end);
            is_inside && entry < other.end
        });
        child.map(|child| first + child)
    }

    /// Whether the function of a call is at different lines on two stacks: itself, or a function that it is in on
    /// both.
    fn is_other_line(&self, call: &Call, one: StackId, other: StackId) -> bool {
        let Some(function) = self.calls.function(call.function).filter(|_| one != other) else { return false };
        let stacks = &self.track.snapshot.stacks;
        // Other functions of this name in the file have other lines.
        let is_own = |frame: &Frame| {
            (frame.filename, frame.name) == (function.file, function.name)
                && (function.first_line..=function.last_line).contains(&frame.line)
        };
        // The function and its callers, the outermost first.
        let frames = |stack: StackId| {
            let frames = stacks.frame_ids(stack);
            let own = frames.iter().position(|&frame| stacks.frame(frame).is_some_and(is_own))?;
            Some(frames[..=own].iter().rev())
        };
        let (Some(one), Some(other)) = (frames(one), frames(other)) else { return false };
        let different = one.zip(other).filter(|(one, other)| one != other);
        let different = different.filter_map(|(&one, &other)| Some((stacks.frame(one)?, stacks.frame(other)?)));
        let is_one_function = |(a, b): &(&Frame, &Frame)| a.filename == b.filename && a.name == b.name;
        different.take_while(is_one_function).any(|(a, b)| a.line != b.line)
    }
}
