//! The JSON of `memviz simulate`.

use super::words;
use crate::analysis::simulate::DeviceSimulation;
use crate::analysis::simulate::SimulateReport;
use crate::replay::Metric;
use crate::report::Source;
use crate::report::common::json::{Head, InputHead, keys};
use crate::report::common::notes;
use crate::simulation::{Difference, Outcome, Run, Trust};
use crate::wire::SCHEMA_VERSION;

keys! { schema
    /// `memviz simulate`, one device.
    pub struct SimulateDevice(device: &DeviceSimulation) {
        /// Device, -1 for pinned host memory.
        pub device: i32 = device.device,
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// Notes, in words.
        pub notes: Vec<String> = words::limits(device),
        /// Why there is no simulation; null if there is one.
        pub refused: Option<String> = device.refused.map(str::to_owned),
        /// The recording, compared with a simulation of its own settings.
        pub recorded: RecordedSettings = RecordedSettings::of(device),
        /// Bytes that the allocator can use in `runs`; null for an unlimited device.
        pub capacity_bytes: Option<u64> = device.capacity,
        /// Further bytes of the device that CUDA itself uses; null if no device was named.
        pub context_bytes: Option<u64> = device.context.map(|context| context.bytes),
        /// The maximum of allocated bytes, which every allocator needs; null if there is no simulation.
        pub live_bytes: Option<u64> = device.live_bytes,
        /// One run for each settings string, the recorded settings first; in a sweep, then those that need the least.
        pub runs: Vec<SimulatedRun> = device.runs.iter().map(|run| SimulatedRun::of(run, device.capacity)).collect(),
        /// The settings that need the least, if that is less than with the recorded ones; otherwise null.
        pub best_alloc_conf: Option<String> = device.best().map(|run| run.alloc_conf.clone()),
    }
}

keys! { schema
    /// The recording, and its difference from a simulation of its own settings.
    pub struct RecordedSettings(device: &DeviceSimulation) {
        let releases = &device.releases;
        let difference = device.difference.as_ref();
        /// `max_memory_allocated()`.
        pub max_allocated_bytes: i64 = device.recorded_maxima[Metric::Allocated as usize],
        /// `max_memory_reserved()`.
        pub max_reserved_bytes: i64 = device.recorded_maxima[Metric::Reserved as usize],
        /// The largest difference between a simulated and a recorded maximum; null if there is no simulation.
        pub replay_difference_bytes: Option<u64> = difference.map(Difference::bytes),
        /// The first entry at which a call to the driver, its address or its size differs; null if all are equal.
        pub differs_from_entry: Option<u32> = difference.and_then(|difference| difference.first),
        /// Requests for which the allocator first released memory.
        pub retries: u32 = releases.retries,
        /// Calls of `empty_cache`; they are simulated at their recorded place.
        pub empty_cache_calls: u32 = releases.empty_cache,
        /// The number of these calls that may be retries of the next request instead.
        pub uncertain_empty_cache_calls: u32 = releases.uncertain_calls,
        /// The number of retries that may be calls of `empty_cache` instead.
        pub uncertain_retries: u32 = releases.uncertain,
    }
}

keys! { schema
    /// A program under some settings.
    pub struct SimulatedRun(run: &Run, capacity: Option<u64>) {
        let outcome = run.outcome.as_ref();
        let capacities = &run.capacities;
        /// The settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
        pub alloc_conf: String = run.alloc_conf.clone(),
        /// Whether they are the recorded ones.
        pub recorded: bool = run.is_recorded,
        /// Changes to the program, such as `checkpoint:model.py:53 forward` or `optimizer:sgd`; empty for the unchanged
        /// program.
        pub changes: Vec<String> = run.changes.clone(),
        /// Their assumptions, one sentence each.
        pub assumptions: Vec<String> = run.assumptions.clone(),
        /// Bytes that the allocator can use; null for an unlimited device.
        pub capacity_bytes: Option<u64> = capacity,
        /// Whether every request is served, including those that were refused in the recording.
        pub finishes: bool = outcome.is_some_and(|outcome| outcome.failure().is_none()),
        /// The first entry whose request is refused.
        pub fails_at_entry: Option<u32> = outcome.and_then(Outcome::failure),
        /// `max_memory_allocated()`; null if the settings are refused, like the figures below.
        pub max_allocated_bytes: Option<u64> = outcome.map(|outcome| outcome.max_allocated),
        /// `max_memory_reserved()`.
        pub max_reserved_bytes: Option<u64> = outcome.map(|outcome| outcome.max_reserved),
        /// Its minimum and maximum, if it depends on the driver's placement of segments; otherwise null.
        pub max_reserved_bytes_range: Option<[u64; 2]> = run.reserved_range.map(|(least, most)| [least, most]),
        /// The maximum of reserved bytes outside of blocks in use.
        pub max_inactive_bytes: Option<u64> = outcome.map(|outcome| outcome.max_inactive),
        /// `num_alloc_retries`.
        pub alloc_retries: Option<u64> = outcome.map(|outcome| outcome.retries),
        /// `num_device_alloc`.
        pub device_allocs: Option<u64> = outcome.map(|outcome| outcome.device_allocs),
        /// `num_device_free`.
        pub device_frees: Option<u64> = outcome.map(|outcome| outcome.device_frees),
        /// The lowest capacity on which it works; null if unknown.
        pub first_capacity_bytes: Option<u64> = capacities.first,
        /// The lowest capacity from which on it always works; null if unknown.
        pub safe_capacity_bytes: Option<u64> = capacities.safe,
        /// A capacity from which on it always works: the safe one, or more if that is unknown.
        pub enough_capacity_bytes: Option<u64> = capacities.enough,
        /// If the program continued after a refused request: a capacity from which on it always runs as recorded, whether that
        /// request is refused again or not; otherwise null. For the capacities above, no request is refused.
        pub as_it_went_capacity_bytes: Option<u64> = run.as_it_went,
        /// Capacities between the first and the safe one on which it fails.
        pub failing_capacities: Vec<FailingCapacities> = capacities.holes.iter().map(FailingCapacities::of).collect(),
        /// Requests that were refused in the recording.
        pub refused_requests: Vec<RefusedRequest> =
            outcome.iter().flat_map(|outcome| &outcome.refusals).map(RefusedRequest::of).collect(),
        /// How far you can trust it.
        pub trust: Trust = run.trust,
        /// Why it is not trusted further; empty if it is exact.
        pub because: String = run.because.clone(),
        /// Notes about the settings.
        pub warnings: Vec<String> = run.warnings.iter().map(|&warning| notes::settings_warning(warning)).collect(),
    }
}

keys! { schema
    /// A range of capacities on which a program fails.
    pub struct FailingCapacities(range: &(u64, u64)) {
        /// The lowest capacity.
        pub from_bytes: u64 = range.0,
        /// The first capacity above on which it works.
        pub to_bytes: u64 = range.1,
    }
}

keys! { schema
    /// A request that was refused in the recording.
    pub struct RefusedRequest(request: &(u32, bool)) {
        /// Its entry.
        pub entry: u32 = request.0,
        /// Whether it is served here.
        pub served: bool = request.1,
    }
}

pub fn simulate<'a>(source: Source<'a>, report: &SimulateReport) -> Head<'a, SimulateDevice> {
    Head {
        schema_version: SCHEMA_VERSION,
        command: "simulate",
        input: InputHead::of(source),
        comparison: None,
        devices: report.devices.iter().map(SimulateDevice::of).collect(),
    }
}
