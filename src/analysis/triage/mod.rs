//! A first look at a recording: how it ended or where it peaked, what holds the memory there, and what deserves a
//! closer look.
//!
//! Every figure is also in the answer of another command; here they are only selected. Bytes decide what is worth a
//! line: details that cannot matter to a user who is out of memory are left out.

use super::advice::{Advice, Changes, Rescue, RuleKind, Simulate, changes};
use super::checkpoint::DeviceCheckpoint;
use super::fragmentation::{Stranded, idle};
use super::leaks::growth::{Rate, Verdict};
use super::leaks::{DeviceLeaks, LeakOptions, LeakReport};
use super::ledger::Ledger;
use super::oom::{Cause, OomOptions, OomReport, Symptom, kept_since, leak};
use super::peak::comparison::Comparison;
use super::peak::{DevicePeak, PeakOptions, PeakReport};
use super::tradeoffs;
use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::attribution::{Attribution, OTHER, Row};
use crate::facts::grouping::{BASELINE, GroupBy, Inference, NOT_RECORDED};
use crate::facts::segments::figures::NOTABLE;
use crate::facts::time::when::When;
use crate::facts::training::{Category, Evidence, Phase, PhaseSpan};
use crate::model::{Action, DeviceId, Format};
use crate::parallel;
use crate::replay::{History, Instant, Metric};
use crate::simulation::SettingsAdvice;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct TriageOptions {
        pub inference: Inference,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        pub simulate: Simulate,
    }
}

#[derive(Clone, Debug, Default)]
pub struct TriageReport {
    /// The selected devices, in order, each at its first failed request or at its peak of allocated bytes.
    pub devices: Vec<DeviceTriage>,
    /// The most important device, as an index into them: one that ran out of memory, or otherwise the one that holds the most.
    pub first: usize,
    /// How CUDA devices compare, each at its own peak; `None` if they hardly differ.
    pub comparison: Option<Comparison>,
}

#[derive(Clone, Debug)]
pub struct DeviceTriage {
    /// The selected instant, and what holds the memory there by site, [`SITES`] of them.
    pub peak: DevicePeak,
    pub categories: Attribution,
    /// The first failed request, which is then the selected instant.
    pub failure: Option<Failure>,
    /// What used the device when a request failed, if it was sampled then.
    pub ledger: Option<Ledger>,
    /// Bytes of the device, if its samples or the device properties of a trace contain them.
    pub device_bytes: Option<u64>,
    /// What the program was doing, as far as the recording shows.
    pub during: During,
    /// What is left behind between the ends of two steps, if steps leave something behind.
    pub left_behind: Option<LeftBehind>,
    /// Whether forward and backward passes were found.
    pub has_phases: bool,
    pub findings: Vec<Finding>,
    /// What to change in the program, the largest saving first.
    pub advice: Vec<Advice>,
    /// What lets the failed request succeed, and whether the whole step then fits, if that takes an instant to determine.
    pub rescue: Option<Rescue>,
    /// The best function to checkpoint, if activations are among the findings and computing it takes an instant.
    pub checkpoint: Option<DeviceCheckpoint>,
    /// Allocator settings that reserve notably less, if computing them takes an instant and no change of the list sets them.
    pub settings: Option<SettingsAdvice>,
    pub nothing: Option<Nothing>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nothing {
    Weights {
        bytes: u64,
        total: u64,
    },
    Training {
        bytes: u64,
        /// Bytes of optimizer state among them.
        states: u64,
        total: u64,
    },
    /// The recording shows no known mistake.
    Unknown {
        label: String,
        /// Whether most of this is weights, or what training keeps for each of them: smaller inputs do not reduce it.
        is_of_weights: bool,
        /// Bytes from there.
        bytes: u64,
        total: u64,
    },
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FailedRequest"))]
pub struct Failure {
    /// Bytes of the requested block.
    pub requested_bytes: u64,
    /// Bytes that the allocator requested from the driver: a segment, which may be larger than the block.
    #[serde(skip)]
    pub driver_bytes: u64,
    /// Free bytes of the device.
    pub device_free_bytes: u64,
    /// The most that the process could use then: what it had reserved, plus what was free.
    pub capacity_bytes: u64,
    /// The cause of the failure, as in `memviz oom`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub cause: Cause,
    /// Whether the device had enough free for it, so that a limit on the process probably refused it.
    #[serde(skip)]
    pub is_limited: bool,
    /// Number of failed requests of the device.
    pub failed_requests: usize,
    /// Whether next to nothing of what was in use was freed before the next failed request.
    #[serde(skip)]
    pub is_all_kept: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct During {
    /// The part of a training step; `None` if it is unknown.
    pub phase: Option<Phase>,
    /// The step, counted from 1; `None` if steps are unknown, or the instant is after the last one.
    pub step: Option<usize>,
}

/// The steps after the first one and before that of the selected instant, and the instants between which they are, as commands
/// name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    pub steps: [String; 2],
    pub instants: [String; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Free memory that live blocks keep reserved.
    Fragmentation {
        /// Those bytes.
        pinned_free: u64,
        /// Bytes of all segments.
        reserved: u64,
    },
    /// Free memory that only one side stream or pool can use.
    Stranded(Stranded),
    /// Much of the memory reserved at the dump of a recording without history is free.
    Free {
        /// Those bytes.
        free: u64,
        /// Bytes of all segments.
        reserved: u64,
    },
    /// Blocks that each step leaves behind, or that accumulate.
    Growth {
        /// Whether nothing ever frees them.
        is_leak: bool,
        /// Where most of them come from.
        label: String,
        /// Whether that is inferred.
        inferred: bool,
        /// Bytes that all such places request per step and keep, as `leaks` shows them.
        bytes_per_step: i64,
        /// Number of such places.
        places: usize,
    },
    /// Much of the memory is activations, which checkpointing can free.
    Activations {
        bytes: u64,
        /// Of these, the bytes that forward allocated before the kept history and that are still live.
        older: u64,
        total: u64,
    },
}

pub const SITES: usize = 5;
/// Activations are worth a line from this fraction (1/N) on. Recomputing a forward pass costs time, so a small part is
/// rarely worth it.
const ACTIVATION_PART: u64 = 4;
/// The same for free memory of a recording without history.
const FREE_PART: u64 = 4;
/// Growth is worth a line if this many further steps add 1/N of the peak; a leak, whose memory is never freed, if many more do.
const LONG_RUN: u64 = 1000;
const LONGEST_RUN: u64 = 10_000;
const GROWTH_PART: u64 = 100;

/// Categories with the size of weights, regardless of the inputs.
const OF_WEIGHTS: [Category; 5] =
    [Category::Parameter, Category::Buffer, Category::Gradient, Category::OptimizerState, Category::ModelState];

/// From this fraction on, weights are what the program needs: numerator and denominator.
const WEIGHTS_PART: (u64, u64) = (4, 5);

impl Finding {
    /// Whether most of these activations were allocated before the kept history, in which case checkpointing is not
    /// the question.
    pub(crate) fn is_older(&self) -> bool {
        matches!(self, Self::Activations { bytes, older, .. } if *older > bytes / 2)
    }

    /// The finding that activations hold much of the memory, given the memory by category.
    pub(crate) fn activations(categories: &Attribution) -> Option<Self> {
        let row = categories.rows.iter().find(|row| row.label == Category::Activation.name())?;
        let (bytes, total) = (row.bytes, categories.total_bytes);
        let older = row.evidence.iter().filter(|reason| reason.evidence == Evidence::HeldSinceForward);
        let older = older.map(|reason| reason.bytes).fold(0, u64::saturating_add);
        (bytes >= NOTABLE && bytes >= total / ACTIVATION_PART).then_some(Self::Activations { bytes, older, total })
    }
}

impl TriageReport {
    /// Examines each device.
    ///
    /// # Errors
    /// If a device does not exist.
    pub fn of(recording: &Devices<'_>, options: &TriageOptions) -> Result<Self> {
        let advice = || Self::advice(recording, options);
        let leaks =
            LeakOptions { inference: options.inference, devices: options.devices.clone(), ..LeakOptions::default() };
        let verdict = || {
            // Leaks do not need categories, so another thread computes these at the same time.
            let wanted = recording.wanted(&options.devices)?;
            for device in &wanted {
                device.backward();
                device.prepare_phases();
            }
            let leaks = LeakReport::of(recording, &leaks.rows_alone(true))?;
            for device in &wanted {
                device.prepare_categories();
            }
            Self::without_advice(recording, options, &leaks)
        };
        let settings = || Self::settings(recording, options);
        let (advice, (verdict, settings)) = parallel::join(advice, || parallel::join(verdict, settings));
        Ok(verdict?.with_settings(settings?).with_advice(advice?))
    }

    /// Allocator settings that reserve notably less, if the device is quick to simulate. Devices of a process share them: the one
    /// that ran out of memory, or else reserves the most, decides.
    pub(crate) fn settings(
        recording: &Devices<'_>,
        options: &TriageOptions,
    ) -> Result<HashMap<DeviceId, SettingsAdvice>> {
        let wanted = recording.wanted(&options.devices)?;
        let most = |device: &&&Device<'_>| {
            let reserved = device.history().maxima[Metric::Reserved as usize].bytes;
            (device.track.count_of(Action::Oom) > 0, reserved, Reverse(device.id()))
        };
        let deciding = wanted.iter().max_by_key(most).filter(|device| options.simulate.covers(device));
        Ok(deciding
            .into_iter()
            .filter_map(|device| Some((device.id(), tradeoffs::settings(device, wanted.len())?)))
            .collect())
    }

    pub(crate) fn with_settings(mut self, mut settings: HashMap<DeviceId, SettingsAdvice>) -> Self {
        for device in &mut self.devices {
            device.settings = settings.remove(&device.peak.device);
        }
        self
    }

    /// Everything except what to change, given the memory that survives the steps of each device.
    pub(crate) fn without_advice(recording: &Devices<'_>, options: &TriageOptions, leaks: &LeakReport) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let (devices, _) = ask_each(&wanted, |device| DeviceTriage::without_advice(recording, device, options, leaks))?;
        let rank = |device: &DeviceTriage| (device.failure.is_none(), Reverse(device.peak.at.get(Metric::Allocated)));
        let first = (0..devices.len()).min_by_key(|&index| rank(&devices[index])).unwrap_or(0);
        let peaks = PeakOptions { devices: options.devices.clone(), ..PeakOptions::default() };
        let comparison = if devices.len() > 1 { PeakReport::of(recording, &peaks)?.comparison } else { None };
        Ok(Self { devices, first, comparison })
    }

    /// What to change in the program of each device: this takes longer than everything else, and can be computed in parallel.
    pub(crate) fn advice(recording: &Devices<'_>, options: &TriageOptions) -> Result<HashMap<DeviceId, Changes>> {
        let wanted = recording.wanted(&options.devices)?;
        let advice = parallel::map(&wanted, |device| (device.id(), changes(device, options.simulate)));
        Ok(advice.into_iter().collect())
    }

    /// The same, including what to change.
    pub(crate) fn with_advice(mut self, mut advice: HashMap<DeviceId, Changes>) -> Self {
        for device in &mut self.devices {
            let Changes { advice, rescue } = advice.remove(&device.peak.device).unwrap_or_default();
            (device.advice, device.rescue) = (advice, rescue);
            if let Some(failure) = device.failure.as_mut().filter(|failure| failure.cause == Cause::Fragmentation)
                && leak(&device.advice, failure.capacity_bytes).is_some()
            {
                failure.cause = Cause::Leak;
                device.findings.retain(|finding| !matches!(finding, Finding::Fragmentation { .. }));
            }
            // A change of the list may set one of these.
            if device.advice.iter().any(|advice| advice.kind == RuleKind::FragmentationVarlen) {
                device.settings = None;
            }
            let nothing = Nothing::of(&device.categories, &device.peak.attribution);
            let has_ways = device.rescue.as_ref().is_some_and(|rescue| !rescue.ways.is_empty());
            let is_all = device.advice.is_empty() && device.findings.is_empty() && !has_ways;
            // Another command shows what would have helped, unless the program simply needs too much.
            let leads_on = device.failure.is_some_and(|failure| failure.cause != Cause::Capacity);
            device.nothing = nothing.filter(|nothing| is_all && !(leads_on && nothing.is_unknown()));
        }
        self
    }
}

impl DeviceTriage {
    fn without_advice(
        recording: &Devices<'_>,
        device: &Device<'_>,
        options: &TriageOptions,
        leaks: &LeakReport,
    ) -> Result<Self> {
        let devices = vec![device.id()];
        let inference = options.inference;
        let failed = device.track.count_of(Action::Oom) > 0;
        let peak = |by| {
            let at = failed.then_some(When::Oom);
            let options = PeakOptions::default().by(by).at(at).inference(inference).devices(devices.clone());
            let options = options.categories(true);
            PeakReport::of(recording, &options).map(|report| report.devices.into_iter().next())
        };
        let missing = || crate::Error::Request(format!("expected device {} in the recording, found none", device.id()));
        let mut sites = peak(GroupBy::Site)?.ok_or_else(missing)?;
        sites.attribution.keep_top(SITES);
        let categories = peak(GroupBy::Category)?.ok_or_else(missing)?.attribution;
        let failure = if failed { Failure::of(recording, device, options)? } else { None };
        let mut findings = Vec::new();
        findings.extend(fragmentation(device, failure.as_ref()));
        let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0).unsigned_abs();
        let leaks = leaks.devices.iter().find(|leaks| leaks.device == device.id());
        findings.extend(leaks.and_then(|leaks| growth(leaks, peak)));
        let during = During::of(device, sites.instant);
        // For a pass that runs out of memory, the effect of checkpointing is unknown: `fit` shows how to make room.
        let is_unfinished = failed && matches!(during.phase, Some(Phase::Forward | Phase::Backward));
        let activations = Finding::activations(&categories).filter(|_| !is_unfinished);
        let is_simulated =
            activations.as_ref().is_some_and(|found| !found.is_older()) && options.simulate.covers(device);
        let checkpoint = is_simulated.then(|| tradeoffs::checkpoint(recording, device)).flatten();
        let leads_on = || if is_simulated { checkpoint.is_some() } else { may_checkpoint(device) };
        findings.extend(activations.filter(|found| found.is_older() || leads_on()));
        let (advice, rescue, settings, nothing) = (Vec::new(), None, None, None);
        let ledger = failure.and_then(|_| Ledger::when_failed(recording, device));
        let device_bytes = recording.memory_of(device.id());
        Ok(Self {
            peak: sites,
            categories,
            failure,
            ledger,
            device_bytes,
            left_behind: LeftBehind::of(device, during, &findings),
            during,
            has_phases: [Phase::Forward, Phase::Backward]
                .iter()
                .all(|&phase| device.phases().spans.iter().any(|span| span.phase == phase)),
            findings,
            advice,
            rescue,
            checkpoint,
            settings,
            nothing,
        })
    }
}

impl LeftBehind {
    fn of(device: &Device<'_>, during: During, findings: &[Finding]) -> Option<Self> {
        let grows = findings.iter().any(|finding| matches!(finding, Finding::Growth { is_leak: true, .. }));
        let last = during.step.filter(|&step| grows && step > 2)? - 1;
        let steps = device.steps().ok()?;
        Some(Self { steps: [2, last].map(|step| steps.name(step)), instants: [1, last].map(|step| steps.end(step)) })
    }
}

impl Nothing {
    /// Whether the only known reason is that no mistake was found.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    fn of(categories: &Attribution, sites: &Attribution) -> Option<Self> {
        let total = categories.total_bytes;
        let of = |wanted: &[Category]| {
            let rows = categories.rows.iter().filter(|row| wanted.iter().any(|category| row.label == category.name()));
            rows.map(|row| row.bytes).fold(0, u64::saturating_add)
        };
        let is_most = |bytes: u64| bytes > total / WEIGHTS_PART.1 * WEIGHTS_PART.0;
        let weights = of(&[Category::Parameter, Category::Buffer]);
        if is_most(weights) {
            return Some(Self::Weights { bytes: weights, total });
        }
        let training = [Category::Gradient, Category::OptimizerState, Category::ModelState];
        let training = weights.saturating_add(of(&training));
        if is_most(training) {
            return Some(Self::Training { bytes: training, states: of(&[Category::OptimizerState]), total });
        }
        let is_told = |row: &&Row| ![OTHER, BASELINE, NOT_RECORDED].contains(&row.label.as_str()) && row.bytes > 0;
        let largest = sites.rows.iter().find(is_told)?;
        Some(Self::Unknown {
            label: largest.label.clone(),
            is_of_weights: largest.category.is_some_and(|category| OF_WEIGHTS.contains(&category)),
            bytes: largest.bytes,
            total,
        })
    }
}

impl Failure {
    fn of(recording: &Devices<'_>, device: &Device<'_>, options: &TriageOptions) -> Result<Option<Self>> {
        let (inference, devices) = (options.inference, vec![device.id()]);
        let first = OomOptions { inference, devices, top: Some(1), explained: Some(1), ..OomOptions::default() };
        let ooms = OomReport::of(recording, &first)?;
        let ooms = ooms.devices.into_iter().next().map(|device| device.ooms).unwrap_or_default();
        Ok(ooms.first().map(|first| Self {
            requested_bytes: first.request.bytes,
            driver_bytes: first.request.driver_bytes,
            device_free_bytes: first.device_free,
            capacity_bytes: first.figures.reserved.saturating_add(first.device_free),
            cause: first.cause,
            is_limited: first.evidence.iter().any(|it| matches!(it, Symptom::DeviceHadEnough { .. })),
            failed_requests: device.track.count_of(Action::Oom) as usize,
            is_all_kept: is_all_kept(device, first.moment.entry),
        }))
    }
}

/// Whether next to nothing was freed between the failed request at an entry and the next one.
fn is_all_kept(device: &Device<'_>, first: Option<u32>) -> bool {
    let Some(first) = first else { return false };
    let actions = device.track.actions().iter();
    let next = (0u32..).zip(actions).skip(first as usize + 1).find(|&(_, &action)| action == Action::Oom);
    next.is_some_and(|(next, _)| kept_since(device.history(), first, next).is_some())
}

impl During {
    fn of(device: &Device<'_>, instant: Instant) -> Self {
        let span = History::entry_before(instant).and_then(|entry| device.phases().span(entry));
        // A data phase counts only if it was recorded: memviz infers it from little evidence.
        let is_told = |span: &&PhaseSpan| match span.phase {
            Phase::Other => false,
            Phase::Data => span.recorded,
            Phase::Forward | Phase::Backward | Phase::Optimizer => true,
        };
        let phase = span.filter(is_told).map(|span| span.phase);
        let step = device.steps().ok().map(|steps| steps.ends.partition_point(|&end| end < instant) + 1);
        let known = device.steps().map_or(0, |steps| steps.ends.len());
        Self { phase, step: step.filter(|&step| step <= known && phase.is_some()) }
    }
}

/// Whether checkpointing has candidates: determined by simulation if that is quick, otherwise from the contents of the
/// recording.
#[cfg(feature = "report")]
pub(crate) fn can_checkpoint(recording: &Devices<'_>, device: &Device<'_>) -> bool {
    if Simulate::Quick.covers(device) {
        tradeoffs::checkpoint(recording, device).is_some()
    } else {
        may_checkpoint(device)
    }
}

fn may_checkpoint(device: &Device<'_>) -> bool {
    let stacks = &device.snapshot().stacks;
    let has_lines = device.snapshot().notes.format == Format::CudaSnapshot && stacks.len() > 1;
    has_lines && device.phases().has_training()
}

fn fragmentation(device: &Device<'_>, failure: Option<&Failure>) -> Option<Finding> {
    let at = failure.map(|_| When::Oom);
    // Recordings without segments have no answer, which is not an error here.
    let (figures, stranded) = idle(device, at.as_ref()).ok()?;
    let is_the_cause = failure.is_some_and(|failure| failure.cause == Cause::Fragmentation);
    let (free, reserved) = (figures.inactive, figures.reserved);
    let is_free = device.history().completeness.no_entries && free >= NOTABLE && free >= reserved / FREE_PART;
    let in_all = if is_the_cause || figures.pins_much() {
        Some(Finding::Fragmentation { pinned_free: figures.pinned_free, reserved })
    } else {
        is_free.then_some(Finding::Free { free, reserved })
    };
    // One line about free memory: if most of it is on a side stream or in a pool, that is the reason.
    let stranded = stranded.filter(|stranded| in_all.is_none() || stranded.free_bytes >= free / 2);
    stranded.map(Finding::Stranded).or(in_all)
}

fn growth(device: &DeviceLeaks, peak: u64) -> Option<Finding> {
    let finding = |verdict, rate: Rate| {
        let mut rows = device.rows.iter().filter(|row| row.verdict == verdict);
        let places = rows.clone().count();
        rows.next().map(|first| Finding::Growth {
            is_leak: verdict == Verdict::Leak,
            label: first.label.clone(),
            inferred: first.inferred,
            bytes_per_step: i64::try_from(rate.bytes).unwrap_or(i64::MAX),
            places,
        })
    };
    // Growth that does not matter even in a long run is not worth a line.
    let is_worth_it = |rate: Rate, steps: u64| {
        let bytes = rate.allocated_bytes.max(0).unsigned_abs().max(rate.bytes);
        bytes.saturating_mul(steps) >= peak / GROWTH_PART
    };
    let leak = || finding(Verdict::Leak, device.leaking).filter(|_| is_worth_it(device.leaking, LONGEST_RUN));
    leak().or_else(|| finding(Verdict::Growth, device.growing).filter(|_| is_worth_it(device.growing, LONG_RUN)))
}
