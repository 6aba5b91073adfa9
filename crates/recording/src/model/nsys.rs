//! Device memory as Nsight Systems recorded it: every allocation by the driver, from all processes and libraries.

use serde::{Deserialize, Serialize};

/// The memory events of an export of Nsight Systems.
#[derive(Clone, Debug, Default)]
pub struct NsysProfile {
    /// Version of the export's tables, such as `3.16.1`.
    pub schema_version: Option<String>,
    /// Nanoseconds since the epoch at which the times of the profile start.
    pub session_start_ns: Option<i64>,
    /// Allocations and frees, by time; events with the same time are in the order of the file.
    pub events: Vec<MemoryEvent>,
    /// The callers, each once. The first one is unknown.
    pub callers: Vec<Caller>,
    pub ranges: Vec<NvtxRange>,
    pub gpus: Vec<ProfiledGpu>,
    pub processes: Vec<(Process, String)>,
    pub has_call_chains: bool,
    /// Memory events that are neither allocations nor frees, which memviz leaves out.
    pub other_events: u64,
    /// Why the file may lack rows; empty if nothing says so.
    pub notes: Vec<String>,
    pub bytes: u64,
}

/// A process. Nsight Systems numbers them across machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process(pub i64);

impl Process {
    /// How many bits of a thread's number belong to the thread itself.
    const THREAD_BITS: u32 = 24;

    /// The process of a thread or of a process; the tables number both.
    pub fn of(global: i64) -> Self {
        Self(global >> Self::THREAD_BITS)
    }

    pub fn pid(self) -> i64 {
        self.0 & ((1 << Self::THREAD_BITS) - 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Nanoseconds since the start of the session.
    pub start_ns: i64,
    pub process: Process,
    /// The device; meaningless for host memory.
    pub device: i64,
    pub context: i64,
    pub address: u64,
    pub bytes: u64,
    pub kind: MemoryKind,
    pub is_free: bool,
    /// Index into [`NsysProfile::callers`].
    pub caller: u32,
    /// Bytes of the stream-ordered memory pool (`cudaMallocAsync`) that served it, if one did.
    pub pool_bytes: Option<u64>,
}

/// The kind of memory, as numbered by `ENUM_CUDA_MEM_KIND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Pageable host memory.
    Pageable,
    /// Pinned host memory.
    Pinned,
    /// Device memory.
    Device,
    /// CUDA arrays.
    Array,
    /// Managed memory, which moves between host and devices.
    Managed,
    /// Variables of device code.
    DeviceStatic,
    /// Managed variables of device code.
    ManagedStatic,
    /// Memory of an unknown kind.
    Unknown,
}

impl MemoryKind {
    pub fn of(number: i64) -> Self {
        match number {
            0 => Self::Pageable,
            1 => Self::Pinned,
            2 => Self::Device,
            3 => Self::Array,
            4 => Self::Managed,
            5 => Self::DeviceStatic,
            6 => Self::ManagedStatic,
            _ => Self::Unknown,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The function of the CUDA API, such as `cudaMalloc`.
    pub call: Option<String>,
    /// The call chain, innermost first; empty if not recorded.
    pub chain: Vec<ChainFrame>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainFrame {
    pub symbol: String,
    /// The path of its library.
    pub module: String,
}

/// An NVTX range, such as one from `torch.cuda.nvtx.range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvtxRange {
    pub name: String,
    pub process: Process,
    /// Nanoseconds since the start of the session.
    pub start_ns: i64,
    /// Its end; `None` if it was still open when the profile ended.
    pub end_ns: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfiledGpu {
    /// Its number in CUDA.
    pub device: i64,
    pub name: Option<String>,
    pub total_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_threads() {
        let global = (7 << 48) | (4711 << 24);
        assert_eq!(Process::of(global | 0x1268), Process::of(global));
        assert_eq!(Process::of(global).pid(), 4711);
    }
}
