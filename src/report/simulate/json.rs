//! The JSON of `memviz simulate`.

use super::words;
use crate::analysis::simulate::DeviceSimulation;
use crate::analysis::simulate::SimulateReport;
use crate::play::{Difference, Outcome, Run, Trust};
use crate::replay::Metric;
use crate::report::Source;
use crate::report::common::json::{Head, InputHead};
use crate::report::common::notes;
use crate::wire::SCHEMA_VERSION;
use serde::Serialize;

/// `memviz simulate`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SimulateDevice {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// Notes, in words.
    pub notes: Vec<String>,
    /// Why there is no simulation; null if there is one.
    pub refused: Option<String>,
    /// The recording, compared with a simulation of its own settings.
    pub recorded: RecordedSettings,
    /// Bytes that the allocator can use in `runs`; null for an unlimited device.
    pub capacity_bytes: Option<u64>,
    /// Further bytes of the device that CUDA itself uses; null if no device was named.
    pub context_bytes: Option<u64>,
    /// The maximum of allocated bytes, which every allocator needs; null if there is no simulation.
    pub live_bytes: Option<u64>,
    /// One run for each settings string, the recorded settings first; in a sweep, then those that need the least.
    pub runs: Vec<SimulatedRun>,
    /// The settings that need the least, if that is less than with the recorded ones; otherwise null.
    pub best_alloc_conf: Option<String>,
}

/// The recording, and its difference from a simulation of its own settings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedSettings {
    /// `max_memory_allocated()`.
    pub max_allocated_bytes: i64,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: i64,
    /// The largest difference between a simulated and a recorded maximum; null if there is no simulation.
    pub replay_difference_bytes: Option<u64>,
    /// The first entry at which a call to the driver, its address or its size differs; null if all are equal.
    pub differs_from_entry: Option<u32>,
    /// Requests for which the allocator first released memory.
    pub retries: u32,
    /// Calls of `empty_cache`; they are simulated at their recorded place.
    pub empty_cache_calls: u32,
    /// The number of these calls that may be retries of the next request instead.
    pub uncertain_empty_cache_calls: u32,
    /// The number of retries that may be calls of `empty_cache` instead.
    pub uncertain_retries: u32,
}

/// A program under some settings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SimulatedRun {
    /// The settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    pub alloc_conf: String,
    /// Whether they are the recorded ones.
    pub recorded: bool,
    /// Changes to the program, such as `checkpoint:model.py:53 forward` or `optimizer:sgd`; empty for the unchanged
    /// program.
    pub changes: Vec<String>,
    /// Their assumptions, one sentence each.
    pub assumptions: Vec<String>,
    /// Bytes that the allocator can use; null for an unlimited device.
    pub capacity_bytes: Option<u64>,
    /// Whether every request is served, including those that were refused in the recording.
    pub finishes: bool,
    /// The first entry whose request is refused.
    pub fails_at_entry: Option<u32>,
    /// `max_memory_allocated()`; null if the settings are refused, like the figures below.
    pub max_allocated_bytes: Option<u64>,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: Option<u64>,
    /// Its minimum and maximum, if it depends on the driver's placement of segments; otherwise null.
    pub max_reserved_bytes_range: Option<[u64; 2]>,
    /// The maximum of reserved bytes outside of blocks in use.
    pub max_inactive_bytes: Option<u64>,
    /// `num_alloc_retries`.
    pub alloc_retries: Option<u64>,
    /// `num_device_alloc`.
    pub device_allocs: Option<u64>,
    /// `num_device_free`.
    pub device_frees: Option<u64>,
    /// The lowest capacity on which it works; null if unknown.
    pub first_capacity_bytes: Option<u64>,
    /// The lowest capacity from which on it always works; null if unknown.
    pub safe_capacity_bytes: Option<u64>,
    /// A capacity from which on it always works: the safe one, or more if that is unknown.
    pub enough_capacity_bytes: Option<u64>,
    /// If the program continued after a refused request: a capacity from which on it always runs as recorded, whether that
    /// request is refused again or not; otherwise null. For the capacities above, no request is refused.
    pub as_it_went_capacity_bytes: Option<u64>,
    /// Capacities between the first and the safe one on which it fails.
    pub failing_capacities: Vec<FailingCapacities>,
    /// Requests that were refused in the recording.
    pub refused_requests: Vec<RefusedRequest>,
    /// How far you can trust it.
    pub trust: Trust,
    /// Why it is not trusted further; empty if it is exact.
    pub because: String,
    /// Notes about the settings.
    pub warnings: Vec<String>,
}

/// A range of capacities on which a program fails.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailingCapacities {
    /// The lowest capacity.
    pub from_bytes: u64,
    /// The first capacity above on which it works.
    pub to_bytes: u64,
}

/// A request that was refused in the recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedRequest {
    /// Its entry.
    pub entry: u32,
    /// Whether it is served here.
    pub served: bool,
}

impl SimulatedRun {
    fn of(run: &Run, capacity: Option<u64>) -> Self {
        let outcome = run.outcome.as_ref();
        let capacities = &run.capacities;
        let hole = |&(from_bytes, to_bytes): &(u64, u64)| FailingCapacities { from_bytes, to_bytes };
        Self {
            alloc_conf: run.alloc_conf.clone(),
            recorded: run.is_recorded,
            changes: run.changes.clone(),
            assumptions: run.assumptions.clone(),
            capacity_bytes: capacity,
            finishes: outcome.is_some_and(|outcome| outcome.failure().is_none()),
            fails_at_entry: outcome.and_then(Outcome::failure),
            max_allocated_bytes: outcome.map(|outcome| outcome.max_allocated),
            max_reserved_bytes: outcome.map(|outcome| outcome.max_reserved),
            max_reserved_bytes_range: run.reserved_range.map(|(least, most)| [least, most]),
            max_inactive_bytes: outcome.map(|outcome| outcome.max_inactive),
            alloc_retries: outcome.map(|outcome| outcome.retries),
            device_allocs: outcome.map(|outcome| outcome.device_allocs),
            device_frees: outcome.map(|outcome| outcome.device_frees),
            first_capacity_bytes: capacities.first,
            safe_capacity_bytes: capacities.safe,
            enough_capacity_bytes: capacities.enough,
            as_it_went_capacity_bytes: run.as_it_went,
            failing_capacities: capacities.holes.iter().map(hole).collect(),
            refused_requests: outcome
                .iter()
                .flat_map(|outcome| &outcome.refusals)
                .map(|&(entry, served)| RefusedRequest { entry, served })
                .collect(),
            trust: run.trust,
            because: run.because.clone(),
            warnings: run.warnings.iter().map(|&warning| notes::settings_warning(warning)).collect(),
        }
    }
}

impl From<&DeviceSimulation> for SimulateDevice {
    fn from(device: &DeviceSimulation) -> Self {
        Self {
            device: device.device,
            complete_history: device.completeness.is_complete(),
            notes: words::limits(device),
            refused: device.refused.map(str::to_owned),
            recorded: RecordedSettings {
                max_allocated_bytes: device.recorded_maxima[Metric::Allocated as usize],
                max_reserved_bytes: device.recorded_maxima[Metric::Reserved as usize],
                replay_difference_bytes: device.difference.as_ref().map(Difference::bytes),
                differs_from_entry: device.difference.as_ref().and_then(|difference| difference.first),
                retries: device.releases.retries,
                empty_cache_calls: device.releases.empty_cache,
                uncertain_empty_cache_calls: device.releases.uncertain_calls,
                uncertain_retries: device.releases.uncertain,
            },
            capacity_bytes: device.capacity,
            context_bytes: device.context.map(|context| context.bytes),
            live_bytes: device.live_bytes,
            runs: device.runs.iter().map(|run| SimulatedRun::of(run, device.capacity)).collect(),
            best_alloc_conf: device.best().map(|run| run.alloc_conf.clone()),
        }
    }
}

/// The whole answer of `memviz simulate`.
pub fn simulate<'a>(source: Source<'a>, report: &SimulateReport) -> Head<'a, SimulateDevice> {
    Head {
        schema_version: SCHEMA_VERSION,
        command: "simulate",
        input: InputHead::of(source),
        comparison: None,
        devices: report.devices.iter().map(SimulateDevice::from).collect(),
    }
}
