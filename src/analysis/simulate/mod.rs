//! Predicts what a program would need under other allocator settings, and on another device, by simulating its
//! requests.
//!
//! [`crate::simulation`] simulates; this module has the options and the answer.

use crate::allocator::SizeRules;
use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::segments::expandable::conflicts;
use crate::model::{AllocatorSettings, DeviceId, HOST_DEVICE};
use crate::parallel;
use crate::replay::{Anomalies, Completeness};
use crate::simulation::changes::{Change, Editor};
use crate::simulation::{
    Context, Difference, Program, Releases, Run, Simulator, candidates, host, is_notable_part, lacks, program,
    recommended,
};
use crate::sorting::SortRows;
use std::cmp::Reverse;

/// Number of simulated steps to find the capacities of named settings, and of those of a sweep.
const NAMED_BUDGET: u64 = 20_000_000;
const SWEEP_BUDGET: u64 = 12_000_000;
/// Maximum number of simulations of a whole program for the capacities of one run.
const MOST_PLAYS: u64 = 300;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct SimulateOptions {
        /// Changes to the program: simulated under the recorded settings and all others, in addition to the unchanged
        /// program.
        pub changes: Vec<Change>,
        /// Settings, each with its string as its name. The recorded ones are always simulated.
        pub settings: Vec<AllocatorSettings>,
        /// Whether to also try the settings that are worth trying, and sort.
        pub sweep: bool,
        /// Bytes of the device: the total capacity in PyTorch's messages.
        pub capacity: Option<u64>,
        /// Bytes of it that CUDA uses; if not given, the value that a failed request shows, or else
        /// [`crate::simulation::DEFAULT_CONTEXT`].
        pub context: Option<u64>,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
    }
}

#[derive(Clone, Debug)]
pub struct DeviceSimulation {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    pub entries: u32,
    /// The recorded maxima, in the order of [`crate::replay::Metric::ALL`].
    pub recorded_maxima: [i64; 4],
    /// The simulation of the recorded settings compared with the recording; `None` if nothing was simulated.
    pub difference: Option<Difference>,
    pub releases: Releases,
    /// Bytes that the allocator can use, if known or given.
    pub capacity: Option<u64>,
    /// Whether it is the device on which requests were refused.
    pub is_full_device: bool,
    /// Further bytes of the device that CUDA itself uses, if a device was named.
    pub context: Option<Context>,
    /// Whether the recorded settings, simulated on the recorded device, serve the request that failed: then
    /// something that is not recorded refused it, such as a memory fraction.
    pub refused_otherwise: bool,
    /// The recorded settings first, then the requested ones; in a sweep, those that need the least first.
    pub runs: Vec<Run>,
    /// The maximum of allocated bytes: every allocator needs at least this much. `None` if nothing was simulated.
    pub live_bytes: Option<u64>,
    /// Why expandable segments, which some of the runs use and the recording does not, may fail in this program: each
    /// reason is a part of a sentence.
    pub expandable_conflicts: Vec<&'static str>,
    pub refused: Option<&'static str>,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

impl DeviceSimulation {
    /// The program with changes under the recorded settings; `None` if it was not changed.
    pub fn changed(&self) -> Option<&Run> {
        self.runs.iter().find(|run| run.is_recorded && !run.changes.is_empty())
    }

    /// The settings to recommend, by the rule of all commands: they work where the recorded ones fail on the device, or
    /// reserve notably less. Settings with a warning are left out: a release that does not know a setting refuses to start.
    pub fn best(&self) -> Option<&Run> {
        let before = self.runs.first().map(|recorded| if works(recorded) { reserved(recorded) } else { u64::MAX })?;
        let worth_it = self.others().filter(|run| run.warnings.is_empty() && is_notable_part(before, reserved(run)));
        recommended(worth_it, |run| (&run.alloc_conf, retries(run), reserved(run)))
    }

    /// If no settings reserve notably less: those that work on a notably smaller device than the recorded ones, and its size in
    /// bytes that the allocator can use.
    pub fn least(&self) -> Option<(&Run, u64)> {
        let before = self.runs.first()?.needs()?;
        let needs = |run: &Run| run.needs().unwrap_or(u64::MAX);
        let worth_it = self.others().filter(|run| run.warnings.is_empty() && is_notable_part(before, needs(run)));
        let least = recommended(worth_it, |run| (&run.alloc_conf, retries(run), needs(run)))?;
        self.best().is_none().then_some((least, needs(least)))
    }

    /// Whether settings with a warning reserve or need notably less than the recorded ones.
    pub fn has_notable_warned(&self) -> bool {
        let Some(recorded) = self.runs.first() else { return false };
        let is_less = |run: &Run| {
            let needs = recorded.needs().zip(run.needs());
            is_notable_part(reserved(recorded), reserved(run))
                || needs.is_some_and(|(before, after)| is_notable_part(before, after))
        };
        self.others().any(|run| !run.warnings.is_empty() && is_less(run))
    }

    /// Other settings with which the unchanged program works.
    fn others(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| !run.is_recorded && run.changes.is_empty() && works(run) && run.needs().is_some())
    }
}

fn works(run: &Run) -> bool {
    run.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_none())
}

/// `max_memory_reserved()`: the most where the driver decides how much is reserved.
fn reserved(run: &Run) -> u64 {
    match (run.reserved_range, &run.outcome) {
        (Some((_, most)), _) => most,
        (None, Some(outcome)) => outcome.max_reserved,
        (None, None) => u64::MAX,
    }
}

fn retries(run: &Run) -> u64 {
    run.outcome.as_ref().map_or(u64::MAX, |outcome| outcome.retries)
}

#[derive(Clone, Debug, Default)]
pub struct SimulateReport {
    pub devices: Vec<DeviceSimulation>,
    /// Whether settings were tried that the user did not name.
    pub sweep: bool,
}

/// Settings for all devices of a process, since they share `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSettings<'a> {
    pub alloc_conf: &'a str,
    /// The sum of `max_memory_reserved()` over the devices, with the settings of the recording.
    pub before: u64,
    pub after: u64,
}

impl SimulateReport {
    /// The GPUs whose programs were simulated with several settings.
    pub fn compared(&self) -> impl Iterator<Item = &DeviceSimulation> {
        let is_compared = |device: &&DeviceSimulation| device.runs.len() > 1 && device.changed().is_none();
        self.devices.iter().filter(|device| device.device != HOST_DEVICE).filter(is_compared)
    }

    /// The settings to recommend for several GPUs: those of the device that runs out of memory, or else reserves the most, if
    /// they work on the others and all together reserve less.
    pub fn for_all(&self) -> Option<SharedSettings<'_>> {
        self.compared().nth(1)?;
        let most = |device: &&DeviceSimulation| {
            let recorded = device.runs.first();
            (!recorded.is_some_and(works), recorded.map_or(0, reserved), Reverse(device.device))
        };
        let alloc_conf = self.compared().max_by_key(most)?.best()?.alloc_conf.as_str();
        let sum = |all: Vec<&Run>| all.into_iter().map(reserved).fold(0, u64::saturating_add);
        let same = |device: &'_ DeviceSimulation| device.others().position(|run| run.alloc_conf == alloc_conf);
        let places: Option<Vec<usize>> = self.compared().map(same).collect();
        let with = self.compared().zip(places?).filter_map(|(device, place)| device.others().nth(place)).collect();
        let recorded: Vec<&Run> = self.compared().filter_map(|device| device.runs.first()).collect();
        let before = if recorded.iter().all(|run| works(run)) { sum(recorded) } else { u64::MAX };
        let after = sum(with);
        (after < before).then_some(SharedSettings { alloc_conf, before, after })
    }

    /// Simulates the programs of the devices.
    ///
    /// # Errors
    /// If a device is named that the recording does not have.
    pub fn of(recording: &Devices<'_>, options: &SimulateOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let devices = ask_each(&wanted, |device| Ok(DeviceSimulation::of(device, options)))?.0;
        Ok(Self { devices, sweep: options.sweep })
    }
}

impl DeviceSimulation {
    fn of(device: &Device<'_>, options: &SimulateOptions) -> Self {
        let history = device.history();
        let mut simulation = Self {
            device: device.id(),
            entries: history.entries(),
            recorded_maxima: history.maxima.map(|maximum| maximum.bytes),
            difference: None,
            releases: Releases::default(),
            capacity: None,
            is_full_device: false,
            context: None,
            refused_otherwise: false,
            runs: Vec::new(),
            live_bytes: None,
            expandable_conflicts: Vec::new(),
            refused: None,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        };
        let program = match program(device) {
            Ok(program) => program,
            Err(reason) => {
                simulation.refused = Some(reason);
                return simulation;
            }
        };
        if device.id() == HOST_DEVICE {
            simulation.simulate_host(device, &program, options);
            return simulation;
        }
        let simulator = Simulator::new(device.track, program, options.capacity, options.context);
        simulation.capacity = simulator.capacity;
        simulation.is_full_device = simulator.is_full_device;
        simulation.context = options.capacity.map(|total| simulator.context.within(total));
        simulation.releases = simulator.program.releases;
        simulation.difference = Some(simulator.difference.clone());
        simulation.live_bytes = Some(simulator.program.live_bytes(&SizeRules::device(&simulator.settings)));

        let swept = if options.sweep {
            candidates::candidates(&simulator.settings, simulator.capacity.is_some())
        } else {
            Vec::new()
        };
        let named = options.settings.iter().map(|settings| settings.on_device_of(&simulator.settings));
        let others: Vec<AllocatorSettings> = named.chain(swept).collect();
        let turns_on = |settings: &AllocatorSettings| settings.expandable_segments;
        if !simulator.settings.expandable_segments && others.iter().any(turns_on) {
            simulation.expandable_conflicts = conflicts(device.track, device.sites());
        }
        let editor = Editor::new(device);
        let edited = (!options.changes.is_empty()).then(|| editor.apply(&simulator.program, &options.changes));
        let most = MOST_PLAYS * simulator.program.len() as u64;
        let budget = if options.sweep { SWEEP_BUDGET } else { NAMED_BUDGET };
        let budget = (budget / (1 + others.len()) as u64).min(most);
        // The same with and without other settings, so that all answers show the same figure.
        let recorded = simulator.run(&simulator.settings, true, NAMED_BUDGET.min(most));
        let simulate = |settings: &AllocatorSettings, is_recorded: bool| match &edited {
            None => simulator.run(settings, is_recorded, budget),
            Some(Ok(edited)) => simulator.run_changed(edited, &options.changes, settings, is_recorded, budget),
            Some(Err(refusal)) => Run {
                changes: options.changes.iter().map(ToString::to_string).collect(),
                ..Run::refused(settings, is_recorded, &format!("{} ({})", refusal.because, refusal.change))
            },
        };
        let mut runs: Vec<Run> = parallel::map(&others, |settings| simulate(settings, false));
        if options.sweep {
            runs.sort_rows_by_key(|run| run.needs().unwrap_or(u64::MAX));
        }
        let is_served = recorded.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_none());
        simulation.refused_otherwise = simulator.is_full_device && is_served;
        let changed = edited.is_some().then(|| simulate(&simulator.settings, true));
        simulation.runs = std::iter::once(recorded).chain(changed).chain(runs).collect();
        simulation
    }

    /// Simulates pinned host memory, which has a separate allocator.
    fn simulate_host(&mut self, device: &Device<'_>, program: &Program, options: &SimulateOptions) {
        let swept = if options.sweep { host::candidates() } else { Vec::new() };
        let others: Vec<&AllocatorSettings> = options.settings.iter().chain(&swept).collect();
        let lacks = lacks(self.completeness, self.anomalies.total());
        let (mut runs, difference) = host::runs(device.track, program, &others, lacks);
        if options.sweep {
            runs[1..].sort_rows_by_key(|run| run.needs().unwrap_or(u64::MAX));
        }
        self.runs = runs;
        self.difference = Some(difference);
        self.live_bytes = Some(host::live_bytes(device.track, program));
    }
}
