//! The JSON of `memviz blocks`.

use crate::analysis::blocks::{Block, BlocksReport, DeviceBlocks};
use crate::model::PoolId;
use crate::report::common::notes;
use crate::report::fragmentation::json::Instant;
use crate::report::{Head, Source};
use serde::Serialize;

/// `memviz blocks`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlocksDevice {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// The instant at which the blocks are allocated; null for blocks of any time.
    pub at: Option<Instant>,
    /// Number of matching blocks.
    pub found: usize,
    /// Their total size.
    pub total_bytes: u64,
    /// The first of them, up to `--top`.
    pub blocks: Vec<BlockRow>,
}

/// One block.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlockRow {
    /// Its place among all blocks of the device, for `--id`.
    pub id: usize,
    /// Its address, in hexadecimal.
    pub address: String,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Bytes as the allocator rounded them.
    pub bytes: u64,
    /// When it was allocated; null if before the recording.
    pub allocated: Option<Instant>,
    /// When the program freed it; null if it did not while recording.
    pub freed: Option<Instant>,
    /// When its memory could be used again; null if it could not while recording.
    pub completed: Option<Instant>,
    /// CUDA stream; null if not recorded.
    pub stream: Option<u64>,
    /// Private pool; null if it is in none, or if pools are not recorded.
    pub pool_id: Option<PoolId>,
    /// The line that allocated it.
    pub site: String,
    /// Its category.
    pub category: &'static str,
    /// The evidence for the category.
    pub evidence: &'static str,
    /// Whether the site or the category is inferred.
    pub inferred: bool,
    /// The phase in which it was allocated; null if unknown.
    pub phase: Option<&'static str>,
    /// The step in which it was allocated, from 1; null if unknown.
    pub step: Option<u64>,
    /// The stack that allocated it, innermost frame first.
    pub stack: Vec<String>,
    /// The line that freed it; null if not recorded.
    pub freed_by: Option<String>,
    /// The stack that freed it, innermost frame first; empty if not recorded.
    pub free_stack: Vec<String>,
}

impl From<&Block> for BlockRow {
    fn from(block: &Block) -> Self {
        let instant = |moment: &Option<_>| moment.as_ref().map(Instant::from);
        Self {
            id: block.id,
            address: format!("{:#x}", block.address),
            requested_bytes: block.requested,
            bytes: block.bytes,
            allocated: instant(&block.allocated),
            freed: instant(&block.freed),
            completed: instant(&block.completed),
            stream: block.stream,
            pool_id: block.pool,
            site: block.site.clone(),
            category: block.category,
            evidence: block.evidence,
            inferred: block.inferred,
            phase: block.phase,
            step: block.step,
            stack: block.stack.clone(),
            freed_by: (!block.freed_by.is_empty()).then(|| block.freed_by.clone()),
            free_stack: block.free_stack.clone(),
        }
    }
}

impl From<&DeviceBlocks> for BlocksDevice {
    fn from(device: &DeviceBlocks) -> Self {
        let mut notes = notes::limits(&device.completeness, &device.baseline);
        notes.extend(notes::anomalies(&device.anomalies));
        Self {
            device: device.device,
            complete_history: device.completeness.is_complete(),
            notes,
            at: device.at.as_ref().map(Instant::from),
            found: device.found,
            total_bytes: device.total_bytes,
            blocks: device.blocks.iter().map(BlockRow::from).collect(),
        }
    }
}

/// The whole answer of `memviz blocks`.
pub fn blocks<'a>(source: Source<'a>, report: &BlocksReport) -> Head<'a, BlocksDevice> {
    Head::of::<BlocksReport>(source, None, report.devices.iter().map(BlocksDevice::from).collect())
}
