//! The JSON of `memviz blocks`.

use crate::analysis::blocks::{Block, BlocksReport, DeviceBlocks};
use crate::facts::time::moment::Moment;
use crate::report::common::json::keys;
use crate::report::common::notes;
use crate::report::{Head, Source};

keys! { schema
    /// `memviz blocks`, one device.
    pub struct BlocksDevice<'a>(device: &'a DeviceBlocks) {
        let limits = notes::limits(&device.completeness, &device.baseline);
        /// Device, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = device.device,
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = limits.into_iter().chain(notes::anomalies(&device.anomalies)).collect(),
        /// The instant at which the blocks are allocated; null for blocks of any time.
        pub at: Option<&'a Moment> = device.at.as_ref(),
        /// Number of matching blocks.
        pub found: usize = device.found,
        /// Their total size.
        pub total_bytes: u64 = device.total_bytes,
        /// The first of them, up to `--top`.
        pub blocks: &'a [Block] = &device.blocks,
    }
}

pub fn blocks<'a>(source: Source<'a>, report: &'a BlocksReport) -> Head<'a, BlocksDevice<'a>> {
    Head::of::<BlocksReport>(source, None, report.devices.iter().map(BlocksDevice::of).collect())
}
