//! The JSON of `memviz nsys`.

use super::words;
use crate::analysis::nsys::{NsysMemory, NsysPeak, NsysReport, NsysRow, PytorchShare, RangeRow};
use crate::model::nsys::MemoryKind;
use crate::report::Answer;
use crate::wire::SCHEMA_VERSION;
use serde::Serialize;

/// The answer of `memviz nsys`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysAnswer<'a> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: NsysInput<'a>,
    /// Memory by process and place.
    pub memories: Vec<NsysMemoryAnswer<'a>>,
    /// The part of it in the recording of `--snapshot`; null without one.
    pub pytorch: Option<&'a PytorchShare>,
}

/// The file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysInput<'a> {
    /// As the user named it.
    pub path: &'a str,
    /// Size of the file.
    pub bytes: u64,
    /// Version of the export's tables; null if the file does not contain it.
    pub schema_version: Option<&'a str>,
    /// Nanoseconds since the epoch at which the times of the profile start; null if the file does not contain it.
    pub session_start_ns: Option<i64>,
    /// Limits of all figures, in words.
    pub notes: Vec<String>,
}

/// Memory of a process at one place.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysMemoryAnswer<'a> {
    /// The process ID.
    pub pid: i64,
    /// The name of the program; null if unknown.
    pub program: Option<&'a str>,
    /// `device`, `managed`, `pinned`, `pageable` or `unknown`.
    pub place: &'static str,
    /// Device; null for other places.
    pub device: Option<i64>,
    /// The name of the GPU; null if unknown.
    pub gpu: Option<&'a str>,
    /// Memory of the GPU; null if unknown.
    pub total_bytes: Option<u64>,
    /// Limits of the figures, in words.
    pub notes: Vec<String>,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of frees.
    pub frees: u64,
    /// Bytes of all allocations.
    pub allocated_bytes: u64,
    /// The peak; null if the order of the events is unknown.
    pub peak: Option<&'a NsysPeak>,
    /// Who allocated.
    pub rows: Vec<NsysRowAnswer<'a>>,
    /// NVTX ranges of the process by name, those with the most memory first.
    pub ranges: &'a [RangeRow],
}

/// The blocks of one holder that were allocated in the same way.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysRowAnswer<'a> {
    /// `pytorch`, `library` or `unknown`.
    pub holder: &'static str,
    /// The holder in words.
    pub label: String,
    /// The function of the CUDA API; null if unknown.
    pub call: Option<&'a str>,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of these that were freed in the profile.
    pub freed: u64,
    /// Bytes at the peak; null if the order of the events is unknown.
    pub peak_bytes: Option<u64>,
    /// Bytes that were not freed; null if the order of the events is unknown.
    pub end_bytes: Option<u64>,
    /// Bytes of all allocations.
    pub allocated_bytes: u64,
}

impl<'a> NsysRowAnswer<'a> {
    fn of(row: &'a NsysRow, has_order: bool) -> Self {
        Self {
            holder: row.holder.name(),
            label: words::holder(&row.holder),
            call: row.call.as_deref(),
            kind: row.kind,
            allocations: row.allocations,
            freed: row.freed,
            peak_bytes: has_order.then_some(row.peak_bytes),
            end_bytes: has_order.then_some(row.end_bytes),
            allocated_bytes: row.allocated_bytes,
        }
    }
}

impl<'a> From<&'a NsysMemory> for NsysMemoryAnswer<'a> {
    fn from(memory: &'a NsysMemory) -> Self {
        Self {
            pid: memory.pid,
            program: memory.program.as_deref(),
            place: memory.place.name(),
            device: memory.place.device(),
            gpu: memory.gpu.as_ref().and_then(|gpu| gpu.name.as_deref()),
            total_bytes: memory.gpu.as_ref().and_then(|gpu| gpu.total_bytes),
            notes: words::notes(memory),
            allocations: memory.allocations,
            frees: memory.frees,
            allocated_bytes: memory.allocated_bytes,
            peak: memory.peak.as_ref().ok(),
            rows: memory.rows.iter().map(|row| NsysRowAnswer::of(row, memory.peak.is_ok())).collect(),
            ranges: &memory.ranges,
        }
    }
}

/// The whole answer.
pub fn answer<'a>(path: &'a str, report: &'a NsysReport) -> NsysAnswer<'a> {
    NsysAnswer {
        schema_version: SCHEMA_VERSION,
        command: NsysReport::COMMAND,
        input: NsysInput {
            path,
            bytes: report.bytes,
            schema_version: report.schema_version.as_deref(),
            session_start_ns: report.session_start_ns,
            notes: words::file_notes(report),
        },
        memories: report.memories.iter().map(NsysMemoryAnswer::from).collect(),
        pytorch: report.pytorch.as_ref(),
    }
}
