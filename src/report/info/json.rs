//! The JSON of `memviz info`.

use crate::analysis::info::{AnnotationSummary, DeviceInfo, InfoReport};
use crate::facts::training::PhaseSummary;
use crate::facts::training::steps::Steps;
use crate::model::{Action, AllocatorSettings};
use crate::report::Source;
use crate::report::common::json::{AnomalyCounts, CounterBytes, Head};
use crate::report::common::notes;
use crate::report::leaks::json::{StepSourceName, step_source};
use indexmap::IndexMap;
use serde::Serialize;

/// `memviz info`: the head, with data about the whole file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Info<'a> {
    /// Head and devices.
    #[serde(flatten)]
    pub head: Head<'a, InfoDevice<'a>>,
    /// gzip, zstd, zip or plain.
    pub compression: &'static str,
    /// Pickle protocol; null for JSON.
    pub pickle_protocol: Option<u8>,
    /// Rank of the process, if a profiler trace names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Number of ranks, if a profiler trace names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// Bytes after decompression.
    pub decompressed_bytes: u64,
    /// Distinct stacks.
    pub stacks: usize,
    /// Distinct frames.
    pub frames: usize,
    /// Entries that the ring buffer of a device can contain (`trace_alloc_max_entries`); left out if the file does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_capacity_entries: Option<u64>,
    /// Whether the file says that it dropped entries (`trace_alloc_overflowed`); left out if the file does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_overflowed: Option<bool>,
    /// Allocator settings; null if the file has none.
    pub settings: Option<Settings>,
    /// Annotations by name.
    pub annotations: &'a [AnnotationSummary],
    /// Keys that were not understood, with how often each occurs.
    pub unknown_keys: &'a IndexMap<String, u64>,
    /// Actions that were not understood, with how often each occurs.
    pub unknown_actions: &'a IndexMap<String, u64>,
}

/// `memviz info`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InfoDevice<'a> {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// Trace entries.
    pub entries: u32,
    /// Trace entries by action; actions that do not occur are left out.
    pub actions: IndexMap<&'static str, u64>,
    /// Time of the first entry since the epoch.
    pub first_time_us: Option<i64>,
    /// Time of the last entry since the epoch.
    pub last_time_us: Option<i64>,
    /// Segments at dump time.
    pub segments: usize,
    /// Blocks at dump time.
    pub blocks: usize,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Steps of the program; null if none were found.
    pub steps: Option<usize>,
    /// How they were found; null if they were not.
    pub step_source: Option<StepSourceName>,
    /// Name of the annotations, or site, that marks them.
    pub step_name: Option<String>,
    /// The phases of its steps that occur.
    pub phases: &'a [PhaseSummary],
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Blocks of at least this size are not split; null for no limit.
    pub max_split_size_bytes: Option<u64>,
    /// Whether segments grow in place.
    pub expandable_segments: bool,
    /// 0 if it is off.
    pub garbage_collection_threshold: f64,
    /// Divisions for sizes of 1, 2, 4, ... 32768 MiB.
    pub roundup_power2_divisions: [u64; 16],
    /// `large_segment_size_mb`; left out if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_segment_size_bytes: Option<u64>,
    /// `max_non_split_rounding_mb`; left out if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_non_split_rounding_bytes: Option<u64>,
    /// `per_process_memory_fraction`; left out if it is not set in the string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_process_memory_fraction: Option<f64>,
    /// Every other setting as text.
    pub other: IndexMap<String, String>,
    /// Settings without the effect that they seem to have, in words.
    pub warnings: Vec<String>,
}

impl From<&AllocatorSettings> for Settings {
    fn from(settings: &AllocatorSettings) -> Self {
        Self {
            alloc_conf: settings.alloc_conf.clone(),
            max_split_size_bytes: settings.max_split_size,
            expandable_segments: settings.expandable_segments,
            garbage_collection_threshold: settings.garbage_collection_threshold,
            roundup_power2_divisions: settings.roundup_power2_divisions,
            large_segment_size_bytes: settings.large_segment_size,
            max_non_split_rounding_bytes: settings.max_non_split_rounding,
            per_process_memory_fraction: settings.memory_fraction,
            other: settings.other.iter().cloned().collect(),
            warnings: notes::settings_warnings(settings),
        }
    }
}

impl<'a> From<&'a DeviceInfo> for InfoDevice<'a> {
    fn from(device: &'a DeviceInfo) -> Self {
        let mut anomalies = AnomalyCounts::default();
        anomalies.add(&device.anomalies);
        let (step_source, step_name) = step_source(&device.steps);
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
            steps: device.steps.as_ref().ok().map(Steps::len),
            step_source,
            step_name,
            phases: &device.phases,
            anomalies,
            baseline_bytes: device.baseline.allocated,
            baseline: (&device.baseline).into(),
            maxima: (&device.maxima).into(),
            end: (&device.end).into(),
        }
    }
}

/// The whole answer of `memviz info`.
pub fn info<'a>(source: Source<'a>, report: &'a InfoReport) -> Info<'a> {
    let recording = source.recording;
    let notes = &recording.snapshot.notes;
    let settings = &recording.snapshot.settings;
    Info {
        head: Head::of::<InfoReport>(source, None, report.devices.iter().map(InfoDevice::from).collect()),
        compression: recording.compression.name(),
        pickle_protocol: notes.format.has_segments().then_some(notes.protocol),
        rank: notes.rank.map(|(rank, _)| rank),
        world_size: notes.rank.and_then(|(_, world_size)| world_size),
        decompressed_bytes: notes.bytes,
        stacks: report.stacks,
        frames: report.frames,
        ring_capacity_entries: notes.ring_capacity,
        ring_overflowed: notes.trace_overflowed,
        settings: settings.recorded.then(|| settings.into()),
        annotations: &report.annotations,
        unknown_keys: &notes.unknown_keys,
        unknown_actions: &notes.unknown_actions,
    }
}
