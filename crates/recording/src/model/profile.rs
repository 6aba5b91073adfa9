//! What a profiler trace says about memory: the events kept from `export_chrome_trace`, and the sums of
//! `export_memory_timeline`.

use super::{DeviceId, SourceNotes, StrId, Strings};

/// A trace of `torch.profiler` with `profile_memory=True`, reduced to what memory needs.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Names of operators, annotations, modules and Python functions, as recorded.
    pub strings: Strings,
    /// Threads with their spans, in order of first appearance.
    pub threads: Vec<ProfileThread>,
    /// `[memory]` and `[OutOfMemory]` events in the order of the file, which is not chronological.
    pub memory: Vec<MemoryEvent>,
    /// Autograd sequence numbers that spans refer to.
    pub sequences: Vec<Sequence>,
    /// Nanoseconds between the epoch and time zero of the trace (`baseTimeNanoseconds`); 0 before PyTorch 2.4.
    pub base_time_ns: i64,
    /// What the reader noticed.
    pub notes: SourceNotes,
}

/// The spans of one thread.
#[derive(Clone, Debug, Default)]
pub struct ProfileThread {
    /// `pid` and `tid` as recorded.
    pub id: (i64, i64),
    pub spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A Python function or a call of an `nn.Module` (`python_function`).
    Python,
    /// A `record_function` range (`user_annotation`).
    Annotation,
    /// An operator or autograd node (`cpu_op`).
    Operator,
}

/// An operation that lasted for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start in nanoseconds since time zero of the trace.
    pub start_ns: i64,
    /// End, not before the start.
    pub end_ns: i64,
    pub name: StrId,
    /// The `TorchScript` modules around it, as recorded: `TOP(Net)::forward.fc(Linear)::forward.`; empty if there are none.
    pub modules: StrId,
    pub kind: SpanKind,
    /// Index into [`Profile::sequences`]; [`Span::NO_SEQUENCE`] if it has none.
    pub sequence: u32,
}

impl Span {
    /// The index that means no sequence number.
    pub const NO_SEQUENCE: u32 = u32::MAX;
}

/// Autograd's link between a forward operator and the backward node that it created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// `Sequence number`, counted by the thread that ran the forward operator.
    pub number: u64,
    /// `Fwd thread id`: 0 for forward operators; for backward operators, the thread of the forward operator, in the
    /// profiler's own numbering, which is not `tid`.
    pub forward_thread: u64,
}

/// What a [`MemoryEvent`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory was allocated (positive bytes) or freed (negative bytes).
    Change,
    /// A request failed.
    OutOfMemory,
}

/// The type of device that memory is on, as numbered by PyTorch (`c10::DeviceType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    Cpu,
    /// `torch.cuda`, on NVIDIA and, with `ROCm`, on AMD.
    Cuda,
    /// `torch.xpu` of Intel.
    Xpu,
    /// `torch.hpu` of Intel Gaudi.
    Hpu,
    /// `torch.mtia` of Meta.
    Mtia,
    /// A device that is not part of PyTorch itself, such as Ascend.
    PrivateUse,
    /// Another type, by its number.
    Other(i64),
}

impl DeviceType {
    /// The type for the `Device Type` of a memory event.
    pub fn of(number: i64) -> Self {
        match number {
            // The CPU, and libraries that allocate for it: MKLDNN, IDEEP.
            0 | 2 | 5 => Self::Cpu,
            // ROCm presents its devices as CUDA; internally they are HIP.
            1 | 6 => Self::Cuda,
            12 => Self::Xpu,
            15 => Self::Hpu,
            19 => Self::Mtia,
            20 => Self::PrivateUse,
            other => Self::Other(other),
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Cpu => "the CPU".to_owned(),
            Self::Cuda => "CUDA devices".to_owned(),
            Self::Xpu => "XPU devices".to_owned(),
            Self::Hpu => "HPU devices".to_owned(),
            Self::Mtia => "MTIA devices".to_owned(),
            Self::PrivateUse => "devices of a backend outside PyTorch (PrivateUse1)".to_owned(),
            Self::Other(number) => format!("devices of type {number}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    pub kind: MemoryKind,
    /// Nanoseconds since time zero of the trace.
    pub time_ns: i64,
    /// Index into [`Profile::threads`].
    pub thread: u32,
    /// Device; [`super::CPU_DEVICE`] for the CPU.
    pub device: DeviceId,
    /// Address; 0 if the trace has none ([`SourceNotes::no_addresses`]).
    pub addr: u64,
    /// Size of the block; negative for a free. For a failed request, the requested size.
    pub bytes: i64,
    /// The allocator's counter of allocated bytes after the event; 0 if the trace has none ([`SourceNotes::no_totals`]).
    pub allocated: i64,
    /// The same for reserved bytes.
    pub reserved: i64,
}

/// Memory by category over time, as `export_memory_timeline` writes it. The file does not name its device.
#[derive(Clone, Debug, Default)]
pub struct MemoryTimeline {
    /// Changes in file order.
    pub steps: Vec<TimelineStep>,
    /// Whether the file contains sums (`.json`) instead of single tensors (`.raw.json.gz`).
    pub is_sums: bool,
    pub notes: SourceNotes,
}

/// One change of a category's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineStep {
    /// Nanoseconds since the epoch; -1 for memory from before the recording.
    pub time_ns: i64,
    /// Index into [`CATEGORIES`].
    pub category: u8,
    /// For single tensors, the signed size; for sums, the new sum of the category.
    pub bytes: i64,
    /// Whether it is the first change in a row of sums, all of which apply at the same time.
    pub starts_row: bool,
}

/// PyTorch's categories, in the order of their indexes.
pub const CATEGORIES: [&str; 8] =
    ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"];
