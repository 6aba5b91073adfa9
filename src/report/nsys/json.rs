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
pub struct NsysAnswer {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: NsysInput,
    /// Memory by process and place.
    pub memories: Vec<NsysMemoryAnswer>,
    /// The part of it in the recording of `--snapshot`; null without one.
    pub pytorch: Option<NsysPytorch>,
}

/// The file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysInput {
    /// As the user named it.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// Version of the export's tables; null if the file does not contain it.
    pub schema_version: Option<String>,
    /// Nanoseconds since the epoch at which the times of the profile start; null if the file does not contain it.
    pub session_start_ns: Option<i64>,
    /// Limits of all figures, in words.
    pub notes: Vec<String>,
}

/// Memory of a process at one place.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysMemoryAnswer {
    /// The process ID.
    pub pid: i64,
    /// The name of the program; null if unknown.
    pub program: Option<String>,
    /// `device`, `managed`, `pinned`, `pageable` or `unknown`.
    pub place: &'static str,
    /// Device; null for other places.
    pub device: Option<i64>,
    /// The name of the GPU; null if unknown.
    pub gpu: Option<String>,
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
    pub peak: Option<NsysPeakAnswer>,
    /// Who allocated.
    pub rows: Vec<NsysRowAnswer>,
    /// NVTX ranges of the process by name, those with the most memory first.
    pub ranges: Vec<NsysRange>,
}

/// The highest memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysPeakAnswer {
    /// Bytes: the sum of `peak_bytes` of all rows.
    pub bytes: u64,
    /// Nanoseconds since the start of the session.
    pub time_ns: i64,
    /// Bytes that were not freed in the profile.
    pub end_bytes: u64,
    /// NVTX ranges that are open at the peak, outermost first.
    pub open_ranges: Vec<String>,
    /// Highest number of bytes in equal parts of the time from the first to the last event of the profile.
    pub curve_bytes: Vec<u64>,
}

/// The blocks of one holder that were allocated in the same way.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysRowAnswer {
    /// `pytorch`, `library` or `unknown`.
    pub holder: &'static str,
    /// The holder in words.
    pub label: String,
    /// The function of the CUDA API; null if unknown.
    pub call: Option<String>,
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

/// NVTX ranges of one name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysRange {
    /// Their name.
    pub name: String,
    /// Number of ranges.
    pub count: u64,
    /// Highest number of bytes while one of them was open.
    pub highest_bytes: u64,
    /// Bytes that were allocated in them.
    pub allocated_bytes: u64,
    /// Bytes that were freed in them.
    pub freed_bytes: u64,
}

/// The part of the profile in a recording of PyTorch.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NsysPytorch {
    /// The process; null if the profile has no segment of the recording.
    pub pid: Option<i64>,
    /// Segments in the recording, without expandable ones.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Number of these that are in the profile.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Allocations with the address and size of a segment beyond the number of such segments.
    pub repeated: u64,
    /// Mapped ranges of expandable segments, which cannot be compared.
    pub expandable: u64,
}

impl From<&NsysPeak> for NsysPeakAnswer {
    fn from(peak: &NsysPeak) -> Self {
        Self {
            bytes: peak.bytes,
            time_ns: peak.time_ns,
            end_bytes: peak.end_bytes,
            open_ranges: peak.open_ranges.clone(),
            curve_bytes: peak.curve.clone(),
        }
    }
}

impl From<&RangeRow> for NsysRange {
    fn from(range: &RangeRow) -> Self {
        Self {
            name: range.name.clone(),
            count: range.count,
            highest_bytes: range.highest_bytes,
            allocated_bytes: range.allocated_bytes,
            freed_bytes: range.freed_bytes,
        }
    }
}

impl From<&PytorchShare> for NsysPytorch {
    fn from(share: &PytorchShare) -> Self {
        Self {
            pid: share.pid,
            segments: share.segments,
            segment_bytes: share.segment_bytes,
            found: share.found,
            found_bytes: share.found_bytes,
            repeated: share.repeated,
            expandable: share.expandable,
        }
    }
}

impl NsysRowAnswer {
    fn of(row: &NsysRow, has_order: bool) -> Self {
        Self {
            holder: row.holder.name(),
            label: words::holder(&row.holder),
            call: row.call.clone(),
            kind: row.kind,
            allocations: row.allocations,
            freed: row.freed,
            peak_bytes: has_order.then_some(row.peak_bytes),
            end_bytes: has_order.then_some(row.end_bytes),
            allocated_bytes: row.allocated_bytes,
        }
    }
}

impl From<&NsysMemory> for NsysMemoryAnswer {
    fn from(memory: &NsysMemory) -> Self {
        Self {
            pid: memory.pid,
            program: memory.program.clone(),
            place: memory.place.name(),
            device: memory.place.device(),
            gpu: memory.gpu.as_ref().and_then(|gpu| gpu.name.clone()),
            total_bytes: memory.gpu.as_ref().and_then(|gpu| gpu.total_bytes),
            notes: words::notes(memory),
            allocations: memory.allocations,
            frees: memory.frees,
            allocated_bytes: memory.allocated_bytes,
            peak: memory.peak.as_ref().ok().map(NsysPeakAnswer::from),
            rows: memory.rows.iter().map(|row| NsysRowAnswer::of(row, memory.peak.is_ok())).collect(),
            ranges: memory.ranges.iter().map(NsysRange::from).collect(),
        }
    }
}

/// The whole answer.
pub fn answer(path: &str, report: &NsysReport) -> NsysAnswer {
    NsysAnswer {
        schema_version: SCHEMA_VERSION,
        command: NsysReport::COMMAND,
        input: NsysInput {
            path: path.to_owned(),
            bytes: report.bytes,
            schema_version: report.schema_version.clone(),
            session_start_ns: report.session_start_ns,
            notes: words::file_notes(report),
        },
        memories: report.memories.iter().map(NsysMemoryAnswer::from).collect(),
        pytorch: report.pytorch.as_ref().map(NsysPytorch::from),
    }
}
