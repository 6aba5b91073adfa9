//! What a run would need under other allocator settings, and on another device: its requests, played.
//!
//! `program` reads from a recording what the program asked for; `play` has the [`crate::allocator`] serve it; `recorded`
//! holds a play of the recorded settings against the recording, which tells how far plays are to be trusted; `capacity`
//! finds the smallest device.

mod capacity;
mod play;
mod program;
mod recorded;
mod sweep;
mod warning;

pub use capacity::{Capacities, Search};
pub use play::{Outcome, Setup, play};
pub(super) use play::{blocks_at_peak, recorded_settings};
pub use program::{Program, Releases};
pub(super) use program::{Step, StepKind};
pub use recorded::{Difference, compare};
pub use warning::SettingsWarning;

use super::device::{Device, Devices, ask_each};
use crate::allocator::{Placement, SegmentEvent};
use crate::error::Result;
use crate::model::{AllocatorSettings, DeviceId, HOST_DEVICE};
use crate::replay::{Anomalies, Completeness, Track};
use play::{Observer, Player};
use rayon::prelude::*;
use serde::Serialize;

/// Bytes of a device that CUDA keeps for itself, where nothing tells.
pub const DEFAULT_CONTEXT: u64 = 500 << 20;
/// Steps played in all for the capacities of settings that were named, and of those of a sweep.
const NAMED_BUDGET: u64 = 20_000_000;
const SWEEP_BUDGET: u64 = 6_000_000;
/// Plays of a whole program at most, for the capacities of one run.
const MOST_PLAYS: u64 = 300;

/// What to play.
#[derive(Clone, Debug, Default)]
pub struct SimulateOptions {
    /// Settings, each with its string as name. The recorded ones are played in any case.
    pub settings: Vec<AllocatorSettings>,
    /// Whether to try the settings that are worth it, too, and sort.
    pub sweep: bool,
    /// Bytes of the device, as PyTorch's messages name its total capacity.
    pub capacity: Option<u64>,
    /// Bytes of it that CUDA keeps; where not given, what a refused request tells, or else [`DEFAULT_CONTEXT`].
    pub context: Option<u64>,
    /// Devices wanted; empty for all.
    pub devices: Vec<DeviceId>,
}

/// How far a play is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "report", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The recording is complete, its own settings played are what was recorded, and so is where segments lie.
    Exact,
    /// Something is not known: what was there before the recording, or where the driver would put segments.
    Predicted,
    /// It cannot be played.
    Refused,
}

impl Trust {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Predicted => "predicted",
            Self::Refused => "refused",
        }
    }
}

/// A program under some settings.
#[derive(Clone, Debug)]
pub struct Run {
    /// The string of the settings.
    pub alloc_conf: String,
    /// Whether they are the recorded ones.
    pub is_recorded: bool,
    /// How it goes on the device of [`DeviceSimulation::capacity`]; `None` where it cannot be played.
    pub outcome: Option<Outcome>,
    /// The least and the most that is reserved, where that depends on where the driver puts segments.
    pub reserved_range: Option<(u64, u64)>,
    /// The devices on which it works.
    pub capacities: Capacities,
    /// How far to trust it.
    pub trust: Trust,
    /// Why no further; empty where it is exact.
    pub because: String,
    /// What is to be said of the settings.
    pub warnings: Vec<SettingsWarning>,
}

impl Run {
    /// Bytes that a device must have for it, as far as known: those from which on it always works, else what it reserves
    /// at its most. `None` where it fails or is not played.
    pub fn needs(&self) -> Option<u64> {
        let outcome = self.outcome.as_ref()?;
        self.capacities.enough.or(outcome.failure().is_none().then_some(outcome.max_reserved))
    }
}

/// Reserved bytes from an entry on.
pub type CurvePoint = (u32, u64);

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceSimulation {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    /// Number of entries of the device.
    pub entries: u32,
    /// The recorded maxima, in the order of [`crate::replay::Metric::ALL`].
    pub recorded_maxima: [i64; 4],
    /// The recorded settings, played, against the recording; `None` where nothing is played.
    pub difference: Option<Difference>,
    /// What was given back in the recording.
    pub releases: Releases,
    /// Bytes that the allocator can use, where they are known or were given.
    pub capacity: Option<u64>,
    /// Whether the recording tells them itself.
    pub capacity_recorded: bool,
    /// The recorded settings first, then those asked for; in a sweep those that need least first behind it.
    pub runs: Vec<Run>,
    /// Bytes of the blocks in use at their most: no allocator does with less. `None` where nothing is played.
    pub live_bytes: Option<u64>,
    /// Why nothing is played.
    pub refused: Option<&'static str>,
    /// Reserved bytes as recorded, and under the settings that need least.
    pub curves: [Vec<CurvePoint>; 2],
    /// What the recording lacks.
    pub completeness: Completeness,
    /// Contradictions in it.
    pub anomalies: Anomalies,
}

impl DeviceSimulation {
    /// The settings that need least, if that is less than what the recorded ones need. None of those are it of which
    /// there is a warning: a release that does not know a setting refuses to start.
    pub fn best(&self) -> Option<&Run> {
        let recorded = self.runs.first()?.needs();
        let is_safe = |run: &&Run| !run.is_recorded && run.warnings.is_empty();
        let others = self.runs.iter().filter(|run| is_safe(run) && run.needs().is_some());
        let best = others.min_by_key(|run| run.needs())?;
        (recorded.is_none() || best.needs() < recorded).then_some(best)
    }
}

/// All devices.
#[derive(Clone, Debug, Default)]
pub struct SimulateReport {
    /// The devices asked for, in order.
    pub devices: Vec<DeviceSimulation>,
    /// Whether settings were tried that nobody named.
    pub sweep: bool,
}

impl SimulateReport {
    /// Plays the programs of the devices.
    ///
    /// # Errors
    /// When a device is named that the recording does not have.
    pub fn of(recording: &Devices<'_>, options: &SimulateOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let devices = ask_each(&wanted, |device| Ok(DeviceSimulation::of(device, options)))?.0;
        Ok(Self { devices, sweep: options.sweep })
    }
}

/// What every run on a device needs.
struct Stage<'a> {
    program: &'a Program,
    capacity: Option<u64>,
    context: u64,
    /// Where the driver puts segments, if the recording shows it.
    placement: Option<Placement>,
    /// Whether the recorded settings, played, are what was recorded.
    is_reproduced: bool,
    /// What the recording lacks, in words; empty where it is complete.
    lacks: &'static str,
    budget: u64,
    /// What was reserved before the first entry, which the device had to have.
    reserved_at_start: u64,
}

impl DeviceSimulation {
    fn of(device: &Device<'_>, options: &SimulateOptions) -> Self {
        let (track, history) = (device.track, device.history());
        let mut simulation = Self {
            device: device.id(),
            entries: history.entries(),
            recorded_maxima: history.maxima.map(|maximum| maximum.bytes),
            difference: None,
            releases: Releases::default(),
            capacity: None,
            capacity_recorded: false,
            runs: Vec::new(),
            live_bytes: None,
            refused: refusal(device),
            curves: Default::default(),
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        };
        if simulation.refused.is_some() {
            return simulation;
        }
        let Some(program) = Program::of(track) else {
            simulation.refused = Some("the recording has more streams and pools than can be played");
            return simulation;
        };
        let settings = &play::recorded_settings(track);
        // Every refused request tells how much the device had for the process; the least of them is safe to assume.
        let told = program.refusals.iter().map(|&(_, bytes)| bytes).min();
        let context = options.context.or_else(|| Some(options.capacity?.saturating_sub(told?)));
        let context = context.unwrap_or(DEFAULT_CONTEXT);
        simulation.capacity = options.capacity.map(|total| total.saturating_sub(context)).or(told);
        simulation.capacity_recorded = options.capacity.is_none() && told.is_some();
        simulation.releases = program.releases;

        let as_recorded = Setup::as_recorded(track, &program);
        let (_, difference) = compare(track, &program, &as_recorded);
        let wanted: Vec<&AllocatorSettings> = options.settings.iter().collect();
        let swept = if options.sweep { sweep::candidates(settings, simulation.capacity.is_some()) } else { Vec::new() };
        let budget = if options.sweep { SWEEP_BUDGET } else { NAMED_BUDGET };
        let stage = Stage {
            program: &program,
            capacity: simulation.capacity,
            context,
            placement: placement_of(track, &program, settings),
            is_reproduced: difference.is_none(),
            lacks: lacks(history.completeness, history.anomalies.total()),
            budget: (budget / (1 + wanted.len() + swept.len()) as u64).min(MOST_PLAYS * program.len() as u64),
            reserved_at_start: u64::try_from(history.start.reserved).unwrap_or(0),
        };
        let others: Vec<&AllocatorSettings> = wanted.into_iter().chain(&swept).collect();
        let recorded = stage.run(settings, true);
        let mut runs: Vec<Run> = others.par_iter().map(|settings| stage.run(settings, false)).collect();
        if options.sweep {
            runs.sort_by_key(|run| run.needs().unwrap_or(u64::MAX));
        }
        simulation.runs = std::iter::once(recorded).chain(runs).collect();
        simulation.difference = Some(difference);
        simulation.live_bytes = Some(program.live_bytes(&as_recorded.rules));
        let best = simulation.best().map(|best| best.alloc_conf.clone());
        let best = best.and_then(|best| others.iter().find(|settings| settings.alloc_conf == best));
        simulation.curves[0] = stage.curve(&as_recorded);
        simulation.curves[1] = best.map_or(Vec::new(), |settings| stage.curve(&stage.setup(settings)));
        simulation
    }
}

/// Where the driver puts segments, if a recording under these settings shows it.
pub(super) fn placement_of(track: Track<'_>, program: &Program, settings: &AllocatorSettings) -> Option<Placement> {
    let setup = Setup { recorded_addresses: false, ..Setup::as_recorded(track, program) };
    let placements = [Placement::LowestFree, Placement::Ascending, Placement::Descending];
    placements.into_iter().find(|&placement| {
        let (_, difference) = compare(track, program, &Setup { placement, ..setup.clone() });
        difference.keeps_order() && !settings.expandable_segments
    })
}

/// Why a device's program cannot be played.
pub(super) fn refusal(device: &Device<'_>) -> Option<&'static str> {
    let (snapshot, history) = (device.track.snapshot, device.history());
    match () {
        () if !snapshot.notes.format.has_segments() => Some("only snapshots tell what was asked of the allocator"),
        () if device.id() <= HOST_DEVICE => Some("pinned host memory is not played"),
        () if history.entries() == 0 => Some("no history was recorded"),
        () if history.completeness.truncated => Some("the file ends inside the history"),
        () => None,
    }
}

/// Why settings cannot be played on a device whose size is known or not.
pub(super) fn refuses(settings: &AllocatorSettings, is_known_device: bool) -> Option<&'static str> {
    let has_fraction = settings.memory_fraction.is_some_and(|fraction| fraction < 1.0);
    match () {
        () if settings.other_backend => Some("another allocator: its rules are the driver's own"),
        () if settings.record_stream_reuse => {
            Some("reuse in captured graphs goes by their order, which is not recorded")
        }
        () if has_fraction && !is_known_device => Some("a fraction of an unknown device: --capacity names it"),
        () => None,
    }
}

/// What keeps plays from being exact.
fn lacks(completeness: Completeness, anomalies: u64) -> &'static str {
    match () {
        () if anomalies > 0 => "the recording contradicts itself",
        () if completeness.has_baseline => "the recording starts late: what it starts from is rebuilt",
        () if !completeness.is_complete() => "the recording is not complete",
        () => "",
    }
}

impl Stage<'_> {
    fn setup(&self, settings: &AllocatorSettings) -> Setup {
        let setup = Setup::new(settings, self.capacity, self.context);
        Setup { placement: self.placement.unwrap_or_default(), ..setup }
    }

    fn run(&self, settings: &AllocatorSettings, is_recorded: bool) -> Run {
        let mut run = Run {
            alloc_conf: settings.alloc_conf.clone(),
            is_recorded,
            outcome: None,
            reserved_range: None,
            capacities: Capacities::default(),
            trust: Trust::Refused,
            because: String::new(),
            warnings: SettingsWarning::of(settings),
        };
        if let Some(because) = refuses(settings, self.capacity.is_some()) {
            because.clone_into(&mut run.because);
            return run;
        }
        let setup = self.setup(settings);
        let outcome = play(self.program, &setup);
        // Within one expandable segment addresses do not depend on the driver.
        if self.placement.is_none() && !settings.expandable_segments {
            let others = [Placement::Ascending, Placement::Descending].into_iter();
            let others = others.map(|placement| play(self.program, &Setup { placement, ..setup.clone() }).max_reserved);
            let all: Vec<u64> = others.chain([outcome.max_reserved]).collect();
            let (least, most) = all.iter().fold((u64::MAX, 0), |(least, most), &it| (least.min(it), most.max(it)));
            run.reserved_range = (least < most).then_some((least, most));
            "where the driver puts segments is not known: three ways of it were played".clone_into(&mut run.because);
        }
        if !self.lacks.is_empty() {
            self.lacks.clone_into(&mut run.because);
        } else if !self.is_reproduced {
            "the recorded settings, played, are not quite what was recorded".clone_into(&mut run.because);
        }
        run.trust = if run.because.is_empty() { Trust::Exact } else { Trust::Predicted };
        let search = Search {
            program: self.program,
            settings,
            placement: setup.placement,
            context: self.context,
            least: self.program.live_bytes(&setup.rules).max(self.reserved_at_start),
            budget: self.budget,
        };
        run.capacities = search.run();
        run.outcome = Some(outcome);
        run
    }

    fn curve(&self, setup: &Setup) -> Vec<CurvePoint> {
        let mut player = Player::new(self.program, setup);
        let mut curve = Curve(vec![(0, player.allocator.stats().reserved)]);
        player.run(self.program, setup, &mut curve);
        curve.0
    }
}

/// Reserved bytes after each step that changes them.
struct Curve(Vec<CurvePoint>);

impl Observer for Curve {
    fn segment(&mut self, _: u32, _: SegmentEvent) {}

    fn reserved(&mut self, entry: u32, bytes: u64) {
        self.0.push((entry, bytes));
    }
}
