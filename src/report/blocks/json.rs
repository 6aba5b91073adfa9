//! The JSON of `memviz blocks`.

use crate::analysis::blocks::{Block, BlocksReport, DeviceBlocks};
use crate::facts::time::moment::Moment;
use crate::report::common::notes;
use crate::report::{Head, Source};
use serde::Serialize;

/// `memviz blocks`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlocksDevice<'a> {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// The instant at which the blocks are allocated; null for blocks of any time.
    pub at: Option<&'a Moment>,
    /// Number of matching blocks.
    pub found: usize,
    /// Their total size.
    pub total_bytes: u64,
    /// The first of them, up to `--top`.
    pub blocks: &'a [Block],
}

impl<'a> From<&'a DeviceBlocks> for BlocksDevice<'a> {
    fn from(device: &'a DeviceBlocks) -> Self {
        let mut notes = notes::limits(&device.completeness, &device.baseline);
        notes.extend(notes::anomalies(&device.anomalies));
        Self {
            device: device.device,
            complete_history: device.completeness.is_complete(),
            notes,
            at: device.at.as_ref(),
            found: device.found,
            total_bytes: device.total_bytes,
            blocks: &device.blocks,
        }
    }
}

/// The whole answer of `memviz blocks`.
pub fn blocks<'a>(source: Source<'a>, report: &'a BlocksReport) -> Head<'a, BlocksDevice<'a>> {
    Head::of::<BlocksReport>(source, None, report.devices.iter().map(BlocksDevice::from).collect())
}
