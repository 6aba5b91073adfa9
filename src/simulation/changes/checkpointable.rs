//! Functions whose calls could be checkpointed, and the memory that the calls hold.

use super::chosen::Choice;
use super::functions::{Checkpointed, CodeChange, HeldByCalls};
use super::recompute::{Gap, Recomputing};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::{Call, Category, ForwardFunction, FunctionId, Phase};
use crate::model::{Action, FrameId};
use crate::parallel;
use crate::replay::{Allocation, History, Instant, Metric, NEVER};
use crate::sorting::SortRows;
use indexmap::IndexSet;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

/// Approximate number of entries to examine for all functions: a few seconds of work.
const MOST_PLAYED: usize = 20_000_000;
/// Number of functions that are tried even if they take longer.
const FEWEST_TRIED: usize = 32;

pub(crate) struct Checkpointable<'c, 'a> {
    device: &'c Device<'a>,
    choice: &'c Choice,
    recomputing: Recomputing<'c>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    /// The functions that a forward pass calls more than once, by what their calls hold at the end of the forward pass before
    /// the recorded peak, the most first.
    pub functions: Vec<HeldByCalls>,
    /// Mean time of a forward pass in microseconds, if the file has times.
    pub forward_us: Option<i64>,
    /// Whether `functions` is empty only because the recording does not contain the backward pass for which memory is kept at
    /// the peak, so the peak with recomputation is unknown.
    pub lack_backward: bool,
}

/// Why the pass with the peak does not show what checkpointing would save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassObstacle {
    /// The pass is incomplete: it runs out of memory, or the file is cut off.
    Unfinished,
    /// No backward pass follows.
    NoBackward,
}

impl<'c, 'a> Checkpointable<'c, 'a> {
    pub(crate) fn new(device: &'c Device<'a>, choice: &'c Choice) -> Self {
        Self { device, choice, recomputing: choice.recomputing(device) }
    }

    pub(crate) fn passes(&self) -> usize {
        self.choice.passes.entries.len()
    }

    /// Number of unbroken stretches of forward entries in these passes.
    pub(crate) fn forward_spans(&self) -> usize {
        self.choice.passes.forward.len()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.choice.passes.is_open
    }

    /// Of the memory allocated at an instant, the bytes that forward allocated and backward will free; without a
    /// following backward pass, the bytes that outlive their forward pass.
    pub(crate) fn activation_bytes(&self, instant: Instant) -> u64 {
        let is_kept = |allocation: &&Allocation| {
            if self.choice.passes.is_open {
                let entry = History::entry_before(allocation.born);
                let pass = entry.and_then(|entry| self.choice.passes.around(entry));
                return pass.is_some_and(|pass| allocation.freed > pass.end);
            }
            allocation.freed != NEVER
                && self.device.phases().at(allocation.born) == Phase::Forward
                && self.device.phases().at(allocation.freed) == Phase::Backward
        };
        // Without a backward pass, blocks may also stay live for other reasons, like workspaces of libraries.
        let is_for_backward = |index: usize| match self.device.categories().get(index).category {
            Category::Activation => true,
            Category::Workspace => false,
            _ => !self.choice.passes.is_open,
        };
        let there = self.device.history().allocations.iter().enumerate();
        let there = there.filter(|(_, allocation)| allocation.allocated_at(instant) && is_kept(allocation));
        there.filter(|&(index, _)| is_for_backward(index)).map(|(_, allocation)| allocation.size).sum()
    }

    /// Mean time of a forward pass; `None` if a request fails in one, since its time then includes what the program repeats.
    pub(crate) fn forward_us(&self) -> Option<i64> {
        let actions = self.device.track.actions();
        let fails = |part: &Range<u32>| actions[part.start as usize..part.end as usize].contains(&Action::Oom);
        if self.choice.passes.forward.iter().any(fails) {
            return None;
        }
        Some(self.choice.passes.mean_us(self.device.track, &[])?.0)
    }

    /// Why the pass with the peak does not show what checkpointing would save.
    pub(crate) fn obstacle(&self, peak: Instant) -> Option<PassObstacle> {
        let passes = &self.choice.passes.entries;
        let behind = passes.partition_point(|pass| pass.start < peak);
        let pass = behind.checked_sub(1).and_then(|index| passes.get(index));
        let no_backward = !self.choice.passes.is_open
            && self.device.phases().at(peak) == Phase::Forward
            && pass.is_none_or(|pass| pass.end < peak);
        let next = passes.get(behind).map_or(self.device.history().entries(), |next| next.start);
        let (start, end) = if no_backward {
            (peak.saturating_sub(1), next)
        } else {
            (pass?.start, next.min(self.end_of_step(pass?.end)))
        };
        let actions = self.device.track.actions();
        let fails = |entry: u32| {
            actions[entry as usize] == Action::Oom
                && matches!(self.device.phases().at(entry + 1), Phase::Forward | Phase::Backward)
        };
        let is_cut = self.device.history().completeness.truncated && behind == passes.len();
        if is_cut || (start..end).any(fails) {
            return Some(PassObstacle::Unfinished);
        }
        no_backward.then_some(PassObstacle::NoBackward)
    }

    /// The start of the first forward phase after the backward phase that follows a pass: it belongs to another step, even if
    /// it fails before a backward phase of its own.
    fn end_of_step(&self, end_of_pass: u32) -> u32 {
        let later = self.device.phases().spans.iter().filter(|span| span.start >= end_of_pass);
        let mut behind = later.skip_while(|span| span.phase != Phase::Backward);
        behind.find(|span| span.phase == Phase::Forward).map_or(u32::MAX, |span| span.start)
    }

    /// Functions that already run under `torch.utils.checkpoint`: only those that it calls directly.
    pub(crate) fn checkpointed(&self) -> Vec<Checkpointed> {
        let mut found = Vec::new();
        for (id, function) in self.choice.calls.functions() {
            let passes = self.choice.passes.split(self.choice.calls.of_function(id));
            let most = |wanted: fn(&Call) -> bool| {
                passes.iter().map(|calls| calls.iter().filter(|call| wanted(call)).count()).max().unwrap_or(0)
            };
            let calls = most(|call| call.is_checkpoint);
            if calls > 0 {
                let label = self.device.sites().label(function.frame);
                found.push(Checkpointed { label, calls, other_calls: most(|call| !call.checkpointed) });
            }
        }
        found
    }

    /// Functions to try at a peak, and how many are left out because there are too many.
    pub(crate) fn promising(&self, peak: Instant) -> (Vec<FunctionId>, usize) {
        let mut functions = self.repeated_functions();
        let untried = self.keep_promising(&mut functions, peak);
        (functions, untried)
    }

    /// Functions that could be checkpointed, independently of the recorded peak. If `needs_backward` is set, memory during
    /// backward matters as well, as it does for a device.
    pub(crate) fn for_search(&self, needs_backward: bool) -> Holders {
        if self.passes() == 0 {
            return Holders::default();
        }
        let peak = self.device.history().maxima[Metric::Allocated as usize].instant;
        // Without a backward pass, passes may also keep other memory, such as a KV cache.
        if self.is_open() && (self.activation_bytes(peak) == 0 || self.obstacle(peak).is_some()) {
            return Holders::default();
        }
        // The first forward pass may come after the peak, and the last step may not finish.
        let before = if self.choice.passes.entries[0].end < peak { peak } else { self.device.history().entries() };
        let functions = self.holders(before);
        if needs_backward && self.is_open() {
            return Holders { lack_backward: !functions.is_empty(), ..Holders::default() };
        }
        Holders { functions, forward_us: self.forward_us(), lack_backward: false }
    }

    pub(crate) fn label(&self, function: &ForwardFunction) -> String {
        self.device.sites().label(function.frame)
    }

    /// The calls of a function in each pass that keep something for backward.
    pub(crate) fn keeping_calls(&self, function: FunctionId) -> Vec<Vec<&Call>> {
        self.choice.keeping_calls(&self.recomputing, function)
    }

    pub(crate) fn most_calls(passes: &[Vec<&Call>]) -> usize {
        passes.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Their mean time in a pass in microseconds, if the file has times.
    pub(crate) fn mean_us(&self, passes: &[Vec<&Call>]) -> Option<i64> {
        self.choice.passes.mean_us(self.device.track, passes).map(|(_, calls)| calls)
    }

    /// The function whose calls hold the most when the last forward pass before an instant ends.
    pub(crate) fn held_in_forward(&self, before: Instant) -> Option<HeldByCalls> {
        self.held_most(self.end_of_forward(before)?)
    }

    /// The most that the calls of a function hold at an instant and would not hold if they were checkpointed. The blocks
    /// that are live then were allocated at the instants `born`, in order; calls without such blocks hold nothing.
    pub(crate) fn most_held(&self, function: FunctionId, instant: Instant, born: &[Instant]) -> u64 {
        let makes_some = |call: &&Call| {
            let first = born.partition_point(|&born| born <= call.start);
            born.get(first).is_some_and(|&born| born <= call.end)
        };
        let calls = self.choice.open_calls(function).filter(makes_some);
        let recomputes = calls.filter_map(|call| self.choice.recompute_of(&self.recomputing, call));
        recomputes.map(|recompute| held_at(&recompute.gaps, instant)).fold(0, u64::saturating_add)
    }

    /// The bytes that the calls of each function that can be wrapped hold when the last forward pass before an instant
    /// ends, the most first.
    pub(crate) fn holders(&self, before: Instant) -> Vec<HeldByCalls> {
        self.end_of_forward(before).map_or(Vec::new(), |instant| self.held_when(instant))
    }

    /// The same at an instant.
    pub(crate) fn held_when(&self, instant: Instant) -> Vec<HeldByCalls> {
        let can_be_wrapped =
            |id: &FunctionId| self.choice.calls.function(*id).is_some_and(|it| self.can_be_wrapped(it));
        let functions = self.repeated_functions().into_iter().filter(can_be_wrapped).collect();
        self.held_by_each(functions, instant)
    }

    /// Whether calls of a function can be checkpointed without changing other people's code, and whether that is plausible:
    /// in installed packages only modules, and no modules of PyTorch that are a single operator, such as dropout.
    fn can_be_wrapped(&self, function: &ForwardFunction) -> bool {
        let is_module = self.device.snapshot().strings.get(function.name) == "forward";
        let is_single = function.first_line == function.last_line;
        let is_torch = self.device.sites().package_of(function.frame) == "torch";
        self.is_users(function) || (is_module && !(is_torch && is_single))
    }

    fn end_of_forward(&self, instant: Instant) -> Option<Instant> {
        let behind = self.choice.passes.entries.partition_point(|pass| pass.end <= instant);
        self.choice.passes.entries.get(behind.checked_sub(1)?).map(|pass| pass.end)
    }

    /// The function with the calls that hold the most at an instant and would not if they were checkpointed.
    fn held_most(&self, instant: Instant) -> Option<HeldByCalls> {
        self.held_by_each(self.repeated_functions(), instant).into_iter().next()
    }

    /// The bytes that the calls of some functions hold at an instant and would not if they were checkpointed, the most
    /// first; among functions with equal bytes, the outermost, which has the fewest calls.
    fn held_by_each(&self, mut functions: Vec<FunctionId>, instant: Instant) -> Vec<HeldByCalls> {
        self.keep_promising(&mut functions, instant);
        let held = |&id: &FunctionId| {
            let passes = self.keeping_calls(id);
            let recomputes =
                passes.iter().flatten().filter_map(|call| self.choice.recompute_of(&self.recomputing, call));
            let bytes = recomputes.map(|recompute| held_at(&recompute.gaps, instant)).sum();
            let (calls, recompute_us) = (Self::most_calls(&passes), self.mean_us(&passes));
            let function = self.choice.calls.function(id)?;
            let label = self.device.sites().label(function.frame);
            Some((id, HeldByCalls { label, calls, bytes, recompute_us, change: self.change(function, &passes) }))
        };
        let mut all: Vec<(FunctionId, HeldByCalls)> = parallel::filter_map(&functions, held);
        all.retain(|(_, held)| held.bytes > 0);
        all.sort_rows_by_key(|(id, held)| (Reverse(held.bytes), held.calls, *id));
        all.into_iter().map(|(_, held)| held).collect()
    }

    /// Functions that a forward pass calls more than once; one for each chain of functions that only call each other.
    fn repeated_functions(&self) -> Vec<FunctionId> {
        let mut by_calls: HashMap<Vec<u32>, FunctionId> = HashMap::new();
        for (id, function) in self.choice.calls.functions() {
            let passes = self.choice.passes.split(self.choice.open_calls(id));
            if passes.iter().all(|calls| calls.len() < 2) {
                continue;
            }
            // A chain of functions that only call each other is represented by the user's own function, or else the outermost.
            let key = passes.iter().flatten().flat_map(|call| [call.start, call.end]).collect();
            let best = by_calls.entry(key).or_insert(id);
            if self.is_users(function) && !self.choice.calls.function(*best).is_some_and(|best| self.is_users(best)) {
                *best = id;
            }
        }
        let mut functions: Vec<FunctionId> = by_calls.into_values().collect();
        functions.sort_unstable();
        functions
    }

    /// Keeps as many functions as there is time to try: those during whose calls most of the memory live at an instant was
    /// allocated, since others cannot hold more. Returns how many are left out.
    fn keep_promising(&self, functions: &mut Vec<FunctionId>, instant: Instant) -> usize {
        let entries = self.device.history().entries() as usize;
        let most = (MOST_PLAYED / entries.max(1)).max(FEWEST_TRIED);
        let untried = functions.len().saturating_sub(most);
        if untried == 0 {
            return 0;
        }
        // Live bytes that were allocated up to each instant.
        let mut held = vec![0u64; entries + 1];
        for allocation in self.device.history().allocations.iter().filter(|allocation| allocation.allocated_at(instant))
        {
            if let Some(held) = held.get_mut(allocation.born as usize) {
                *held = held.saturating_add(allocation.size);
            }
        }
        let mut sum = 0u64;
        for held in &mut held {
            sum = sum.saturating_add(*held);
            *held = sum;
        }
        let up_to = |instant: u32| held.get(instant as usize).copied().unwrap_or(sum);
        let during = |call: &Call| up_to(call.end).saturating_sub(up_to(call.start));
        functions.sort_by_cached_key(|&function| {
            Reverse(self.choice.open_calls(function).map(during).fold(0, u64::saturating_add))
        });
        functions.truncate(most);
        functions.sort_unstable();
        untried
    }

    fn is_users(&self, function: &ForwardFunction) -> bool {
        self.device.sites().kind(function.frame) == FrameKind::User
    }

    pub(crate) fn change(&self, function: &ForwardFunction, passes: &[Vec<&Call>]) -> CodeChange {
        if self.device.sites().package_of(function.frame) == "transformers" {
            return CodeChange::Transformers;
        }
        let callers: IndexSet<FrameId> = passes.iter().flatten().filter_map(|call| call.caller).collect();
        let mut callers = callers.into_iter().map(|caller| (self.device.sites().kind(caller), caller));
        let label = |caller: FrameId| self.device.sites().label(caller);
        match callers.next() {
            Some((kind, caller)) if kind != FrameKind::User => CodeChange::WrapForward(label(caller)),
            caller => CodeChange::Wrap {
                caller: caller.map(|(_, caller)| label(caller)),
                others: callers.map(|(_, caller)| label(caller)).collect(),
            },
        }
    }
}

/// Bytes that gaps remove at an instant: live in the recording, and not live with checkpointing.
pub(crate) fn held_at(gaps: &[Gap], instant: Instant) -> u64 {
    gaps.iter().filter(|gap| gap.from <= instant && instant < gap.to).map(|gap| gap.bytes).sum()
}
