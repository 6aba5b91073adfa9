//! Functions that could be checkpointed, and what that would do.

use super::curve::{AllocatedCurve, NewPeak};
use super::obstacle::NoCandidates;
use super::overlay::{self, CurveOptions};
use super::play::Stage;
use super::remaining_peak::{RemainingPeak, blocks_left};
use crate::analysis::diff::DeviceOverlay;
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{Grouper, Inference};
use crate::facts::time::moment::Moment;
use crate::facts::training::{Call, Calls, ForwardFunction, FunctionId, Phase};
use crate::model::Action;
use crate::play::changes::functions::{Checkpointed, CodeChange, HeldByCalls};
use crate::play::changes::passes::Passes;
use crate::play::changes::recompute::{Gap, Recompute, Recomputing};
use crate::replay::{Allocation, History, Instant, Metric, NEVER};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A function, called repeatedly in a forward pass, and its calls checkpointed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The function, by its file, first line and name.
    pub label: String,
    /// How often a forward pass calls it: the most there are in one.
    pub calls: usize,
    /// What its calls hold at the recorded peak and would not hold.
    pub activation_bytes: u64,
    /// Mean time that its calls take in a forward pass, in microseconds: what running them again would cost.
    pub recompute_us: Option<i64>,
    /// The peak of allocated with every call checkpointed.
    pub predicted_peak_bytes: i64,
    /// The recorded peak less that.
    pub saved_bytes: i64,
    /// Every call checkpointed, every second, every third...
    pub plan: Vec<Plan>,
    /// What is in the way of a lower peak.
    pub limit: RemainingPeak,
    /// What to change.
    pub change: CodeChange,
    /// See [`Candidate::label`].
    function: FunctionId,
}

/// Some of the calls of a pass checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first call and every so many-th after it.
    pub every: usize,
    /// The peak of allocated.
    pub predicted_peak_bytes: i64,
}

/// Entries that are played for all candidates together, about: a few seconds' work.
const MOST_PLAYED: usize = 20_000_000;
/// Candidates that are tried even if they take longer.
const FEWEST_TRIED: usize = 32;

/// Everything needed to try functions out.
pub(super) struct Workbench<'d, 'a> {
    device: &'d Device<'a>,
    calls: &'d Calls,
    passes: &'d Passes,
    recomputing: Recomputing<'d>,
    curve: AllocatedCurve,
    /// The entries of the recorded peak's pass and all before, where they can be played.
    stage: Option<Stage<'a>>,
}

/// The longest plan: beyond every sixteenth call hardly anything changes.
const LONGEST_PLAN: usize = 16;
/// Entries that are played whether or not the peak comes later.
const PLAYED: u32 = 20_000;
/// Where the peak comes after so many entries, blocks keep their recorded sizes.
const LONGEST_PLAY: u32 = 200_000;
/// Number of rows of a [`RemainingPeak`].
const LIMIT_ROWS: usize = 5;

impl<'d, 'a> Workbench<'d, 'a> {
    pub(super) fn new(device: &'d Device<'a>, calls: &'d Calls, passes: &'d Passes) -> Self {
        let (track, history) = (device.track, device.history());
        let peak = history.maxima[Metric::Allocated as usize].instant;
        let end = passes.end_of_step(peak, history.entries()).max(PLAYED.min(history.entries()));
        Self {
            device,
            calls,
            passes,
            recomputing: Recomputing::new(device, calls, passes),
            curve: AllocatedCurve::of(track),
            stage: (end <= LONGEST_PLAY).then(|| Stage::new(track, end)).flatten(),
        }
    }

    /// Number of forward passes.
    pub(super) fn passes(&self) -> usize {
        self.passes.entries.len()
    }

    /// Whether no backward follows them.
    pub(super) fn is_open(&self) -> bool {
        self.passes.is_open
    }

    /// Of what is allocated at an instant, what forward made and backward will free; where no backward follows, what
    /// outlives its forward pass.
    pub(super) fn activation_bytes(&self, instant: Instant) -> u64 {
        let is_kept = |allocation: &&Allocation| {
            if self.passes.is_open {
                let entry = History::entry_before(allocation.born);
                let pass = entry.and_then(|entry| self.passes.around(entry));
                return pass.is_some_and(|pass| allocation.freed > pass.end);
            }
            allocation.freed != NEVER
                && self.device.phases().at(allocation.born) == Phase::Forward
                && self.device.phases().at(allocation.freed) == Phase::Backward
        };
        let there = self.device.history().allocations.iter().filter(|allocation| allocation.allocated_at(instant));
        there.filter(is_kept).map(|allocation| allocation.size).sum()
    }

    /// Mean time of a forward pass.
    pub(super) fn forward_us(&self) -> Option<i64> {
        Some(self.passes.mean_us(self.device.track, &[])?.0)
    }

    /// Why the pass that a peak lies in does not tell what checkpointing would save.
    pub(super) fn obstacle(&self, peak: Instant) -> Option<NoCandidates> {
        let passes = &self.passes.entries;
        let behind = passes.partition_point(|pass| pass.start < peak);
        let pass = behind.checked_sub(1).and_then(|index| passes.get(index));
        let no_backward = !self.passes.is_open
            && self.device.phases().at(peak) == Phase::Forward
            && pass.is_none_or(|pass| pass.end < peak);
        let start = if no_backward { peak } else { pass?.start };
        let end = passes.get(behind).map_or(self.device.history().entries(), |next| next.start);
        let actions = self.device.track.actions();
        let fails = |entry: u32| {
            actions[entry as usize] == Action::Oom
                && matches!(self.device.phases().at(entry + 1), Phase::Forward | Phase::Backward)
        };
        let is_cut = self.device.history().completeness.truncated && behind == passes.len();
        if is_cut || (start..end).any(fails) {
            return Some(NoCandidates::Unfinished);
        }
        no_backward.then_some(NoCandidates::NoBackward)
    }

    /// Functions that run under `torch.utils.checkpoint` already: those it calls itself, not what these call.
    pub(super) fn checkpointed(&self) -> Vec<Checkpointed> {
        let mut found = Vec::new();
        for (id, function) in self.calls.functions() {
            let passes = self.passes.split(self.calls.of_function(id));
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

    /// The functions worth a try, the lowest new peak first.
    pub(super) fn candidates(&self) -> (Vec<Candidate>, usize) {
        let mut functions = self.repeated_functions();
        let untried =
            self.keep_promising(&mut functions, self.device.history().maxima[Metric::Allocated as usize].instant);
        let tried: Vec<Option<Candidate>> = functions.into_par_iter().map(|id| self.candidate(id)).collect();
        let mut candidates: Vec<Candidate> = tried.into_iter().flatten().collect();
        candidates.sort_by(|a, b| {
            (a.predicted_peak_bytes, a.calls)
                .cmp(&(b.predicted_peak_bytes, b.calls))
                .then_with(|| a.label.cmp(&b.label))
        });
        (candidates, untried)
    }

    /// The function whose calls hold most when the last forward pass before an instant ends.
    pub(super) fn held_in_forward(&self, before: Instant) -> Option<HeldByCalls> {
        self.held_most(self.end_of_forward(before)?)
    }

    /// What the calls of each function that can be wrapped hold when the last forward pass before an instant ends, the most
    /// first.
    pub(super) fn holders(&self, before: Instant) -> Vec<HeldByCalls> {
        let can_be_wrapped = |id: &FunctionId| self.calls.function(*id).is_some_and(|it| self.can_be_wrapped(it));
        let functions = || self.repeated_functions().into_iter().filter(can_be_wrapped).collect();
        self.end_of_forward(before).map_or(Vec::new(), |instant| self.held_by_each(functions(), instant))
    }

    /// Whether calls of a function can be checkpointed without a change of somebody else's code, and whether anybody would: of
    /// installed packages modules alone, and none of PyTorch's own that are a single operator, such as a dropout.
    fn can_be_wrapped(&self, function: &ForwardFunction) -> bool {
        let is_module = self.device.snapshot().strings.get(function.name) == "forward";
        let is_single = function.first_line == function.last_line;
        let is_torch = self.device.sites().package_of(function.frame) == "torch";
        self.is_users(function) || (is_module && !(is_torch && is_single))
    }

    /// When the last forward pass before an instant ends.
    fn end_of_forward(&self, instant: Instant) -> Option<Instant> {
        let behind = self.passes.entries.partition_point(|pass| pass.end <= instant);
        self.passes.entries.get(behind.checked_sub(1)?).map(|pass| pass.end)
    }

    /// The function whose calls hold most at an instant that they would not hold if they were checkpointed.
    fn held_most(&self, instant: Instant) -> Option<HeldByCalls> {
        self.held_by_each(self.repeated_functions(), instant).into_iter().next()
    }

    /// What the calls of some functions hold at an instant that they would not hold if they were checkpointed, the most
    /// first; of functions that hold the same the outermost, which has the fewest calls.
    fn held_by_each(&self, mut functions: Vec<FunctionId>, instant: Instant) -> Vec<HeldByCalls> {
        self.keep_promising(&mut functions, instant);
        let held = |&id: &FunctionId| {
            let passes = self.passes.split(self.open_calls(id));
            let recomputes = passes.iter().flatten().filter_map(|call| self.recomputing.of(call));
            let bytes = held_at(recomputes.flat_map(|recompute| recompute.gaps), instant);
            let calls = passes.iter().map(Vec::len).max()?;
            let function = self.calls.function(id)?;
            let recompute_us = self.passes.mean_us(self.device.track, &passes).map(|(_, calls)| calls);
            let label = self.device.sites().label(function.frame);
            Some((id, HeldByCalls { label, calls, bytes, recompute_us, change: self.change(function) }))
        };
        let mut all: Vec<(FunctionId, HeldByCalls)> = functions.par_iter().filter_map(held).collect();
        all.retain(|(_, held)| held.bytes > 0);
        all.sort_by_key(|(id, held)| (Reverse(held.bytes), held.calls, *id));
        all.into_iter().map(|(_, held)| held).collect()
    }

    /// Functions that a forward pass calls more than once; of several that do nothing but call each other, one.
    fn repeated_functions(&self) -> Vec<FunctionId> {
        let mut by_calls: HashMap<Vec<u32>, FunctionId> = HashMap::new();
        for (id, function) in self.calls.functions() {
            let passes = self.passes.split(self.open_calls(id));
            if passes.iter().all(|calls| calls.len() < 2) {
                continue;
            }
            // Of functions that do nothing but call each other the user's own stands for all, else the outermost.
            let key = passes.iter().flatten().flat_map(|call| [call.start, call.end]).collect();
            let best = by_calls.entry(key).or_insert(id);
            if self.is_users(function) && !self.calls.function(*best).is_some_and(|best| self.is_users(best)) {
                *best = id;
            }
        }
        let mut functions: Vec<FunctionId> = by_calls.into_values().collect();
        functions.sort_unstable();
        functions
    }

    /// Keeps as many functions as there is time to try, those during whose calls most of what is there at an instant was
    /// allocated: the others cannot hold more. Says how many are left out.
    fn keep_promising(&self, functions: &mut Vec<FunctionId>, instant: Instant) -> usize {
        let entries = self.device.history().entries() as usize;
        let most = (MOST_PLAYED / entries.max(1)).max(FEWEST_TRIED);
        let untried = functions.len().saturating_sub(most);
        if untried == 0 {
            return 0;
        }
        // Bytes there that were allocated up to each instant.
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
            Reverse(self.open_calls(function).map(during).fold(0, u64::saturating_add))
        });
        functions.truncate(most);
        functions.sort_unstable();
        untried
    }

    /// Calls of a function that are not checkpointed yet.
    fn open_calls(&self, function: FunctionId) -> impl Iterator<Item = &Call> {
        self.calls.of_function(function).filter(|call| !call.checkpointed)
    }

    fn is_users(&self, function: &ForwardFunction) -> bool {
        self.device.sites().kind(function.frame) == FrameKind::User
    }

    /// A function with its calls checkpointed; `None` when that saves nothing.
    fn candidate(&self, id: FunctionId) -> Option<Candidate> {
        let function = self.calls.function(id)?;
        let passes = self.passes.split(self.open_calls(id));
        let calls = passes.iter().map(Vec::len).max()?;
        let recomputes: Vec<Vec<Option<Recompute>>> =
            passes.iter().map(|calls| calls.iter().map(|call| self.recomputing.of(call)).collect()).collect();
        let every = |every: usize| recomputes.iter().flat_map(move |calls| calls.iter().step_by(every).flatten());
        let peak = self.device.history().maxima[Metric::Allocated as usize];
        let workspace_bytes = self.workspace_bytes(&passes);
        let new_peak = |every_nth: usize| self.new_peak(&every(every_nth).collect::<Vec<_>>(), workspace_bytes);
        let lowest = new_peak(1);
        let saved_bytes = peak.bytes - lowest.bytes;
        if saved_bytes <= 0 {
            return None;
        }
        let longest = calls.min(LONGEST_PLAN);
        let plan = |every_nth: usize| {
            let predicted = if every_nth == 1 { lowest } else { new_peak(every_nth) };
            Plan { every: every_nth, predicted_peak_bytes: predicted.bytes }
        };
        let gaps = every(1).flat_map(|recompute| recompute.gaps.iter().copied());
        let activation_bytes = held_at(gaps, peak.instant);
        // Then it is another layout of blocks that makes the difference.
        if activation_bytes == 0 {
            return None;
        }
        Some(Candidate {
            label: self.device.sites().label(function.frame),
            calls,
            activation_bytes,
            recompute_us: self.passes.mean_us(self.device.track, &passes).map(|(_, calls)| calls),
            predicted_peak_bytes: lowest.bytes,
            saved_bytes,
            plan: (1..=longest).into_par_iter().map(plan).collect(),
            limit: self.limit(&lowest, &every(1).collect::<Vec<_>>(), workspace_bytes),
            change: self.change(function),
            function: id,
        })
    }

    /// The peak with these calls checkpointed. Where the history is played only in part, and its peak would now lie in
    /// the rest, blocks keep their recorded sizes.
    fn new_peak(&self, recomputes: &[&Recompute], workspace_bytes: u64) -> NewPeak {
        let shifted = self.curve.peak(recomputes, workspace_bytes);
        match &self.stage {
            Some(stage) if shifted.instant <= stage.end() => stage.peak(recomputes, workspace_bytes),
            _ => shifted,
        }
    }

    /// Memory as recorded, and with every call of a candidate checkpointed.
    pub(super) fn curves(&self, candidate: &Candidate, options: CurveOptions) -> DeviceOverlay {
        let passes = self.passes.split(self.open_calls(candidate.function));
        let recomputes: Vec<Recompute> = passes.iter().flatten().filter_map(|call| self.recomputing.of(call)).collect();
        let recomputes: Vec<&Recompute> = recomputes.iter().collect();
        let workspace_bytes = self.workspace_bytes(&passes);
        let peak = candidate.limit.moment.instant;
        overlay::overlay(self.device.track, options, peak, |visit| {
            let played = self.stage.as_ref().filter(|stage| peak <= stage.end());
            if let Some(stage) = played {
                stage.points(&recomputes, workspace_bytes, visit);
            }
            let rest = played.map_or(0, |stage| stage.end() + 1);
            self.curve.points(&recomputes, workspace_bytes, rest, visit);
        })
    }

    fn workspace_bytes(&self, passes: &[Vec<&Call>]) -> u64 {
        let first_step = self.passes.entries.get(1).map_or(self.device.history().entries(), |pass| pass.start);
        let workspaces = self.recomputing.workspaces(passes.iter().flatten().copied(), first_step);
        let requested = |index: u32| self.device.history().allocations[index as usize].requested;
        workspaces.into_iter().map(requested).sum()
    }

    /// What is there at the new peak.
    fn limit(&self, peak: &NewPeak, recomputes: &[&Recompute], workspace_bytes: u64) -> RemainingPeak {
        let played = self.stage.as_ref().filter(|stage| peak.instant <= stage.end());
        let left = match played {
            Some(stage) => stage.blocks_at(recomputes, workspace_bytes, peak),
            None => blocks_left(self.device.history(), recomputes, peak),
        };
        let filter = Filter::default();
        let device = self.device;
        let grouper = Grouper::new(device, device.sites(), &filter, GroupBy::Site).inferring(
            device,
            Inference::On,
            Metric::Allocated,
            Some(peak.instant),
        );
        let mut attribution = Attribution::of_blocks(&grouper, Metric::Allocated, left);
        attribution.keep_top(LIMIT_ROWS);
        let first = recomputes.iter().map(|recompute| recompute.resume).min();
        let workspace_bytes = if first.is_some_and(|first| first <= peak.instant) { workspace_bytes } else { 0 };
        RemainingPeak {
            moment: Moment::of(device.track, device.annotations(), peak.instant),
            phase: self.device.phases().at(peak.instant),
            rerun: peak.rerun.is_some(),
            rerun_bytes: (peak.bytes as u64).saturating_sub(attribution.total_bytes.saturating_add(workspace_bytes)),
            workspace_bytes,
            rows: attribution.rows,
        }
    }

    /// What to write where.
    fn change(&self, function: &ForwardFunction) -> CodeChange {
        if self.device.sites().package_of(function.frame) == "transformers" {
            return CodeChange::Transformers;
        }
        match function.caller {
            Some(caller) if self.device.sites().kind(caller) != FrameKind::User => {
                CodeChange::WrapForward(self.device.sites().label(caller))
            }
            caller => CodeChange::Wrap(caller.map(|caller| self.device.sites().label(caller))),
        }
    }
}

/// What gaps leave out at an instant: bytes that are there as recorded and would not be.
fn held_at(gaps: impl Iterator<Item = Gap>, instant: Instant) -> u64 {
    gaps.filter(|gap| gap.from <= instant && instant < gap.to).map(|gap| gap.bytes).sum()
}
