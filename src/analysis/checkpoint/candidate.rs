//! Simulates checkpointing of functions, each for all of its calls.

use super::curve::AllocatedCurve;
use super::overlay::{self, CurveOptions, Point};
use super::remaining_peak::RemainingPeak;
use crate::analysis::diff::DeviceOverlay;
use crate::facts::device::Device;
use crate::facts::training::FunctionId;
use crate::model::Action;
use crate::parallel;
use crate::replay::{Instant, Metric};
use crate::simulation::changes::checkpointable::{Checkpointable, PassObstacle, held_at};
use crate::simulation::changes::{Chosen, CodeChange, Edited, Editor};
use crate::simulation::{Program, Setup, Simulator, allocated_over_time, blocks_at_peak, most_allocated};
use crate::sorting::SortRows;
use serde::Serialize;
use std::cmp::{Ordering, Reverse};

/// A function, called repeatedly in a forward pass, and its calls checkpointed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The function, by its file, first line and name.
    pub label: String,
    /// The maximum number of its calls in a forward pass that keep something for backward.
    pub calls: usize,
    /// Bytes that its calls hold at the recorded peak and that checkpointing would free.
    pub activation_bytes: u64,
    /// Mean time of these calls in a forward pass, in microseconds: the cost of recomputing them.
    pub recompute_us: Option<i64>,
    /// The peak of allocated bytes with every call checkpointed.
    pub predicted_peak_bytes: i64,
    /// The recorded peak minus that.
    pub saved_bytes: i64,
    /// Every call checkpointed, every second, every third...; empty if that was not requested.
    pub plan: Vec<EveryNth>,
    /// What prevents a lower peak.
    pub limit: RemainingPeak,
    pub change: CodeChange,
    /// See [`Candidate::label`].
    function: FunctionId,
}

/// A plan that checkpoints some of the calls of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "CheckpointPlan"))]
pub struct EveryNth {
    /// The first call and every N-th after it.
    pub every: usize,
    /// The peak of allocated bytes then.
    #[serde(rename = "predicted_peak_allocated_bytes")]
    pub predicted_peak_bytes: i64,
}

impl Candidate {
    /// The lowest peak comes first.
    fn order(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| (it.predicted_peak_bytes, it.calls);
        rank(self).cmp(&rank(other)).then_with(|| self.label.cmp(&other.label))
    }
}

/// Differences below 1/N of the peak may come from another layout of blocks.
const SLACK_PART: i64 = 50;
/// A saving of less than 1/N of the peak is not worth recomputation.
const NOTABLE_PART: i64 = 1000;
/// Sparser plans than this are not tried: they change almost nothing.
const LONGEST_PLAN: usize = 16;
/// Recordings with more entries are simulated only up to the end of the step with the recorded peak.
const LONGEST_PLAY: u32 = 100_000;
/// At least this many of their entries are simulated.
const SIMULATED: u32 = 20_000;

/// Simulates functions with their calls checkpointed.
pub(super) struct Workbench<'w, 'd, 'a> {
    device: &'d Device<'a>,
    editor: &'w Editor<'d, 'a>,
    functions: &'w Checkpointable<'w, 'a>,
    /// The simulated part: the whole program, or its beginning.
    program: Program,
    setup: Setup,
    /// If only the beginning is simulated, allocated bytes over the whole recording.
    curve: Option<AllocatedCurve>,
}

/// Checkpointed calls, and the resulting peak.
struct Tried {
    changed: Edited,
    chosen: Chosen,
    bytes: i64,
    /// The instant that the recorded sizes yield, if the peak is not in the simulated part.
    beyond: Option<Instant>,
}

impl<'w, 'd, 'a> Workbench<'w, 'd, 'a> {
    /// Prepares simulations of a device's program; `None` if it has more streams and pools than can be simulated.
    pub(super) fn new(
        device: &'d Device<'a>,
        editor: &'w Editor<'d, 'a>,
        functions: &'w Checkpointable<'w, 'a>,
    ) -> Option<Self> {
        let (entries, peak) = (device.history().entries(), device.history().maxima[Metric::Allocated as usize].instant);
        let is_long = entries > LONGEST_PLAY;
        let until = is_long.then(|| editor.choice().end_of_step(peak, entries).max(SIMULATED));
        let program = Program::within(device.track, until)?;
        let simulator = Simulator::new(device.track, program, None, None);
        let setup = simulator.setup(&simulator.settings);
        let curve = is_long.then(|| AllocatedCurve::of(device.track));
        Some(Self { device, editor, functions, program: simulator.program, setup, curve })
    }

    /// The best function that saves something, and how many were not tried because there are so many. A function whose
    /// calls hold less at the recorded peak than another one saves is not simulated: checkpointing cannot save more
    /// than they hold, except for differences in the layout of blocks.
    pub(super) fn best(&self) -> (Option<Candidate>, usize) {
        let history = self.device.history();
        let peak = history.maxima[Metric::Allocated as usize];
        let there = history.allocations.iter().filter(|allocation| allocation.allocated_at(peak.instant));
        let born: Vec<Instant> = there.map(|allocation| allocation.born).collect();
        let (functions, untried) = self.functions.promising(peak.instant);
        let most = |id: FunctionId| (self.functions.most_held(id, peak.instant, &born), id);
        let mut by_most: Vec<(u64, FunctionId)> = functions.into_iter().map(most).collect();
        by_most.sort_rows_by_key(|&(most, _)| Reverse(most));
        let slack = peak.bytes / SLACK_PART;
        let mut best: Option<Candidate> = None;
        for (most, id) in by_most {
            let may_save = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(slack);
            if best.as_ref().is_some_and(|best| may_save < best.saved_bytes) {
                break;
            }
            let better = self.candidate(id).map(|(candidate, _)| candidate);
            let better = better.filter(|it| best.as_ref().is_none_or(|best| it.order(best).is_lt()));
            best = better.or(best);
        }
        (best, untried)
    }

    /// The functions that save something, the lowest new peak first, as many as requested; the number left out, and how many
    /// were not tried because there are so many. Details that need more simulations are computed only for the first
    /// `in_full`.
    pub(super) fn candidates(&self, top: usize, in_full: usize) -> (Vec<Candidate>, usize, usize) {
        let peak = self.device.history().maxima[Metric::Allocated as usize].instant;
        let (functions, untried) = self.functions.promising(peak);
        let mut tried: Vec<(Candidate, Tried)> = parallel::filter_map(functions, |id| self.candidate(id));
        tried.sort_rows_by(|(a, _), (b, _)| a.order(b));
        let left_out = tried.len().saturating_sub(top);
        tried.truncate(top);
        let finished = parallel::map(tried.into_iter().enumerate(), |(place, (candidate, tried))| {
            if place < in_full { self.finish(candidate, &tried) } else { candidate }
        });
        (finished, left_out, untried)
    }

    /// A function with its calls checkpointed; `None` if that saves nothing.
    fn candidate(&self, id: FunctionId) -> Option<(Candidate, Tried)> {
        let function = self.editor.choice().function(id)?;
        let peak = self.device.history().maxima[Metric::Allocated as usize];
        let every_call = self.tried(id, 1)?;
        let held = every_call.chosen.calls.iter().map(|call| held_at(&call.gaps, peak.instant));
        let activation_bytes = held.fold(0, u64::saturating_add);
        let saved_bytes = peak.bytes.saturating_sub(every_call.bytes);
        // If its calls hold nothing, the difference comes from another layout of blocks.
        if saved_bytes.saturating_mul(NOTABLE_PART) < peak.bytes.max(1) || activation_bytes == 0 {
            return None;
        }
        let calls = self.functions.keeping_calls(id);
        let candidate = Candidate {
            label: self.functions.label(function),
            calls: Checkpointable::most_calls(&calls),
            activation_bytes,
            recompute_us: self.functions.mean_us(&calls),
            predicted_peak_bytes: every_call.bytes,
            saved_bytes,
            plan: Vec::new(),
            limit: RemainingPeak::default(),
            change: self.functions.change(function, &calls),
            function: id,
        };
        Some((candidate, every_call))
    }

    /// Adds details that only shown candidates have: sparser plans, and what prevents a lower peak.
    fn finish(&self, candidate: Candidate, every_call: &Tried) -> Candidate {
        // If the remaining calls keep nothing for backward, nothing changes.
        let recorded = self.device.history().maxima[Metric::Allocated as usize].bytes;
        let plan = |every: usize| {
            let sparser = || self.tried(candidate.function, every).map_or(recorded, |tried| tried.bytes);
            EveryNth { every, predicted_peak_bytes: if every == 1 { every_call.bytes } else { sparser() } }
        };
        let plan = parallel::map(1..=candidate.calls.min(LONGEST_PLAN), plan);
        Candidate { plan, limit: self.limit(every_call), ..candidate }
    }

    /// The peak with some of the calls of a function checkpointed; `None` if they keep nothing for backward.
    fn tried(&self, id: FunctionId, every: usize) -> Option<Tried> {
        let chosen = self.editor.choice().recompute(self.device, &[(id, every)]);
        let changed = self.editor.checkpoint_calls(&self.program, &chosen)?;
        let bytes = most_allocated(&changed.program, &self.setup) as i64;
        if let (Some(curve), Some(end)) = (&self.curve, self.program.until) {
            let rest = curve.peak(&chosen, self.device.history());
            if rest.instant > end {
                return Some(Tried { changed, chosen, bytes: rest.bytes, beyond: Some(rest.instant) });
            }
        }
        Some(Tried { changed, chosen, bytes, beyond: None })
    }

    /// The blocks at the new peak.
    fn limit(&self, tried: &Tried) -> RemainingPeak {
        let limit = if let Some(instant) = tried.beyond {
            RemainingPeak::of_recording(self.device, &tried.chosen, instant)
        } else {
            let highest = blocks_at_peak(&tried.changed.program, &self.setup, tried.bytes as u64);
            RemainingPeak::of_simulation(self.device, &tried.changed, &tried.chosen, &highest)
        };
        let is_unfinished = self.functions.obstacle(limit.moment.instant) == Some(PassObstacle::Unfinished);
        RemainingPeak { is_unfinished, ..limit }
    }

    /// Whether checkpointing a function would leave the highest memory in a step that is incomplete in the recording.
    pub(super) fn is_bounded_by_unfinished(&self) -> bool {
        let peak = self.device.history().maxima[Metric::Allocated as usize].instant;
        let holds = |tried: &Tried| tried.chosen.calls.iter().any(|call| held_at(&call.gaps, peak) > 0);
        let (functions, _) = self.functions.promising(peak);
        let mut tried = functions.into_iter().filter_map(|id| self.tried(id, 1)).filter(holds);
        self.device.track.count_of(Action::Oom) > 0 && tried.any(|tried| self.limit(&tried).is_unfinished)
    }

    /// Memory as recorded, and with every call of a candidate checkpointed.
    pub(super) fn curves(&self, candidate: &Candidate, options: CurveOptions) -> Option<DeviceOverlay> {
        let tried = self.tried(candidate.function, 1)?;
        let history = self.device.history();
        let overlay = overlay::overlay(self.device.track, options, candidate.limit.moment.instant, |visit| {
            let simulated = tried.beyond.is_none();
            if simulated {
                allocated_over_time(&tried.changed.program, &self.setup, |step, bytes| match step {
                    None => visit(0, Point::Level(bytes as i64)),
                    Some(step) => match tried.changed.recorded_instant(step, history) {
                        Some(instant) => visit(instant, Point::Level(bytes as i64)),
                        None => visit(step.entry, Point::Spike(bytes as i64)),
                    },
                });
            }
            let from = self.program.until.filter(|_| simulated).map_or(0, |end| end + 1);
            if let Some(curve) = &self.curve {
                curve.points(&tried.chosen, history, from, visit);
            }
        });
        Some(overlay)
    }
}
