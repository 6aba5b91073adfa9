//! The JSON of `memviz fragmentation`.

use crate::analysis::fragmentation::over_time::{MostInactive, OverTimeRow};
use crate::analysis::fragmentation::{
    DeviceFragmentation, FragmentationReport, PoolFragmentation, SegmentFragmentation, Stranded,
};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::{Figures, SizeClass};
use crate::facts::segments::pinning::PinningRow;
use crate::facts::time::moment::Moment;
use crate::play::{SettingsAdvice, Trust};
use crate::report::Source;
use crate::report::common::json::{CounterBytes, Head};
use crate::report::common::notes;
use indexmap::IndexMap;
use serde::Serialize;

/// `memviz fragmentation`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FragmentationDevice<'a> {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing or contradictory, in words.
    pub notes: Vec<String>,
    /// Figures that are not exact, here and in `pools`, `segments` and `over_time`: an `upper` or `lower` bound, or
    /// `unknown`. Left out when all are exact.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<&'static str, &'static str>,
    /// The selected instant.
    pub at: &'a Moment,
    /// Sums over all segments.
    #[serde(flatten)]
    pub figures: &'a Figures,
    /// Active blocks that are in no segment or overlap: in no other figure; 0 unless the recording contradicts itself.
    pub stray_blocks: u64,
    /// Their bytes.
    pub stray_bytes: u64,
    /// The counters of `memory_stats()` at the instant. They equal the figures unless the recording contradicts itself.
    pub counters: CounterBytes,
    /// The instant of the whole history at which the most memory is inactive.
    pub most_inactive: &'a MostInactive,
    /// The segments by pool and stream, the largest first; they sum to the figures above.
    pub pools: &'a [PoolFragmentation],
    /// Free memory that only one side stream or pool can use. Left out if there is little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stranded: Option<&'a Stranded>,
    /// What rows of `pinning` represent.
    pub by: GroupBy,
    /// Whether those rows overlap.
    pub inclusive: bool,
    /// The code that keeps free bytes from being released. Rows sum to `pinned_free_bytes`, unless they are inclusive.
    pub pinning: Vec<PinningGroup>,
    /// Free blocks by size.
    pub free_blocks: &'a [SizeClass],
    /// Rounding loss of blocks in use and pending free, by block size.
    pub rounding: Vec<RoundingLoss>,
    /// Every segment, in address order.
    pub segments: &'a [SegmentFragmentation],
    /// Rows over time; only if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<&'a [OverTimeRow]>,
    /// What other allocator settings would have reserved at the instant, simulated; left out if little is
    /// non-releasable, or if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<OtherSettings>,
}

/// Other allocator settings, simulated up to an instant.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OtherSettings {
    /// Number of simulated settings.
    pub tried: usize,
    /// The simplest of the settings that reserve the least at the instant, or hardly more, in the syntax of
    /// `PYTORCH_CUDA_ALLOC_CONF`; null if none reserves notably less.
    pub alloc_conf: Option<String>,
    /// Bytes reserved with them; the maximum if it depends on the driver's placement of segments.
    pub reserved_bytes: Option<u64>,
    /// How far you can trust that.
    pub trust: Option<Trust>,
}

/// Free bytes that the blocks of one group keep reserved.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PinningGroup {
    /// The group.
    pub label: String,
    /// Whether the label is inferred.
    pub inferred: bool,
    /// Bytes of its blocks that keep free bytes reserved.
    pub bytes: u64,
    /// Number of these blocks.
    pub blocks: u64,
    /// Free bytes attributed to it. Blocks in the same segment (or page) are attributed equal parts.
    pub pinned_free_bytes: u64,
    /// `pinned_free_bytes / blocks`.
    pub pinned_free_bytes_per_block: f64,
    /// The most bytes attributed to one block.
    pub worst_block_bytes: u64,
    /// Free bytes in segments (or pages) that only this group's blocks keep reserved. In the row `(other)`, a lower
    /// bound.
    pub alone_free_bytes: u64,
    /// The stack with the most attributed bytes, innermost frame first.
    pub stack: Vec<String>,
}

/// Blocks in use and pending free of similar size.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoundingLoss {
    /// Smallest size in the class, a power of two.
    pub min_bytes: u64,
    /// Largest size in the class.
    pub max_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requested bytes in them.
    pub requested_bytes: u64,
    /// `bytes - requested_bytes`.
    pub rounding_bytes: i64,
}

impl From<&PinningRow> for PinningGroup {
    fn from(row: &PinningRow) -> Self {
        Self {
            label: row.label.clone(),
            inferred: row.inferred,
            bytes: row.bytes,
            blocks: row.blocks,
            pinned_free_bytes: row.pinned_free_bytes,
            pinned_free_bytes_per_block: row.pinned_free_bytes as f64 / row.blocks.max(1) as f64,
            worst_block_bytes: row.worst_block_bytes,
            alone_free_bytes: row.alone_free_bytes,
            stack: row.stack.clone(),
        }
    }
}

impl From<&SizeClass> for RoundingLoss {
    fn from(class: &SizeClass) -> Self {
        Self {
            min_bytes: class.min_bytes,
            max_bytes: class.max_bytes(),
            blocks: class.blocks,
            bytes: class.bytes,
            requested_bytes: class.requested,
            rounding_bytes: class.rounding(),
        }
    }
}

impl From<&SettingsAdvice> for OtherSettings {
    fn from(settings: &SettingsAdvice) -> Self {
        let better = settings.better.as_ref();
        Self {
            tried: settings.tried,
            alloc_conf: better.map(|better| better.alloc_conf.clone()),
            reserved_bytes: better.map(|better| better.reserved),
            trust: better.map(|better| better.trust),
        }
    }
}

impl<'a> From<&'a DeviceFragmentation> for FragmentationDevice<'a> {
    fn from(device: &'a DeviceFragmentation) -> Self {
        let completeness = &device.completeness;
        let one_instant = device.over_time.is_none();
        let at_end = one_instant && notes::is_end(&device.moment, device.entries, completeness);
        let sizes_known = one_instant && device.is_peak && completeness.peak_uncertain_bytes == 0;
        Self {
            device: device.device,
            baseline_bytes: device.baseline.allocated,
            complete_history: device.completeness.is_complete(),
            notes: notes::fragmentation(device),
            bounds: notes::figure_bounds(completeness, at_end, sizes_known),
            at: &device.moment,
            figures: &device.figures,
            stray_blocks: device.stray.0,
            stray_bytes: device.stray.1,
            counters: (&device.counters).into(),
            stranded: device.stranded.as_ref(),
            most_inactive: &device.most_inactive,
            pools: &device.pools,
            by: device.by,
            inclusive: device.by.is_inclusive(),
            pinning: device.pinning.rows.iter().map(PinningGroup::from).collect(),
            free_blocks: &device.free_blocks,
            rounding: device.used_blocks.iter().map(RoundingLoss::from).collect(),
            segments: &device.segments,
            over_time: device.over_time.as_deref(),
            settings: device.settings.as_ref().map(OtherSettings::from),
        }
    }
}

/// The whole answer of `memviz fragmentation`.
pub fn fragmentation<'a>(source: Source<'a>, report: &'a FragmentationReport) -> Head<'a, FragmentationDevice<'a>> {
    Head::of::<FragmentationReport>(source, None, report.devices.iter().map(FragmentationDevice::from).collect())
}
