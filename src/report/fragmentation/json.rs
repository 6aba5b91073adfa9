//! The JSON of `memviz fragmentation`.

use crate::analysis::fragmentation::over_time::{MostInactive, OverTimeRow};
use crate::analysis::fragmentation::{
    DeviceFragmentation, FragmentationReport, PoolFragmentation, SegmentFragmentation, Stranded,
};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::{Figures, SizeClass};
use crate::facts::segments::pinning::PinningRow;
use crate::facts::time::moment::Moment;
use crate::report::Source;
use crate::report::common::json::{CounterBytes, Head, keys};
use crate::report::common::notes;
use crate::simulation::{SettingsAdvice, Trust};
use indexmap::IndexMap;

keys! { schema
    /// `memviz fragmentation`, one device.
    pub struct FragmentationDevice<'a>(device: &'a DeviceFragmentation) {
        let completeness = &device.completeness;
        let one_instant = device.over_time.is_none();
        let at_end = one_instant && notes::is_end(&device.moment, device.entries, completeness);
        let sizes_known = one_instant && device.is_peak && completeness.peak_uncertain_bytes == 0;
        /// Device, -1 for pinned host memory.
        pub device: i32 = device.device,
        /// Allocated before the first kept entry.
        pub baseline_bytes: i64 = device.baseline.allocated,
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// What is missing or contradictory, in words.
        pub notes: Vec<String> = notes::fragmentation(device),
        /// Figures that are not exact, here and in `pools`, `segments` and `over_time`: an `upper` or `lower` bound, or
        /// `unknown`. Left out when all are exact.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub bounds: IndexMap<&'static str, &'static str> = notes::figure_bounds(completeness, at_end, sizes_known),
        /// The selected instant.
        pub at: &'a Moment = &device.moment,
        /// Sums over all segments.
        #[serde(flatten)]
        pub figures: &'a Figures = &device.figures,
        /// Active blocks that are in no segment or overlap: in no other figure; 0 unless the recording contradicts itself.
        pub stray_blocks: u64 = device.stray.0,
        /// Their bytes.
        pub stray_bytes: u64 = device.stray.1,
        /// The counters of `memory_stats()` at the instant. They equal the figures unless the recording contradicts itself.
        pub counters: CounterBytes = (&device.counters).into(),
        /// The instant of the whole history at which the most memory is inactive.
        pub most_inactive: &'a MostInactive = &device.most_inactive,
        /// The segments by pool and stream, the largest first; they sum to the figures above.
        pub pools: &'a [PoolFragmentation] = &device.pools,
        /// Free memory that only one side stream or pool can use. Left out if there is little.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stranded: Option<&'a Stranded> = device.stranded.as_ref(),
        /// What rows of `pinning` represent.
        pub by: GroupBy = device.by,
        /// Whether those rows overlap.
        pub inclusive: bool = device.by.is_inclusive(),
        /// The code that keeps free bytes from being released. Rows sum to `pinned_free_bytes`, unless they are inclusive.
        pub pinning: Vec<PinningGroup> = device.pinning.rows.iter().map(PinningGroup::of).collect(),
        /// Free blocks by size.
        pub free_blocks: &'a [SizeClass] = &device.free_blocks,
        /// Rounding loss of blocks in use and pending free, by block size.
        pub rounding: Vec<RoundingLoss> = device.used_blocks.iter().map(RoundingLoss::of).collect(),
        /// Every segment, in address order.
        pub segments: &'a [SegmentFragmentation] = &device.segments,
        /// Rows over time; only if requested.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub over_time: Option<&'a [OverTimeRow]> = device.over_time.as_deref(),
        /// What other allocator settings would have reserved at the instant, simulated; left out if little is
        /// non-releasable, or if it is unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub settings: Option<OtherSettings> = device.settings.as_ref().map(OtherSettings::of),
    }
}

keys! { schema
    /// Other allocator settings, simulated up to an instant.
    pub struct OtherSettings(settings: &SettingsAdvice) {
        let better = settings.better.as_ref();
        /// Number of simulated settings.
        pub tried: usize = settings.tried,
        /// The simplest of the settings that reserve the least at the instant, or hardly more, in the syntax of
        /// `PYTORCH_CUDA_ALLOC_CONF`; null if none reserves notably less.
        pub alloc_conf: Option<String> = better.map(|better| better.alloc_conf.clone()),
        /// Bytes reserved with them; the maximum if it depends on the driver's placement of segments.
        pub reserved_bytes: Option<u64> = better.map(|better| better.reserved),
        /// How far you can trust that.
        pub trust: Option<Trust> = better.map(|better| better.trust),
    }
}

keys! { schema
    /// Free bytes that the blocks of one group keep reserved.
    pub struct PinningGroup(row: &PinningRow) {
        /// The group.
        pub label: String = row.label.clone(),
        /// Whether the label is inferred.
        pub inferred: bool = row.inferred,
        /// Bytes of its blocks that keep free bytes reserved.
        pub bytes: u64 = row.bytes,
        /// Number of these blocks.
        pub blocks: u64 = row.blocks,
        /// Free bytes attributed to it. Blocks in the same segment (or page) are attributed equal parts.
        pub pinned_free_bytes: u64 = row.pinned_free_bytes,
        /// `pinned_free_bytes / blocks`.
        pub pinned_free_bytes_per_block: f64 = row.pinned_free_bytes as f64 / row.blocks.max(1) as f64,
        /// The most bytes attributed to one block.
        pub worst_block_bytes: u64 = row.worst_block_bytes,
        /// Free bytes in segments (or pages) that only this group's blocks keep reserved. In the row `(other)`, a lower
        /// bound.
        pub alone_free_bytes: u64 = row.alone_free_bytes,
        /// The stack with the most attributed bytes, innermost frame first.
        pub stack: Vec<String> = row.stack.clone(),
    }
}

keys! { schema
    /// Blocks in use and pending free of similar size.
    pub struct RoundingLoss(class: &SizeClass) {
        /// Smallest size in the class, a power of two.
        pub min_bytes: u64 = class.min_bytes,
        /// Largest size in the class.
        pub max_bytes: u64 = class.max_bytes(),
        /// Number of blocks.
        pub blocks: u64 = class.blocks,
        /// Their bytes.
        pub bytes: u64 = class.bytes,
        /// Requested bytes in them.
        pub requested_bytes: u64 = class.requested,
        /// `bytes - requested_bytes`.
        pub rounding_bytes: i64 = class.rounding(),
    }
}

pub fn fragmentation<'a>(source: Source<'a>, report: &'a FragmentationReport) -> Head<'a, FragmentationDevice<'a>> {
    Head::of::<FragmentationReport>(source, None, report.devices.iter().map(FragmentationDevice::of).collect())
}
