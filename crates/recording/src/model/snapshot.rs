//! A whole recording.

use super::profile::DeviceType;
use super::{
    AllocatorSettings, Annotation, Contexts, DeviceId, Holders, LoggedTensor, MemoryStats, Rehearsal, Segment,
    SourceFile, Stacks, Strings, TraceEntries, View,
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The kept history of one device: a range of rows of [`Snapshot::entries`], oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTrace {
    pub device: DeviceId,
    /// Rows of [`Snapshot::entries`].
    pub rows: Range<usize>,
    /// Whether the file ended inside this list: the newest entries are missing, so the final segments describe a later state
    /// than the last row.
    pub truncated: bool,
}

/// What `torch.cuda.memory._dump_snapshot` wrote, typed and interned.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub strings: Strings,
    pub stacks: Stacks,
    /// Every combination of stream, pool and metadata.
    pub contexts: Contexts,
    /// All trace entries. Those of one device are in consecutive rows.
    pub entries: TraceEntries,
    /// One trace for each device that has entries or segments, in the order of devices, host memory first.
    pub traces: Vec<DeviceTrace>,
    /// The segments of every device at dump time, including pinned host memory, sorted by device and address.
    pub segments: Vec<Segment>,
    /// `record_function` ranges, in the order recorded.
    pub annotations: Vec<Annotation>,
    pub settings: AllocatorSettings,
    /// What the reader noticed.
    pub notes: SourceNotes,
    /// How to present answers about it.
    pub view: View,
}

names! {
    /// What kind of file a recording comes from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Format {
        /// `torch.cuda.memory._dump_snapshot`.
        #[default]
        CudaSnapshot = "cuda_snapshot",
        /// `export_chrome_trace` of `torch.profiler` with `profile_memory=True`.
        ProfilerTrace = "profiler_trace",
        /// `export_memory_timeline` of `torch.profiler`.
        MemoryTimeline = "memory_timeline",
        /// `save_device_memory_profile` of `jax.profiler`.
        DeviceMemoryProfile = "device_memory_profile",
    }
}

impl Format {
    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::CudaSnapshot => "CUDA memory snapshot",
            Self::ProfilerTrace => "profiler trace",
            Self::MemoryTimeline => "memory timeline",
            Self::DeviceMemoryProfile => "JAX device memory profile",
        }
    }

    /// Whether it contains one instant only, without a history.
    pub fn is_one_instant(self) -> bool {
        self == Self::DeviceMemoryProfile
    }

    /// Whether segments, streams, pools and allocator settings are recorded.
    pub fn has_segments(self) -> bool {
        self == Self::CudaSnapshot
    }
}

/// What the reader noticed: facts about the file rather than about memory.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each shown on its own")]
pub struct SourceNotes {
    pub format: Format,
    /// Bytes read (after decompression).
    pub bytes: u64,
    /// Pickle protocol; `None` for JSON.
    pub protocol: Option<u8>,
    /// Byte offset at which the file ended early, when it was read with `allow_truncated`.
    pub truncated_at: Option<u64>,
    /// Whether the cut was inside the list of segments, so that the final state is only partly known.
    pub segments_truncated: bool,
    /// Whether entries carry times. PyTorch before 2.3 writes none; the time column then holds entry indexes.
    pub has_times: bool,
    /// `trace_alloc_overflowed`, if the file has it: whether the ring buffer dropped entries.
    pub trace_overflowed: Option<bool>,
    /// `trace_alloc_max_entries`, if the file has it: how many entries, of all actions, the ring buffer of a device can
    /// contain.
    pub ring_capacity: Option<u64>,
    /// Lines of `forward_frames` that memviz could not parse and left out.
    pub unread_forward_lines: u64,
    /// Frames without a file, line or name, which PyTorch always writes.
    pub frames_in_part: u64,
    /// Whether the recording is inside a page of `_memory_viz.py trace_plot`, whose option `-f` leaves out every block that
    /// was allocated and freed again.
    pub in_page: bool,
    /// Whether more data follows the recording, for example an appended second dump.
    pub followed: bool,
    /// Values that are missing or have another type than PyTorch writes, and were ignored: where, and what was expected.
    pub malformed: Vec<String>,
    /// Keys that this version does not know, such as `segment.color`, with the number of times each occurs.
    pub unknown_keys: IndexMap<String, u64>,
    /// Actions that this version does not know, with the number of entries of each.
    pub unknown_actions: IndexMap<String, u64>,
    /// Events of a profiler trace that were left out, by reason, with the number of each.
    pub left_out: IndexMap<String, u64>,
    /// How many of the left-out events concern memory.
    pub memory_left_out: u64,
    /// Whether the times of a profiler trace are whole microseconds, as before PyTorch 2.4: an event at the boundary of two
    /// operators may then be attributed to the wrong one.
    pub coarse_times: bool,
    /// Whether the memory events of a profiler trace have no running totals, as before PyTorch 1.11: the memory from before
    /// the trace is then unknown, and so is the reserved memory.
    pub no_totals: bool,
    /// Whether they have no addresses, as before PyTorch 1.11: a free can then be matched to a block only by its size.
    pub no_addresses: bool,
    /// Whether a profiler trace shows work on a GPU: kernels, copies or fills.
    pub runs_on_gpu: bool,
    /// The type of devices in a profiler trace, besides the CPU.
    pub device_type: Option<DeviceType>,
    /// Memory of each GPU in bytes, if a profiler trace contains it: `totalGlobalMem`.
    pub device_memory: Vec<(DeviceId, u64)>,
    /// The file that contains it, if it is another one: a trace next to the recording.
    pub device_memory_from: Option<String>,
    pub device_names: Vec<(DeviceId, String)>,
    /// Whether the file contains only the list of segments, as `torch.cuda.memory_snapshot()` returns it: a state without a
    /// history.
    pub segments_only: bool,
    /// Rank and world size of a distributed run, if a profiler trace has them (`distributedInfo`).
    pub rank: Option<(u64, Option<u64>)>,
    /// What the rehearsal says about itself, if the recording was made without a GPU.
    pub rehearsal: Option<Rehearsal>,
    /// What holds the memory, if the recording says so.
    pub holders: Option<Holders>,
    /// What PyTorch itself counted, if the recording says so.
    pub memory_stats: Option<MemoryStats>,
    /// Source code in the recording, by torch-snapkit.
    pub source_code: Vec<SourceFile>,
    /// Tensors that torch-snapkit logged.
    pub tensors: Vec<LoggedTensor>,
}

impl Snapshot {
    /// Whether work ran on a GPU, but none of its memory was recorded: caching was off, or another allocator served it.
    pub fn lacks_gpu_memory(&self) -> bool {
        self.notes.runs_on_gpu && self.traces.iter().all(|trace| trace.device < 0)
    }

    pub fn trace(&self, device: DeviceId) -> Option<&DeviceTrace> {
        self.traces.iter().find(|trace| trace.device == device)
    }

    /// The time of the first entry of any device, in microseconds: answers count time from here.
    pub fn first_time(&self) -> Option<i64> {
        let times = self.entries.times();
        let first = |trace: &DeviceTrace| times.get(trace.rows.clone())?.first().copied();
        self.traces.iter().filter_map(first).min()
    }

    pub fn last_time(&self) -> Option<i64> {
        let times = self.entries.times();
        let last = |trace: &DeviceTrace| times.get(trace.rows.clone())?.last().copied();
        self.traces.iter().filter_map(last).max()
    }

    /// Whether PyTorch 2.0 wrote it: no segment has a pool, which all later releases write, and there are neither times nor
    /// settings, which releases since 2.3 write.
    pub fn is_of_2_0(&self) -> bool {
        let has_times = self.notes.has_times && !self.entries.is_empty();
        let is_later = has_times || self.settings.recorded;
        let has_pools = || self.segments.iter().any(|segment| segment.pool.is_some());
        self.notes.format == Format::CudaSnapshot && !is_later && !has_pools()
    }

    pub fn segments_of(&self, device: DeviceId) -> &[Segment] {
        let start = self.segments.partition_point(|segment| segment.device < device);
        let end = self.segments.partition_point(|segment| segment.device <= device);
        &self.segments[start..end]
    }
}
