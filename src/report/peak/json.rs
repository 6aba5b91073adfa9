//! The JSON of `memviz peak`.

use super::each::json::{EachRange, RangeRow};
use crate::analysis::check::Measured;
use crate::analysis::check::measure::maximum;
use crate::analysis::peak::{DevicePeak, PeakReport};
use crate::facts::grouping::attribution::Attribution;
use crate::replay::{Bound, History, Metric, OperatorUsage, Track};
use crate::report::Source;
use crate::report::common::json::{CounterBytes, Head, PeakInstant};
use crate::report::common::notes;
use indexmap::IndexMap;
use serde::Serialize;

/// `memviz peak`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeakDevice<'a> {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// The selected counter.
    pub metric: &'static str,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Numbers that are not exact: `baseline_bytes`, or a counter's maximum, as an `upper` or `lower` bound, or `unknown`. Left out
    /// when all are exact.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<String, Bound>,
    /// The part of the history that `peak`, `maxima` and `end` refer to, if it is not the whole history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The selected instant.
    pub peak: PeakInstant,
    /// Each counter's own maximum.
    pub maxima: CounterBytes,
    /// Counters at the end.
    pub end: CounterBytes,
    /// The groups that hold the memory.
    pub attribution: &'a Attribution,
    /// The kind of the ranges below. Left out unless `--each` requests ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<EachRange>,
    /// The peak of each step, phase or annotation, in the order of their starts, enclosing ones first. Left out unless
    /// `--each` requests them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Vec<RangeRow>>,
    /// Memory allocated in each operator over the whole recording, those that allocated the most themselves first. Left
    /// out unless rows are operators and the recording shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorRow>,
}

/// One device, and how certain its maxima are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredDevice<'a> {
    /// The output of `memviz peak`.
    #[serde(flatten)]
    pub peak: PeakDevice<'a>,
    /// Its maxima.
    pub certainty: Certainty,
}

/// Whether maxima are `exact` (since the recording started), a `lower` or `upper` bound, or `unknown`, as `memviz check`
/// judges them, considering all doubts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Certainty {
    /// The maximum of allocated.
    pub allocated_bytes: &'static str,
    /// The maximum of reserved.
    pub reserved_bytes: &'static str,
}

impl<'a> MeasuredDevice<'a> {
    /// A device, and its maxima of allocated and reserved bytes, as far as known.
    pub fn new(peak: &'a DevicePeak, allocated: &Measured, reserved: &Measured) -> Self {
        let word = |measured: &Measured| match (measured.at_least, measured.at_most) {
            _ if measured.value().is_some() => "exact",
            (Some(_), _) => "lower",
            (None, Some(_)) => "upper",
            (None, None) => "unknown",
        };
        let certainty = Certainty { allocated_bytes: word(allocated), reserved_bytes: word(reserved) };
        Self { peak: peak.into(), certainty }
    }
}

/// One operator, as in TensorBoard's memory view. Sums with its callees count a byte in every operator around it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperatorRow {
    /// The operator; `(no operator)` for events outside of operators.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Bytes allocated minus bytes freed, including its callees.
    pub size_increase_bytes: i64,
    /// The same without its callees.
    pub self_size_increase_bytes: i64,
    /// Allocations, including those of its callees.
    pub allocation_count: u64,
    /// The same without its callees.
    pub self_allocation_count: u64,
    /// Bytes allocated, including its callees.
    pub allocation_size_bytes: u64,
    /// The same without its callees.
    pub self_allocation_size_bytes: u64,
}

impl From<&OperatorUsage> for OperatorRow {
    fn from(operator: &OperatorUsage) -> Self {
        let usage = &operator.usage;
        Self {
            name: operator.name.clone(),
            calls: operator.calls,
            size_increase_bytes: usage.increase,
            self_size_increase_bytes: usage.self_increase,
            allocation_count: usage.allocations,
            self_allocation_count: usage.self_allocations,
            allocation_size_bytes: usage.allocated,
            self_allocation_size_bytes: usage.self_allocated,
        }
    }
}

/// A part of a history: from after one entry to after another; null for before the first entry.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Window {
    /// Entry before the window.
    pub from_entry: Option<u32>,
    /// Last entry of the window.
    pub to_entry: Option<u32>,
}

impl<'a> From<&'a DevicePeak> for PeakDevice<'a> {
    fn from(device: &'a DevicePeak) -> Self {
        Self {
            device: device.device,
            baseline_bytes: device.baseline.allocated,
            metric: device.metric.name(),
            complete_history: device.completeness.is_complete(),
            notes: notes::device(device),
            window: device.window.map(|(from, to)| Window {
                from_entry: History::entry_before(from),
                to_entry: History::entry_before(to),
            }),
            bounds: device.bounds(),
            peak: PeakInstant {
                entry: device.entry,
                time_us: device.time_us,
                counters: (&device.at).into(),
                annotations: device.annotations.clone(),
            },
            maxima: (&device.maxima).into(),
            end: (&device.end).into(),
            attribution: &device.attribution,
            each: device.ranges.as_ref().map(EachRange::from),
            ranges: device.ranges.as_ref().map(|ranges| ranges.ranges.iter().map(RangeRow::from).collect()),
            operators: device.operators.iter().map(OperatorRow::from).collect(),
        }
    }
}

/// The whole answer of `memviz peak`.
pub fn peak<'a>(source: Source<'a>, report: &'a PeakReport) -> Head<'a, MeasuredDevice<'a>> {
    let recording = source.recording;
    let devices = report.devices.iter().map(|device| {
        let history = recording.histories.iter().find(|history| history.device == device.device);
        let track = history.map(|history| Track::new(&recording.snapshot, history));
        let measured = |metric| track.map(|track| maximum(track, metric)).unwrap_or_default();
        MeasuredDevice::new(device, &measured(Metric::Allocated), &measured(Metric::Reserved))
    });
    Head::of::<PeakReport>(source, report.comparison.as_ref(), devices.collect())
}
