//! What is known about a recording before anything is drawn.

use super::json;
use crate::analysis::scene::Folds;
use crate::analysis::timeline::OomMark;
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::replay::{Bound, Completeness, Counters, Metric};
use crate::report::Source;
use crate::report::common::json::keys;
use crate::report::common::notes;
use indexmap::IndexMap;
use serde::Serialize;

/// Microseconds since 1970 at the start of 2000: smaller times count from the start of a machine or a program.
const EARLIEST_CLOCK: i64 = 946_684_800_000_000;

#[derive(Serialize)]
struct Figures<'a> {
    name: &'a str,
    format: &'static str,
    bytes: u64,
    version: &'static str,
    has_times: bool,
    clock_us: Option<i64>,
    has_segments: bool,
    notes: Vec<String>,
    by: Vec<&'static str>,
    folds: Folds,
    devices: Vec<DeviceFigures>,
}

keys! {
    struct DeviceFigures(device: &Device<'_>, origin: i64) {
        let (track, history) = (device.track, device.history());
        let times = track.times();
        let time = |time: Option<&i64>| time.map_or(0, |time| time.saturating_sub(origin));
        let ooms = OomMark::all(track);
        let limits = notes::limits(&history.completeness, &history.start);
        pub device: i32 = device.id(),
        pub name: String = notes::device_name(device.id()),
        pub entries: u32 = history.entries(),
        pub allocations: usize = history.allocations.len(),
        pub start_us: i64 = time(times.iter().min()),
        pub end_us: i64 = time(times.iter().max()),
        pub capacity_bytes: Option<u64> = ooms.first().and_then(OomMark::capacity),
        pub has_reserved: bool = !history.completeness.no_reserved,
        pub peak: IndexMap<&'static str, Peak> =
            Metric::ALL.map(|metric| (metric.name(), Peak::of(device, metric))).into(),
        pub bounds: IndexMap<&'static str, Option<Bound>> =
            Metric::ALL.map(|metric| (metric.name(), bound_then(&history.completeness, metric))).into(),
        pub baseline: IndexMap<&'static str, i64> = counters(&history.start),
        pub baseline_bound: Option<Bound> = history.completeness.baseline_bound(),
        pub end: IndexMap<&'static str, i64> = counters(&history.end),
        pub complete: bool = history.completeness.is_complete(),
        pub doubts: Vec<String> = limits.into_iter().chain(notes::anomalies(&history.anomalies)).collect(),
        pub ooms: Vec<Oom> = ooms.iter().map(Oom::of).collect(),
    }
}

keys! {

    struct Peak(device: &Device<'_>, metric: Metric) {
        let history = device.history();
        let maximum = history.maxima[metric as usize];
        let is_early = maximum.instant == 0 && history.completeness.has_baseline;
        let bound = history.completeness.bound(metric).or(is_early.then_some(Bound::Lower));
        pub bytes: i64 = maximum.bytes,
        pub instant: u32 = maximum.instant,
        pub bound: Option<Bound> = bound,
    }
}

keys! {

    struct Oom(oom: &OomMark) {
        let free = oom.device_free.map_or(String::new(), |free| format!(", {} free on the device", Bytes(free)));
        pub instant: u32 = oom.entry + 1,
        pub requested_bytes: u64 = oom.requested,
        pub capacity_bytes: Option<u64> = oom.capacity(),
        /// Allocated and reserved memory when the request failed.
        pub allocated_bytes: i64 = oom.counters.allocated,
        pub reserved_bytes: i64 = oom.counters.reserved,
        pub text: String = format!("out of memory: {} requested{free}", Bytes(oom.requested)),
    }
}

/// The recording, its devices with their maxima, and the possible groupings.
pub fn figures(source: Source<'_>, devices: &Devices<'_>) -> String {
    let snapshot = &source.recording.snapshot;
    let origin = snapshot.first_time().unwrap_or(0);
    // Devices are not drawn in the order of the file: host memory is last, as in every answer.
    let wanted = devices.wanted(&[]).unwrap_or_default();
    json(&Figures {
        name: source.path,
        format: snapshot.notes.format.name(),
        bytes: source.recording.bytes,
        version: env!("CARGO_PKG_VERSION"),
        has_times: snapshot.notes.has_times,
        clock_us: snapshot.first_time().filter(|&time| snapshot.notes.has_times && time >= EARLIEST_CLOCK),
        has_segments: snapshot.notes.format.has_segments(),
        notes: notes::source(source.recording),
        by: GroupBy::told(devices).map(GroupBy::name).collect(),
        folds: Folds::of(devices),
        devices: wanted.into_iter().map(|device| DeviceFigures::of(device, origin)).collect(),
    })
}

/// Which bound a metric's values at all recorded instants are: peaks may be before these, or between them.
fn bound_then(completeness: &Completeness, metric: Metric) -> Option<Bound> {
    let kept = Completeness { no_entries: false, overflowed: false, ring_full: false, sampled: false, ..*completeness };
    kept.bound(metric)
}

fn counters(counters: &Counters) -> IndexMap<&'static str, i64> {
    Metric::ALL.map(|metric| (metric.name(), counters.get(metric))).into()
}
