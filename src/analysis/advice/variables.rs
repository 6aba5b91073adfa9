//! When the variables of a function release their tensors.
//!
//! A loop releases a tensor when its line runs again and rebinds the variable; a function that returns releases all of
//! them. A recording contains neither, but it has the stacks of later entries, and the order of allocations and frees.

use super::model_calls::{ModelCall, born_in};
use crate::facts::device::Device;
use crate::facts::training::Role;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, History, Instant, NEVER};
use std::cell::Cell;
use std::collections::HashMap;

/// The least number of times that the first block of a function is freed before it is allocated again, if the function
/// returns in between.
const LEAST_RETURNS: usize = 2;

/// A function of the user's code on the stacks of blocks.
pub(super) struct Function<'d, 'a> {
    device: &'d Device<'a>,
    /// For each stack, whether the function is on it.
    is_on: Vec<bool>,
    returns: bool,
    /// Entries that are known not to show that it returned: calls come in order, so each entry is looked at once.
    within: Cell<(Instant, Instant)>,
}

impl<'d, 'a> Function<'d, 'a> {
    /// The function that contains a line, which makes these calls of a model.
    pub fn of(device: &'d Device<'a>, line: FrameId, calls: &[&ModelCall]) -> Option<Self> {
        let stacks = &device.snapshot().stacks;
        let own = stacks.frame(line)?;
        let is_it = |frame: &FrameId| {
            stacks.frame(*frame).is_some_and(|frame| frame.filename == own.filename && frame.name == own.name)
        };
        let is_on = (0..stacks.len() as u32).map(|stack| stacks.frame_ids(StackId(stack)).iter().any(is_it)).collect();
        let mut function = Self { device, is_on, returns: false, within: Cell::default() };
        function.returns = function.frees_what_it_makes(calls);
        Some(function)
    }

    /// The instant by which a variable has freed the results of a call, given when its line runs again.
    pub fn released(&self, call: &ModelCall, next: Option<&&ModelCall>, again: Instant) -> Instant {
        let track = self.device.track;
        if let Some(next) = next.filter(|_| self.returns) {
            return next.start.min(again);
        }
        let is_behind = |&entry: &Instant| {
            let stack = track.stack(entry);
            stack != StackId::EMPTY && self.device.sites().has_python(stack) && !self.is_on[stack.index()]
        };
        let (from, to) = self.within.get();
        let (from, start) = if (from..to).contains(&call.end) { (from, to) } else { (call.end, call.end) };
        let until = again.min(track.entries());
        let found = (start..until).find(is_behind);
        self.within.set((from, found.unwrap_or(until.max(start))));
        found.unwrap_or(again)
    }

    /// Whether the first block of each round is freed just before it is allocated again: a loop would free it afterwards.
    fn frees_what_it_makes(&self, calls: &[&ModelCall]) -> bool {
        let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return false };
        let mut known: HashMap<StackId, Allocation> = HashMap::new();
        let (mut before, mut after) = (0, 0);
        let mut newest = 0;
        for (index, made) in born_in(self.device, first.start, last.end) {
            let stack = self.device.track.stack_of(index as usize);
            let is_plain = self.device.roles().role(stack) == Role::Plain && self.is_on[stack.index()];
            if is_plain && let Some(old) = known.insert(stack, made).filter(|old| old.freed != NEVER) {
                // A line frees the arguments that it makes when its call returns; its function goes on.
                let is_argument = || self.frees_itself(first.line, stack, &old);
                before += usize::from(old.freed > newest && old.freed < made.born && !is_argument());
                after += usize::from(old.freed > made.born);
            }
            newest = made.born;
        }
        before >= LEAST_RETURNS && after == 0
    }
}

impl Function<'_, '_> {
    fn frees_itself(&self, line: FrameId, stack: StackId, made: &Allocation) -> bool {
        let freed = History::entry_before(made.freed).map_or(StackId::EMPTY, |entry| self.device.track.stack(entry));
        let own = frame_of_function(self.device, stack, line);
        self.device.phases().frees_tell && own.is_some() && frame_of_function(self.device, freed, line) == own
    }
}

/// The frame of a line's function on a stack: the line in it that allocates the block, directly or through a function it calls.
pub(super) fn frame_of_function(device: &Device<'_>, stack: StackId, line: FrameId) -> Option<FrameId> {
    let stacks = &device.snapshot().stacks;
    let own = stacks.frame(line)?;
    stacks.frame_ids(stack).iter().copied().find(|&frame| {
        stacks.frame(frame).is_some_and(|frame| frame.filename == own.filename && frame.name == own.name)
    })
}
