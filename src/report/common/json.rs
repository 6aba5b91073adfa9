//! The types of the JSON that memviz writes. Keys are stable: [`crate::wire::SCHEMA_VERSION`] changes when they do.
//!
//! Every value under a `_bytes` key is an exact number of bytes, and under `_us` of microseconds. Counters can be negative in
//! a recording that contradicts itself; its anomalies then say so. Each report has its own file; this one contains the shared
//! types.

use super::comparison::json::DeviceComparison;
use super::notes;
use super::rehearsed::RehearsalFacts;
use crate::analysis::peak::comparison::Comparison;
use crate::replay::{Anomalies, Counters, Maximum, Metric};
use crate::report::{Answer, Source};
use crate::wire::SCHEMA_VERSION;
use indexmap::IndexMap;
use serde::Serialize;
use std::borrow::Cow;

/// Defines an object of the JSON with the description, type and value of each key. `of` takes what the values are
/// computed from. Objects with `schema` are part of the schema.
macro_rules! keys {
    (schema $($object:tt)+) => {
        $crate::report::common::json::keys! { #[cfg_attr(test, derive(schemars::JsonSchema))] $($object)+ }
    };
    ($(#[$object:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? ($($from:ident: $source:ty),+ $(,)?) {
        $(let $pattern:pat = $local:expr;)*
        $($(#[$key_is:meta])* pub $key:ident: $type:ty = $value:expr,)+
    }) => {
        $(#[$object])*
        #[derive(Debug, serde::Serialize)]
        #[allow(clippy::struct_field_names, reason = "they are keys")]
        $vis struct $name $(<$life>)? {
            $($(#[$key_is])* pub $key: $type,)+
        }

        impl $(<$life>)? $name $(<$life>)? {
            $vis fn of($($from: $source),+) -> Self {
                $(let $pattern = $local;)*
                Self { $($key: $value,)+ }
            }
        }
    };
}
pub(crate) use keys;

/// The start of every answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Answer_{D}"))]
pub struct Head<'a, D> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: InputHead<'a>,
    /// The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the answer
    /// is not about peaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<DeviceComparison<'a>>,
    /// The answer, device by device.
    pub devices: Vec<D>,
}

impl<'a, D> Head<'a, D> {
    pub(crate) fn of<A: Answer>(source: Source<'a>, comparison: Option<&'a Comparison>, devices: Vec<D>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            command: A::COMMAND,
            input: InputHead::of(source),
            comparison: comparison.map(DeviceComparison::of),
            devices,
        }
    }
}

/// The file that an answer is about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InputHead<'a> {
    /// As the user named it.
    pub path: Cow<'a, str>,
    /// `cuda_snapshot`, `profiler_trace`, `memory_timeline` or `device_memory_profile`.
    pub format: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// Trace entries of all devices.
    pub entries: u64,
    /// Whether recording started with an empty allocator and nothing is missing.
    pub complete_history: bool,
    /// Contradictions on all devices.
    pub anomalies: AnomalyCounts,
    /// What was cut off or not understood.
    pub notes: Vec<String>,
    /// The rehearsal that recorded it. Left out for recordings from a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<RehearsalFacts>,
}

/// Contradictions.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnomalyCounts {
    /// The number of all contradictions.
    pub total: u64,
    /// By kind; kinds that did not occur are left out.
    pub kinds: IndexMap<&'static str, u64>,
}

impl AnomalyCounts {
    /// The sums over devices.
    pub(crate) fn of<'a>(devices: impl IntoIterator<Item = &'a Anomalies>) -> Self {
        let mut sums = Self::default();
        for anomalies in devices {
            sums.total += anomalies.total();
            for anomaly in anomalies.kinds() {
                *sums.kinds.entry(anomaly.kind.name()).or_default() += anomaly.count;
            }
        }
        sums
    }
}

impl<'a> InputHead<'a> {
    /// An answer's data about its input, with its own copy of the path.
    pub fn into_owned(self) -> InputHead<'static> {
        InputHead { path: Cow::Owned(self.path.into_owned()), ..self }
    }

    pub fn of(source: Source<'a>) -> Self {
        let recording = source.recording;
        Self {
            path: Cow::Borrowed(source.path),
            format: recording.snapshot.notes.format.name(),
            bytes: recording.bytes,
            entries: recording.histories.iter().map(|history| u64::from(history.entries())).sum(),
            complete_history: recording.is_complete(),
            anomalies: AnomalyCounts::of(recording.histories.iter().map(|history| &history.anomalies)),
            notes: notes::source(recording),
            rehearsal: recording.snapshot.notes.rehearsal.as_ref().map(RehearsalFacts::of),
        }
    }
}

/// The four counters.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CounterBytes {
    /// Bytes that callers requested, until the free completes.
    pub requested_bytes: i64,
    /// Blocks in use until their free is requested.
    pub allocated_bytes: i64,
    /// Blocks in use until their free completes.
    pub active_bytes: i64,
    /// Segments.
    pub reserved_bytes: i64,
}

impl From<&Counters> for CounterBytes {
    fn from(counters: &Counters) -> Self {
        Self {
            requested_bytes: counters.requested,
            allocated_bytes: counters.allocated,
            active_bytes: counters.active,
            reserved_bytes: counters.reserved,
        }
    }
}

impl From<&[Maximum; 4]> for CounterBytes {
    fn from(maxima: &[Maximum; 4]) -> Self {
        let bytes = |metric: Metric| maxima[metric as usize].bytes;
        Self {
            requested_bytes: bytes(Metric::Requested),
            allocated_bytes: bytes(Metric::Allocated),
            active_bytes: bytes(Metric::Active),
            reserved_bytes: bytes(Metric::Reserved),
        }
    }
}

/// An instant and the counters there.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeakInstant {
    /// Entry that leads to it, counted within the device's trace; null before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry since the epoch; null if the file has no times.
    pub time_us: Option<i64>,
    /// The counters.
    #[serde(flatten)]
    pub counters: CounterBytes,
    /// Open `record_function` ranges, outermost first.
    pub annotations: Vec<String>,
}
