//! Simulates a program at a number, and determines how far you can trust the result.

use super::scaling::{Scaled, Scaling};
use crate::allocator::Placement;
use crate::facts::device::Device;
use crate::model::AllocatorSettings;
use crate::simulation::changes::{Change, Editor};
use crate::simulation::{Generation, Outcome, Program, Setup, Trust, compare, relevant, simulate};

/// Share of allocated memory, in thousandths, above which requests without a partner make a prediction doubtful.
const MUCH: u64 = 20;
/// The same for sizes that follow an unconfirmed rule.
const WEAK: u64 = 50;
/// Differences, in thousandths, from which an unknown matters.
const MUCH_ALLOCATED: u64 = 5;
const MUCH_RESERVED: u64 = 10;
/// A number this many times the largest recorded one is far away.
pub(super) const FAR: u64 = 16;

/// Whether two figures differ by more than this many thousandths.
fn differ(one: u64, other: u64, thousandths: u64) -> bool {
    one.abs_diff(other).saturating_mul(1000) > other.saturating_mul(thousandths)
}

/// A program at a number.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The number.
    pub value: u64,
    /// Whether it was recorded.
    pub is_recorded: bool,
    /// The result of the simulation, on the given device or on an unlimited one.
    pub outcome: Outcome,
    /// The minimum and maximum of allocated bytes, if they depend on an unknown.
    pub allocated_range: Option<(u64, u64)>,
    /// The minimum and maximum of reserved bytes, if they depend on an unknown.
    pub reserved_range: Option<(u64, u64)>,
    /// Requests without a partner in other runs, whose sizes were scaled.
    pub unmatched: u64,
    /// The maximum of their bytes that are live at once.
    pub unmatched_bytes: u64,
    /// How far you can trust it.
    pub trust: Trust,
    /// Doubts about this number.
    pub doubts: Vec<Doubt>,
}

impl Prediction {
    /// Whether it fits, that is, whether every request is served.
    pub fn fits(&self) -> bool {
        self.outcome.failure().is_none()
    }
}

/// Doubts about a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A run was recorded at 1: copies and broadcasts vanish there.
    BaseOfOne,
    /// A recording, by its number, starts late: the earlier memory does not grow with the number.
    StartsLate(u64),
    /// A recording, by its number, is not complete or contradicts itself.
    NotComplete(u64),
    /// Replay with the settings of a recording, by its number, does not match the recording.
    NotReproduced(u64),
    /// The number of requests without a partner is large: bytes.
    Unmatched(u64),
    /// The rule by which sizes grow has as many parameters as there are recordings: the bytes that it determines.
    WeakRule(u64),
    /// The number is far from those recorded.
    Far,
    /// The number is smaller than those recorded: kernels use other algorithms, and copies disappear.
    Below,
    /// The driver's placement of segments is unknown.
    Placement,
    /// At this number, kernels may stage sums that no recording shows staged.
    PerhapsSums,
    /// There is one recording: what grows with the number is unknown; only the category of each allocation is known.
    OneRecording,
    /// Kernels requested other buffers in one of the recordings, and reserved memory depends on which.
    OtherOrder,
}

impl Doubt {
    /// Doubts about all numbers.
    pub(super) fn of(devices: &[&Device<'_>], scaling: &Scaling) -> Vec<Self> {
        let mut doubts = Vec::new();
        if let [one, _] = scaling.runs()
            && one.value == 1
            && scaling.matching(0, 1).alone != (0, 0)
        {
            doubts.push(Self::BaseOfOne);
        }
        for (device, run) in devices.iter().zip(scaling.runs()) {
            let history = device.history();
            if history.completeness.has_baseline {
                doubts.push(Self::StartsLate(run.value));
            } else if !history.completeness.is_complete() || history.anomalies.total() > 0 {
                doubts.push(Self::NotComplete(run.value));
            }
            let (_, difference) = compare(device.track, &run.program, &Setup::as_recorded(device.track, &run.program));
            if !difference.is_none() {
                doubts.push(Self::NotReproduced(run.value));
            }
        }
        doubts
    }
}

/// The device of every simulation.
#[derive(Clone)]
pub(super) struct Predictor<'a, 'i> {
    pub scaling: &'a Scaling,
    /// The editors of each run's program.
    pub editors: &'a [Editor<'i, 'i>],
    /// Changes of the program.
    pub changes: &'a [Change],
    pub settings: &'a AllocatorSettings,
    /// Whether these are the recorded settings.
    pub is_recorded: bool,
    pub capacity: Option<u64>,
    pub context: u64,
    /// The driver's possible placements of segments, the most likely first.
    pub placements: Vec<Placement>,
    /// Whether there are no doubts that apply to all numbers.
    pub is_sure: bool,
}

impl Predictor<'_, '_> {
    pub fn setup(&self) -> Setup {
        let setup = Setup::new(self.settings, self.capacity, self.context);
        Setup { placement: relevant(&self.placements, self.settings)[0], ..setup }
    }

    /// Whether the program at a number is served on the device.
    pub fn fits(&self, value: u64) -> bool {
        let setup = self.setup();
        let scaled = self.scaling.at(self.of_pass(value), &setup.rules);
        self.changed(&scaled).is_some_and(|program| simulate(&program, &setup).failure().is_none())
    }

    /// Whether the device can serve this number of requests with a growing cache, until it has this many tokens. An error
    /// says why that cannot be simulated.
    pub fn serves(&self, devices: &[&Device<'_>], value: u64, tokens: u64) -> Result<bool, &'static str> {
        let setup = self.setup();
        let scaled = self.scaling.at(value, &setup.rules);
        let device = devices[scaled.template];
        for &placement in relevant(&self.placements, self.settings) {
            if !Generation::serves(device, &scaled.program, &Setup { placement, ..setup.clone() }, tokens)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number for a single pass: if gradients are accumulated, a fraction of the whole, rounded up.
    fn of_pass(&self, value: u64) -> u64 {
        let passes = self.changes.iter().find_map(|change| match change {
            Change::Accumulate { passes } => Some(u64::from(*passes)),
            _ => None,
        });
        value.div_ceil(passes.unwrap_or(1))
    }

    /// The whole program with the changes; `None` if they cannot be made.
    fn changed(&self, scaled: &Scaled) -> Option<Program> {
        if self.changes.is_empty() {
            return Some(scaled.whole().0);
        }
        let edited = self.editors.get(scaled.template)?.apply(&scaled.program, self.changes).ok()?;
        Some(scaled.staged.apply(edited.program).0)
    }

    /// The program at a number; `None` if the changes cannot be made.
    pub fn predict(&self, value: u64) -> Option<Prediction> {
        self.predict_from(value, self.scaling.runs().len())
    }

    /// The program at a number, from only the first of the runs.
    pub fn predict_from(&self, number: u64, known: usize) -> Option<Prediction> {
        let setup = self.setup();
        let value = self.of_pass(number);
        let scaled = self.scaling.at_from(value, known, &setup.rules);
        let program = self.changed(&scaled)?;
        let outcome = simulate(&program, &setup);
        let runs = &self.scaling.runs()[..known];
        let is_recorded = runs.iter().any(|run| run.value == value);
        let mut doubts = Vec::new();
        let (mut allocated, mut reserved) = (vec![outcome.max_allocated], vec![outcome.max_reserved]);
        let is_measured = is_recorded && self.is_recorded && self.changes.is_empty();
        let others = &relevant(&self.placements, self.settings)[1..];
        if !others.is_empty() && !is_measured {
            doubts.push(Doubt::Placement);
            let others = others.iter().map(|&placement| simulate(&program, &Setup { placement, ..setup.clone() }));
            reserved.extend(others.map(|outcome| outcome.max_reserved));
        }
        if !is_recorded {
            let other = self.in_other_order(value, known, &scaled, &setup);
            if let Some(other) = other.filter(|&other| differ(other, outcome.max_reserved, MUCH_RESERVED)) {
                doubts.push(Doubt::OtherOrder);
                reserved.push(other);
            }
            if let Some(other) = Self::perhaps(&scaled, &program, &setup)
                && (differ(other.max_allocated, outcome.max_allocated, MUCH_ALLOCATED)
                    || differ(other.max_reserved, outcome.max_reserved, MUCH_RESERVED))
            {
                doubts.push(Doubt::PerhapsSums);
                allocated.push(other.max_allocated);
                reserved.push(other.max_reserved);
            }
            let is_much = scaled.weak_bytes.saturating_mul(1000) > outcome.max_allocated.saturating_mul(WEAK);
            doubts.extend((is_much || scaled.are_weak).then_some(Doubt::WeakRule(scaled.weak_bytes)));
            doubts.extend((value == 1).then_some(Doubt::Below));
            doubts.extend(runs.iter().all(|run| value / FAR >= run.value).then_some(Doubt::Far));
            let is_much = scaled.unmatched_bytes.saturating_mul(1000) > outcome.max_allocated.saturating_mul(MUCH);
            doubts.extend(is_much.then_some(Doubt::Unmatched(scaled.unmatched_bytes)));
        }
        let range =
            |of: &[u64]| of.iter().min().copied().zip(of.iter().max().copied()).filter(|(least, most)| least < most);
        let is_exact = is_measured && self.is_sure;
        let trust = if is_exact {
            Trust::Exact
        } else if self.is_sure && doubts.is_empty() {
            Trust::Predicted
        } else {
            Trust::Uncertain
        };
        Some(Prediction {
            value: number,
            is_recorded: is_recorded && self.changes.is_empty(),
            outcome,
            allocated_range: range(&allocated),
            reserved_range: range(&reserved),
            unmatched: scaled.unmatched,
            unmatched_bytes: scaled.unmatched_bytes,
            trust,
            doubts,
        })
    }

    /// The result if everything that looks like a sum is one.
    fn perhaps(scaled: &Scaled, program: &Program, setup: &Setup) -> Option<Outcome> {
        let is_any = !scaled.perhaps.added.is_empty();
        is_any.then(|| simulate(&scaled.perhaps.apply(program.clone()).0, setup))
    }

    /// The reserved memory if requests come in the order of a run that makes other requests than the run that defines the order.
    fn in_other_order(&self, value: u64, known: usize, scaled: &Scaled, setup: &Setup) -> Option<u64> {
        let template = scaled.template;
        let asks_for_others = |&other: &usize| {
            other < known && other != template && self.scaling.matching(template, other).alone != (0, 0)
        };
        let nearest = [template.checked_sub(1), Some(template + 1)].into_iter().flatten().find(asks_for_others)?;
        let program = self.changed(&self.scaling.in_order_of(nearest, value, known, &setup.rules))?;
        Some(simulate(&program, setup).max_reserved)
    }
}
