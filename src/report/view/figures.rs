//! What is known about a recording before anything is drawn.

use super::json;
use crate::analysis::timeline::OomMark;
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::replay::{Bound, Completeness, Counters, Metric};
use crate::report::Source;
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
    devices: Vec<DeviceFigures>,
}

#[derive(Serialize)]
struct DeviceFigures {
    device: i32,
    name: String,
    entries: u32,
    allocations: usize,
    start_us: i64,
    end_us: i64,
    capacity_bytes: Option<u64>,
    has_reserved: bool,
    peak: IndexMap<&'static str, Peak>,
    bounds: IndexMap<&'static str, Option<Bound>>,
    baseline: IndexMap<&'static str, i64>,
    baseline_bound: Option<Bound>,
    end: IndexMap<&'static str, i64>,
    complete: bool,
    doubts: Vec<String>,
    ooms: Vec<Oom>,
}

#[derive(Serialize)]
struct Peak {
    bytes: i64,
    instant: u32,
    bound: Option<Bound>,
}

#[derive(Serialize)]
struct Oom {
    instant: u32,
    requested_bytes: u64,
    capacity_bytes: Option<u64>,
    /// Allocated and reserved memory when the request failed.
    allocated_bytes: i64,
    reserved_bytes: i64,
    text: String,
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
        devices: wanted.into_iter().map(|device| DeviceFigures::of(device, origin)).collect(),
    })
}

impl DeviceFigures {
    fn of(device: &Device<'_>, origin: i64) -> Self {
        let (track, history) = (device.track, device.history());
        let times = track.times();
        let time = |time: Option<&i64>| time.map_or(0, |time| time.saturating_sub(origin));
        let ooms: Vec<Oom> = OomMark::all(track).iter().map(Oom::of).collect();
        let mut doubts = notes::limits(&history.completeness, &history.start);
        doubts.extend(notes::anomalies(&history.anomalies));
        Self {
            device: device.id(),
            name: notes::device_name(device.id()),
            entries: history.entries(),
            allocations: history.allocations.len(),
            start_us: time(times.iter().min()),
            end_us: time(times.iter().max()),
            capacity_bytes: ooms.first().and_then(|oom| oom.capacity_bytes),
            has_reserved: !history.completeness.no_reserved,
            peak: Metric::ALL.map(|metric| (metric.name(), Peak::of(device, metric))).into(),
            bounds: Metric::ALL.map(|metric| (metric.name(), bound_then(&history.completeness, metric))).into(),
            baseline: counters(&history.start),
            baseline_bound: history.completeness.baseline_bound(),
            end: counters(&history.end),
            complete: history.completeness.is_complete(),
            doubts,
            ooms,
        }
    }
}

impl Peak {
    fn of(device: &Device<'_>, metric: Metric) -> Self {
        let history = device.history();
        let maximum = history.maxima[metric as usize];
        let is_early = maximum.instant == 0 && history.completeness.has_baseline;
        let bound = history.completeness.bound(metric).or(is_early.then_some(Bound::Lower));
        Self { bytes: maximum.bytes, instant: maximum.instant, bound }
    }
}

impl Oom {
    fn of(oom: &OomMark) -> Self {
        let free = oom.device_free.map_or(String::new(), |free| format!(", {} free on the device", Bytes(free)));
        Self {
            instant: oom.entry + 1,
            requested_bytes: oom.requested,
            capacity_bytes: oom.capacity(),
            allocated_bytes: oom.counters.allocated,
            reserved_bytes: oom.counters.reserved,
            text: format!("out of memory: {} requested{free}", Bytes(oom.requested)),
        }
    }
}

/// Which bound a metric's values at all recorded instants are: peaks may be before these, or between them.
fn bound_then(completeness: &Completeness, metric: Metric) -> Option<Bound> {
    let kept = Completeness { no_entries: false, overflowed: false, ring_full: false, sampled: false, ..*completeness };
    kept.bound(metric)
}

fn counters(counters: &Counters) -> IndexMap<&'static str, i64> {
    Metric::ALL.map(|metric| (metric.name(), counters.get(metric))).into()
}
