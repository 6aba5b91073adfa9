//! The JSON that memviz writes, as types. Keys are stable: [`SCHEMA_VERSION`] changes when they do.
//!
//! Every value under a `_bytes` key is an exact number of bytes, under `_us` of microseconds. Counters can be negative
//! in a recording that contradicts itself; its anomalies then say so.

use super::{Source, notes};
use crate::analysis::{Attribution, DeviceInfo, DevicePeak, GroupBy, InfoReport, PeakReport};
use crate::model::{Action, AllocatorSettings};
use crate::replay::{Anomalies, Counters, History, Maximum, Metric};
use indexmap::IndexMap;
use serde::Serialize;

/// Version of the keys.
pub const SCHEMA_VERSION: u32 = 1;

/// What every answer starts with.
#[derive(Debug, Serialize)]
pub struct Head<'a, D> {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: InputHead<'a>,
    /// The answer, device by device.
    pub devices: Vec<D>,
}

/// The file an answer is about.
#[derive(Debug, Serialize)]
pub struct InputHead<'a> {
    /// As the user named it.
    pub path: &'a str,
    /// `cuda_snapshot`.
    pub format: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// Trace entries of all devices.
    pub entries: u64,
    /// Whether recording started with an empty allocator and nothing is missing.
    pub complete_history: bool,
    /// Contradictions of all devices.
    pub anomalies: AnomalyCounts,
    /// What was cut off or not understood.
    pub notes: Vec<String>,
}

/// Contradictions.
#[derive(Debug, Default, Serialize)]
pub struct AnomalyCounts {
    /// Of all kinds.
    pub total: u64,
    /// By kind; kinds that did not occur are left out.
    pub kinds: IndexMap<&'static str, u64>,
}

impl AnomalyCounts {
    fn add(&mut self, anomalies: &Anomalies) {
        self.total += anomalies.total();
        for anomaly in anomalies.kinds() {
            *self.kinds.entry(anomaly.kind.name()).or_default() += anomaly.count;
        }
    }
}

impl<'a> InputHead<'a> {
    fn of(source: Source<'a>) -> Self {
        let recording = source.recording;
        let mut anomalies = AnomalyCounts::default();
        for history in &recording.histories {
            anomalies.add(&history.anomalies);
        }
        Self {
            path: source.path,
            format: "cuda_snapshot",
            bytes: recording.bytes,
            entries: recording.histories.iter().map(|history| u64::from(history.entries())).sum(),
            complete_history: recording.is_complete(),
            anomalies,
            notes: notes::source(&recording.snapshot),
        }
    }
}

/// The four counters.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CounterBytes {
    /// See [`Counters::requested`].
    pub requested_bytes: i64,
    /// See [`Counters::allocated`].
    pub allocated_bytes: i64,
    /// See [`Counters::active`].
    pub active_bytes: i64,
    /// See [`Counters::reserved`].
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

/// `memviz peak`, one device.
#[derive(Debug, Serialize)]
pub struct PeakDevice {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// The counter looked at.
    pub metric: &'static str,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Numbers that are not exact: `baseline_bytes`, or a counter's maximum, as an `upper` or `lower` bound. Left out
    /// when all are exact.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<String, &'static str>,
    /// The part of the history that `peak`, `maxima` and `end` are about, when it is not the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The instant looked at.
    pub peak: PeakInstant,
    /// Each counter's own maximum.
    pub maxima: CounterBytes,
    /// Counters at the end.
    pub end: CounterBytes,
    /// Who holds the memory.
    pub attribution: AttributionRows,
}

/// A part of a history: from after one entry to after another; null for before the first entry.
#[derive(Debug, Serialize)]
pub struct Window {
    /// Entry before the window.
    pub from_entry: Option<u32>,
    /// Last entry of the window.
    pub to_entry: Option<u32>,
}

/// An instant and the counters there.
#[derive(Debug, Serialize)]
pub struct PeakInstant {
    /// Entry that leads to it, counted within the device's trace; null before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry since the epoch; null where the file has no times.
    pub time_us: Option<i64>,
    /// The counters.
    #[serde(flatten)]
    pub counters: CounterBytes,
    /// Open `record_function` ranges, outermost first.
    pub annotations: Vec<String>,
}

/// Rows of an attribution.
#[derive(Debug, Serialize)]
pub struct AttributionRows {
    /// What rows stand for.
    pub by: GroupBy,
    /// Bytes of the metric at the instant. Rows sum to it, unless they are inclusive.
    pub total_bytes: u64,
    /// Whether rows overlap.
    pub inclusive: bool,
    /// Groups, largest first.
    pub rows: Vec<AttributionRow>,
}

/// One group.
#[derive(Debug, Serialize)]
pub struct AttributionRow {
    /// The group.
    pub label: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether the label is inferred.
    pub inferred: bool,
    /// The stack with most bytes in the group, innermost frame first.
    pub stack: Vec<String>,
}

impl From<&Attribution> for AttributionRows {
    fn from(attribution: &Attribution) -> Self {
        let rows = attribution.rows.iter().map(|row| AttributionRow {
            label: row.label.clone(),
            bytes: row.bytes,
            blocks: row.blocks,
            inferred: row.inferred,
            stack: row.stack.clone(),
        });
        Self {
            by: attribution.by,
            total_bytes: attribution.total_bytes,
            inclusive: attribution.by.is_inclusive(),
            rows: rows.collect(),
        }
    }
}

impl From<&DevicePeak> for PeakDevice {
    fn from(device: &DevicePeak) -> Self {
        let early = |metric: Metric| notes::is_early(device, metric).then_some("lower");
        let bound = |metric: Metric| {
            let bound = notes::bound(&device.completeness, metric).or_else(|| early(metric))?;
            Some((format!("{}_bytes", metric.name()), bound))
        };
        let completeness = &device.completeness;
        let uncertain = completeness.baseline_uncertain_bytes > 0
            || completeness.unrecorded_frees
            || completeness.overflowed
            || (completeness.truncated && completeness.has_baseline);
        let baseline = uncertain.then(|| ("baseline_bytes".to_owned(), "lower"));
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
            bounds: baseline.into_iter().chain(Metric::ALL.into_iter().filter_map(bound)).collect(),
            peak: PeakInstant {
                entry: device.entry,
                time_us: device.time_us,
                counters: (&device.at).into(),
                annotations: device.annotations.clone(),
            },
            maxima: (&device.maxima).into(),
            end: (&device.end).into(),
            attribution: (&device.attribution).into(),
        }
    }
}

/// The whole answer of `memviz peak`.
pub fn peak<'a>(source: Source<'a>, report: &PeakReport) -> Head<'a, PeakDevice> {
    Head {
        schema_version: SCHEMA_VERSION,
        command: "peak",
        input: InputHead::of(source),
        devices: report.devices.iter().map(PeakDevice::from).collect(),
    }
}

/// `memviz info`: the head with what concerns the file as a whole.
#[derive(Debug, Serialize)]
pub struct Info<'a> {
    /// Head and devices.
    #[serde(flatten)]
    pub head: Head<'a, InfoDevice>,
    /// gzip, zstd, zip or plain.
    pub compression: &'static str,
    /// Pickle protocol.
    pub pickle_protocol: u8,
    /// Bytes after decompression.
    pub decompressed_bytes: u64,
    /// Distinct stacks.
    pub stacks: usize,
    /// Distinct frames.
    pub frames: usize,
    /// Allocator settings; null where the file has none.
    pub settings: Option<Settings>,
    /// Annotations by name.
    pub annotations: Vec<AnnotationCount>,
    /// Keys that were not understood, with how often each occurs.
    pub unknown_keys: IndexMap<String, u64>,
    /// Actions that were not understood, with how often each occurs.
    pub unknown_actions: IndexMap<String, u64>,
}

/// `memviz info`, one device.
#[derive(Debug, Serialize)]
pub struct InfoDevice {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Trace entries.
    pub entries: u32,
    /// Trace entries by action; actions that do not occur are left out.
    pub actions: IndexMap<&'static str, u64>,
    /// Time of the first entry since the epoch.
    pub first_time_us: Option<i64>,
    /// Time of the last entry since the epoch.
    pub last_time_us: Option<i64>,
    /// Segments at the dump.
    pub segments: usize,
    /// Blocks at the dump.
    pub blocks: usize,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Contradictions.
    pub anomalies: AnomalyCounts,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Counters before the first kept entry.
    pub baseline: CounterBytes,
    /// Each counter's own maximum.
    pub maxima: CounterBytes,
    /// Counters at the end.
    pub end: CounterBytes,
}

/// Allocator settings.
#[derive(Debug, Serialize)]
pub struct Settings {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Blocks of at least this size are not split; null for no limit.
    pub max_split_size_bytes: Option<u64>,
    /// Whether segments grow in place.
    pub expandable_segments: bool,
    /// 0 when off.
    pub garbage_collection_threshold: f64,
    /// Divisions for sizes of 1, 2, 4, ... 32768 MiB.
    pub roundup_power2_divisions: [u64; 16],
    /// Every other setting as text.
    pub other: IndexMap<String, String>,
}

/// Annotations of one name.
#[derive(Debug, Serialize)]
pub struct AnnotationCount {
    /// The name.
    pub name: String,
    /// Ranges.
    pub count: u64,
    /// Time of those with both ends.
    pub total_us: i64,
    /// Those without.
    pub open: u64,
}

impl From<&AllocatorSettings> for Settings {
    fn from(settings: &AllocatorSettings) -> Self {
        Self {
            alloc_conf: settings.alloc_conf.clone(),
            max_split_size_bytes: settings.max_split_size,
            expandable_segments: settings.expandable_segments,
            garbage_collection_threshold: settings.garbage_collection_threshold,
            roundup_power2_divisions: settings.roundup_power2_divisions,
            other: settings.other.iter().cloned().collect(),
        }
    }
}

impl From<&DeviceInfo> for InfoDevice {
    fn from(device: &DeviceInfo) -> Self {
        let mut anomalies = AnomalyCounts::default();
        anomalies.add(&device.anomalies);
        let counts = Action::ALL.iter().map(|action| action.name()).zip(device.actions);
        Self {
            device: device.device,
            entries: device.entries,
            actions: counts.filter(|&(_, count)| count > 0).collect(),
            first_time_us: device.time_us.map(|(first, _)| first),
            last_time_us: device.time_us.map(|(_, last)| last),
            segments: device.segments,
            blocks: device.blocks,
            complete_history: device.completeness.is_complete(),
            notes: notes::limits(&device.completeness, &device.baseline),
            anomalies,
            baseline_bytes: device.baseline.allocated,
            baseline: (&device.baseline).into(),
            maxima: (&device.maxima).into(),
            end: (&device.end).into(),
        }
    }
}

/// The whole answer of `memviz info`.
pub fn info<'a>(source: Source<'a>, report: &InfoReport) -> Info<'a> {
    let recording = source.recording;
    let notes = &recording.snapshot.notes;
    let settings = &recording.snapshot.settings;
    let annotations = report.annotations.iter().map(|summary| AnnotationCount {
        name: summary.name.clone(),
        count: summary.count,
        total_us: summary.total_us,
        open: summary.open,
    });
    Info {
        head: Head {
            schema_version: SCHEMA_VERSION,
            command: "info",
            input: InputHead::of(source),
            devices: report.devices.iter().map(InfoDevice::from).collect(),
        },
        compression: recording.compression.name(),
        pickle_protocol: notes.protocol,
        decompressed_bytes: notes.bytes,
        stacks: report.stacks,
        frames: report.frames,
        settings: settings.recorded.then(|| settings.into()),
        annotations: annotations.collect(),
        unknown_keys: notes.unknown_keys.clone(),
        unknown_actions: notes.unknown_actions.clone(),
    }
}
