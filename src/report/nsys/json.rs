//! The JSON of `memviz nsys`.

use super::words;
use crate::analysis::nsys::{NsysMemory, NsysPeak, NsysReport, NsysRow, PytorchShare, RangeRow};
use crate::model::nsys::MemoryKind;
use crate::report::Answer;
use crate::report::common::json::keys;
use crate::wire::SCHEMA_VERSION;

keys! { schema
    /// The answer of `memviz nsys`.
    pub struct NsysAnswer<'a>(path: &'a str, report: &'a NsysReport) {
        /// Version of the keys: see `memviz schema`.
        pub schema_version: u32 = SCHEMA_VERSION,
        /// The subcommand.
        pub command: &'static str = NsysReport::COMMAND,
        /// The file.
        pub input: NsysInput<'a> = NsysInput::of(path, report),
        /// Memory by process and place.
        pub memories: Vec<NsysMemoryAnswer<'a>> = report.memories.iter().map(NsysMemoryAnswer::of).collect(),
        /// The part of it in the recording of `--snapshot`; null without one.
        pub pytorch: Option<&'a PytorchShare> = report.pytorch.as_ref(),
    }
}

keys! { schema
    /// The file.
    pub struct NsysInput<'a>(path: &'a str, report: &'a NsysReport) {
        /// As the user named it.
        pub path: &'a str = path,
        /// Size of the file.
        pub bytes: u64 = report.bytes,
        /// Version of the export's tables; null if the file does not contain it.
        pub schema_version: Option<&'a str> = report.schema_version.as_deref(),
        /// Nanoseconds since the epoch at which the times of the profile start; null if the file does not contain it.
        pub session_start_ns: Option<i64> = report.session_start_ns,
        /// Limits of all figures, in words.
        pub notes: Vec<String> = words::file_notes(report),
    }
}

keys! { schema
    /// Memory of a process at one place.
    pub struct NsysMemoryAnswer<'a>(memory: &'a NsysMemory) {
        /// The process ID.
        pub pid: i64 = memory.pid,
        /// The name of the program; null if unknown.
        pub program: Option<&'a str> = memory.program.as_deref(),
        /// `device`, `managed`, `pinned`, `pageable` or `unknown`.
        pub place: &'static str = memory.place.name(),
        /// Device; null for other places.
        pub device: Option<i64> = memory.place.device(),
        /// The name of the GPU; null if unknown.
        pub gpu: Option<&'a str> = memory.gpu.as_ref().and_then(|gpu| gpu.name.as_deref()),
        /// Memory of the GPU; null if unknown.
        pub total_bytes: Option<u64> = memory.gpu.as_ref().and_then(|gpu| gpu.total_bytes),
        /// Limits of the figures, in words.
        pub notes: Vec<String> = words::notes(memory),
        /// Number of allocations.
        pub allocations: u64 = memory.allocations,
        /// Number of frees.
        pub frees: u64 = memory.frees,
        /// Bytes of all allocations.
        pub allocated_bytes: u64 = memory.allocated_bytes,
        /// The peak; null if the order of the events is unknown.
        pub peak: Option<&'a NsysPeak> = memory.peak.as_ref().ok(),
        /// Who allocated.
        pub rows: Vec<NsysRowAnswer<'a>> =
            memory.rows.iter().map(|row| NsysRowAnswer::of(row, memory.peak.is_ok())).collect(),
        /// NVTX ranges of the process by name, those with the most memory first.
        pub ranges: &'a [RangeRow] = &memory.ranges,
    }
}

keys! { schema
    /// The blocks of one holder that were allocated in the same way.
    pub struct NsysRowAnswer<'a>(row: &'a NsysRow, has_order: bool) {
        /// `pytorch`, `library` or `unknown`.
        pub holder: &'static str = row.holder.name(),
        /// The holder in words.
        pub label: String = words::holder(&row.holder),
        /// The function of the CUDA API; null if unknown.
        pub call: Option<&'a str> = row.call.as_deref(),
        /// The kind of memory.
        pub kind: MemoryKind = row.kind,
        /// Number of allocations.
        pub allocations: u64 = row.allocations,
        /// Number of these that were freed in the profile.
        pub freed: u64 = row.freed,
        /// Bytes at the peak; null if the order of the events is unknown.
        pub peak_bytes: Option<u64> = has_order.then_some(row.peak_bytes),
        /// Bytes that were not freed; null if the order of the events is unknown.
        pub end_bytes: Option<u64> = has_order.then_some(row.end_bytes),
        /// Bytes of all allocations.
        pub allocated_bytes: u64 = row.allocated_bytes,
    }
}
