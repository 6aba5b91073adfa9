//! The contents of a recording, typed and interned.
//!
//! In: nothing; this stage imports no other stage. Out: [`Snapshot`], which [`crate::input`] fills and every later stage
//! reads. Nothing here is computed from other contents of the file: block sizes, counters and peaks belong to
//! [`crate::replay`].

pub mod annotation;
pub mod bytes;
pub mod device_file;
pub mod gpu;
pub mod holders;
pub mod live;
pub mod logged;
pub mod memory_stats;
#[cfg(feature = "nsys")]
pub mod nsys;
pub mod percent;
pub mod profile;
pub mod rehearsal;
pub mod segment;
pub mod settings;
pub mod snapshot;
pub mod stacks;
pub mod strings;
pub mod trace_entry;
pub mod traceback;
pub mod view;

pub use annotation::{Annotation, Stage};
pub use device_file::DeviceFile;
pub use holders::Holders;
pub use live::LiveProfile;
pub use logged::{LoggedTensor, SourceFile};
pub use memory_stats::MemoryStats;
pub use profile::{MemoryTimeline, Profile};
pub use rehearsal::Rehearsal;
pub use segment::{Block, BlockState, DEFAULT_POOL, PoolId, Segment, SegmentType};
pub use settings::AllocatorSettings;
pub use snapshot::{DeviceTrace, Format, Snapshot, SourceNotes};
pub use stacks::{Frame, FrameId, FxNode, StackId, Stacks};
pub use strings::{StrId, Strings};
pub use trace_entry::{Action, ContextId, Contexts, EntryContext, TraceEntries};
pub use view::View;

/// A CUDA device index. Pinned host memory is [`HOST_DEVICE`]; the CPU's memory in a profiler trace is [`CPU_DEVICE`].
pub type DeviceId = i32;

/// The highest possible device index: PyTorch stores devices in a signed byte.
pub const MAX_DEVICE: DeviceId = i8::MAX as DeviceId;

/// The device id that PyTorch gives to pinned host memory.
pub const HOST_DEVICE: DeviceId = -1;

/// The device id of memory that PyTorch allocates for CPU tensors, which profiler traces record.
pub const CPU_DEVICE: DeviceId = -2;

#[doc(hidden)]
pub fn device_words(device: DeviceId) -> String {
    match device {
        HOST_DEVICE => "pinned host memory".to_owned(),
        CPU_DEVICE => "CPU memory".to_owned(),
        device => format!("device {device}"),
    }
}
