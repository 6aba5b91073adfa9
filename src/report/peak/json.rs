//! The JSON of `memviz peak`.

use super::each::json::{EachRange, RangeRow};
use crate::analysis::check::Measured;
use crate::analysis::check::measure::maximum;
use crate::analysis::peak::{DevicePeak, PeakReport};
use crate::facts::grouping::attribution::Attribution;
use crate::replay::{Bound, History, Metric, OperatorUsage, Track};
use crate::report::Source;
use crate::report::common::json::{CounterBytes, Head, PeakInstant, keys};
use crate::report::common::notes;
use indexmap::IndexMap;
use serde::Serialize;

keys! { schema
    /// `memviz peak`, one device.
    pub struct PeakDevice<'a>(device: &'a DevicePeak) {
        /// Device, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = device.device,
        /// Allocated before the first kept entry.
        pub baseline_bytes: i64 = device.baseline.allocated,
        /// The selected counter.
        pub metric: &'static str = device.metric.name(),
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = notes::device(device),
        /// Numbers that are not exact: `baseline_bytes`, or a counter's maximum, as an `upper` or `lower` bound, or `unknown`. Left out
        /// when all are exact.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub bounds: IndexMap<String, Bound> = device.bounds(),
        /// The part of the history that `peak`, `maxima` and `end` refer to, if it is not the whole history.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub window: Option<Window> = device.window.map(|(from, to)| Window {
            from_entry: History::entry_before(from),
            to_entry: History::entry_before(to),
        }),
        /// The selected instant.
        pub peak: PeakInstant = PeakInstant {
            entry: device.entry,
            time_us: device.time_us,
            counters: (&device.at).into(),
            annotations: device.annotations.clone(),
        },
        /// Each counter's own maximum.
        pub maxima: CounterBytes = (&device.maxima).into(),
        /// Counters at the end.
        pub end: CounterBytes = (&device.end).into(),
        /// The groups that hold the memory.
        pub attribution: &'a Attribution = &device.attribution,
        /// The kind of the ranges below. Left out unless `--each` requests ranges.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub each: Option<EachRange> = device.ranges.as_ref().map(EachRange::of),
        /// The peak of each step, phase or annotation, in the order of their starts, enclosing ones first. Left out unless
        /// `--each` requests them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ranges: Option<Vec<RangeRow>> =
            device.ranges.as_ref().map(|ranges| ranges.ranges.iter().map(RangeRow::of).collect()),
        /// Memory allocated in each operator over the whole recording, those that allocated the most themselves first. Left
        /// out unless rows are operators and the recording shows them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub operators: Vec<OperatorRow> = device.operators.iter().map(OperatorRow::of).collect(),
    }
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
        Self { peak: PeakDevice::of(peak), certainty }
    }
}

keys! { schema
    /// One operator, as in TensorBoard's memory view. Sums with its callees count a byte in every operator around it.
    pub struct OperatorRow(operator: &OperatorUsage) {
        let usage = &operator.usage;
        /// The operator; `(no operator)` for events outside of operators.
        pub name: String = operator.name.clone(),
        /// Number of calls.
        pub calls: u64 = operator.calls,
        /// Bytes allocated minus bytes freed, including its callees.
        pub size_increase_bytes: i64 = usage.increase,
        /// The same without its callees.
        pub self_size_increase_bytes: i64 = usage.self_increase,
        /// Allocations, including those of its callees.
        pub allocation_count: u64 = usage.allocations,
        /// The same without its callees.
        pub self_allocation_count: u64 = usage.self_allocations,
        /// Bytes allocated, including its callees.
        pub allocation_size_bytes: u64 = usage.allocated,
        /// The same without its callees.
        pub self_allocation_size_bytes: u64 = usage.self_allocated,
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
