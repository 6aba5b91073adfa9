//! The JSON of `memviz info`.

use crate::analysis::info::{AnnotationSummary, DeviceInfo, InfoReport};
use crate::facts::device_kind::DeviceKind;
use crate::facts::training::PhaseSummary;
use crate::facts::training::steps::Steps;
use crate::model::{Action, AllocatorSettings};
use crate::replay::ComparedCounter;
use crate::report::Source;
use crate::report::common::json::{AnomalyCounts, CounterBytes, Head, keys};
use crate::report::common::notes;
use crate::report::leaks::json::{StepSourceName, step_source};
use indexmap::IndexMap;

keys! { schema
    /// `memviz info`: the head, with data about the whole file.
    pub struct Info<'a>(source: Source<'a>, report: &'a InfoReport) {
        let recording = source.recording;
        let notes = &recording.snapshot.notes;
        let settings = &recording.snapshot.settings;
        /// Head and devices.
        #[serde(flatten)]
        pub head: Head<'a, InfoDevice<'a>> =
            Head::of::<InfoReport>(source, None, report.devices.iter().map(InfoDevice::of).collect()),
        /// gzip, zstd, zip or plain.
        pub compression: &'static str = recording.compression.name(),
        /// Pickle protocol; null for JSON.
        pub pickle_protocol: Option<u8> = notes.protocol,
        /// The kind of device: cuda, rocm, xpu or ascend; null if nothing in the file shows it.
        pub device_kind: Option<DeviceKind> = report.device_kind.as_ref().map(|(kind, _)| *kind),
        /// What shows the kind of device; null if nothing does.
        pub device_kind_evidence: Option<&'a str> = report.device_kind.as_ref().map(|(_, evidence)| evidence.as_str()),
        /// Rank of the process, if a profiler trace names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rank: Option<u64> = notes.rank.map(|(rank, _)| rank),
        /// Number of ranks, if a profiler trace names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub world_size: Option<u64> = notes.rank.and_then(|(_, world_size)| world_size),
        /// Bytes after decompression.
        pub decompressed_bytes: u64 = notes.bytes,
        /// Distinct stacks.
        pub stacks: usize = report.stacks,
        /// Distinct frames.
        pub frames: usize = report.frames,
        /// Entries that the ring buffer of a device can contain (`trace_alloc_max_entries`); left out if the file does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ring_capacity_entries: Option<u64> = notes.ring_capacity,
        /// Whether the file says that it dropped entries (`trace_alloc_overflowed`); left out if the file does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ring_overflowed: Option<bool> = notes.trace_overflowed,
        /// Allocator settings; null if the file has none.
        pub settings: Option<Settings> = settings.recorded.then(|| Settings::of(settings)),
        /// Annotations by name.
        pub annotations: &'a [AnnotationSummary] = &report.annotations,
        /// Keys that were not understood, with how often each occurs.
        pub unknown_keys: &'a IndexMap<String, u64> = &notes.unknown_keys,
        /// Actions that were not understood, with how often each occurs.
        pub unknown_actions: &'a IndexMap<String, u64> = &notes.unknown_actions,
    }
}

keys! { schema
    /// `memviz info`, one device.
    pub struct InfoDevice<'a>(device: &'a DeviceInfo) {
        let (source, name) = step_source(&device.steps);
        let counts = Action::ALL.iter().map(|action| action.name()).zip(device.actions);
        /// Device, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = device.device,
        /// Trace entries.
        pub entries: u32 = device.entries,
        /// Trace entries by action; actions that do not occur are left out.
        pub actions: IndexMap<&'static str, u64> = counts.filter(|&(_, count)| count > 0).collect(),
        /// Time of the first entry since the epoch.
        pub first_time_us: Option<i64> = device.time_us.map(|(first, _)| first),
        /// Time of the last entry since the epoch.
        pub last_time_us: Option<i64> = device.time_us.map(|(_, last)| last),
        /// Segments at dump time.
        pub segments: usize = device.segments,
        /// Blocks at dump time.
        pub blocks: usize = device.blocks,
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = notes::limits(&device.completeness, &device.baseline),
        /// Steps of the program; null if none were found.
        pub steps: Option<usize> = device.steps.as_ref().ok().map(Steps::len),
        /// How they were found; null if they were not.
        pub step_source: Option<StepSourceName> = source,
        /// Name of the annotations, or site, that marks them.
        pub step_name: Option<String> = name,
        /// The phases of its steps that occur.
        pub phases: &'a [PhaseSummary] = &device.phases,
        /// Contradictions.
        pub anomalies: AnomalyCounts = AnomalyCounts::of([&device.anomalies]),
        /// Allocated before the first kept entry.
        pub baseline_bytes: i64 = device.baseline.allocated,
        /// Counters before the first kept entry.
        pub baseline: CounterBytes = (&device.baseline).into(),
        /// Each counter's own maximum.
        pub maxima: CounterBytes = (&device.maxima).into(),
        /// Counters at the end.
        pub end: CounterBytes = (&device.end).into(),
        /// PyTorch's own counters beside the replayed ones; left out if the file does not contain them.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        pub memory_stats: &'a [ComparedCounter] = &device.counted,
    }
}

keys! { schema
    /// Allocator settings.
    pub struct Settings(settings: &AllocatorSettings) {
        /// `PYTORCH_CUDA_ALLOC_CONF`.
        pub alloc_conf: String = settings.alloc_conf.clone(),
        /// Blocks of at least this size are not split; null for no limit.
        pub max_split_size_bytes: Option<u64> = settings.max_split_size,
        /// Whether segments grow in place.
        pub expandable_segments: bool = settings.expandable_segments,
        /// 0 if it is off.
        pub garbage_collection_threshold: f64 = settings.garbage_collection_threshold,
        /// Divisions for sizes of 1, 2, 4, ... 32768 MiB.
        pub roundup_power2_divisions: [u64; 16] = settings.roundup_power2_divisions,
        /// `large_segment_size_mb`; left out if it is not set.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub large_segment_size_bytes: Option<u64> = settings.large_segment_size,
        /// `max_non_split_rounding_mb`; left out if it is not set.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_non_split_rounding_bytes: Option<u64> = settings.max_non_split_rounding,
        /// `per_process_memory_fraction`; left out if it is not set in the string.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub per_process_memory_fraction: Option<f64> = settings.memory_fraction,
        /// Every other setting as text.
        pub other: IndexMap<String, String> = settings.other.iter().cloned().collect(),
        /// Settings without the effect that they seem to have, in words.
        pub warnings: Vec<String> = notes::settings_warnings(settings),
    }
}
