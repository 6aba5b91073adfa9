//! The JSON of `memviz fragmentation`.

use crate::analysis::fragmentation::over_time::OverTimeRow;
use crate::analysis::fragmentation::{
    DeviceFragmentation, FragmentationReport, PoolFragmentation, SegmentFragmentation, Stranded,
};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::{Figures, SizeClass};
use crate::facts::segments::pinning::PinningRow;
use crate::facts::time::moment::Moment;
use crate::model::{PoolId, SegmentType};
use crate::play::{SettingsAdvice, Trust};
use crate::replay::History;
use crate::report::Source;
use crate::report::common::json::{CounterBytes, Head, PrivatePoolFacts};
use crate::report::common::notes;
use indexmap::IndexMap;
use serde::Serialize;

/// `memviz fragmentation`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FragmentationDevice {
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
    pub at: Instant,
    /// Sums over all segments.
    #[serde(flatten)]
    pub figures: FigureBytes,
    /// Active blocks that are in no segment or overlap: in no other figure; 0 unless the recording contradicts itself.
    pub stray_blocks: u64,
    /// Their bytes.
    pub stray_bytes: u64,
    /// The counters of `memory_stats()` at the instant. They equal the figures unless the recording contradicts itself.
    pub counters: CounterBytes,
    /// The instant of the whole history at which the most memory is inactive.
    pub most_inactive: MostInactiveInstant,
    /// The segments by pool and stream, the largest first; they sum to the figures above.
    pub pools: Vec<Pool>,
    /// Free memory that only one side stream or pool can use. Left out if there is little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stranded: Option<StrandedMemory>,
    /// What rows of `pinning` represent.
    pub by: GroupBy,
    /// Whether those rows overlap.
    pub inclusive: bool,
    /// The code that keeps free bytes from being released. Rows sum to `pinned_free_bytes`, unless they are inclusive.
    pub pinning: Vec<PinningGroup>,
    /// Free blocks by size.
    pub free_blocks: Vec<FreeBlocks>,
    /// Rounding loss of blocks in use and pending free, by block size.
    pub rounding: Vec<RoundingLoss>,
    /// Every segment, in address order.
    pub segments: Vec<Segment>,
    /// Rows over time; only if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<Vec<OverTime>>,
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

/// An instant.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Instant {
    /// Entry that leads to it, counted within the device's trace; null before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry since the epoch; null if the file has no times.
    pub time_us: Option<i64>,
    /// Open `record_function` ranges, outermost first.
    pub annotations: Vec<String>,
}

/// Sums over some segments.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FigureBytes {
    /// Bytes of the segments: `allocated + pending_free + inactive`.
    pub reserved_bytes: u64,
    /// Bytes of blocks in use and pending free.
    pub active_bytes: u64,
    /// Bytes of blocks in use.
    pub allocated_bytes: u64,
    /// Bytes of blocks freed by the program that another stream may still use.
    pub pending_free_bytes: u64,
    /// Requested bytes in active blocks.
    pub requested_bytes: u64,
    /// Bytes of free blocks: `releasable + pinned_free`.
    pub inactive_bytes: u64,
    /// `inactive_bytes / reserved_bytes`, from 0 to 1.
    pub inactive_share: f64,
    /// `active_bytes - requested_bytes`.
    pub rounding_bytes: i64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
    /// Free bytes in segments, or pages of expandable ones, without a live block.
    pub releasable_bytes: u64,
    /// Free bytes that live blocks keep from being released.
    pub pinned_free_bytes: u64,
    /// Number of segments.
    pub segment_count: u64,
    /// Number of blocks in use and pending free.
    pub block_count: u64,
    /// Number of free blocks.
    pub free_block_count: u64,
}

/// The instant at which the most memory is inactive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MostInactiveInstant {
    /// First entry that leads there; null before the first entry.
    pub entry: Option<u32>,
    /// Inactive bytes there.
    pub inactive_bytes: i64,
    /// Reserved bytes there.
    pub reserved_bytes: i64,
}

/// Free memory that only one stream or pool can use.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StrandedMemory {
    /// Its stream.
    pub stream: u64,
    /// Its pool, (0, 0) for the default one.
    pub pool_id: PoolId,
    /// The free bytes.
    pub free_bytes: u64,
    /// The line of its first recorded request; null if no stack shows it.
    pub first_used: Option<String>,
}

impl From<&Stranded> for StrandedMemory {
    fn from(stranded: &Stranded) -> Self {
        let Stranded { stream, pool, free, first_used, .. } = stranded;
        Self { stream: *stream, pool_id: *pool, free_bytes: *free, first_used: first_used.clone() }
    }
}

/// Segments whose free blocks serve the same requests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pool {
    /// `small` for blocks of up to 1 MiB, otherwise `large`.
    pub segment_type: &'static str,
    /// CUDA stream; null if the file does not record it.
    pub stream: Option<u64>,
    /// Pool id, (0, 0) for the default one; null if the file does not record it.
    pub pool_id: Option<PoolId>,
    /// Details of a private pool. Left out for other pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivatePoolFacts>,
    /// Whether its segments are expandable.
    pub expandable: bool,
    /// Sums over its segments.
    #[serde(flatten)]
    pub figures: FigureBytes,
    /// Its free blocks by size.
    pub free_blocks: Vec<FreeBlocks>,
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

/// Free blocks of similar size.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FreeBlocks {
    /// Smallest size in the class, a power of two.
    pub min_bytes: u64,
    /// Largest size in the class.
    pub max_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
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

/// A segment.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// `small` or `large`.
    pub segment_type: &'static str,
    /// CUDA stream; null if the file does not record it.
    pub stream: Option<u64>,
    /// Pool id; null if the file does not record it.
    pub pool_id: Option<PoolId>,
    /// Whether it is a mapped part of an expandable segment.
    pub expandable: bool,
    /// Site of the request that created it.
    pub made_by: String,
    /// Sums over its blocks.
    #[serde(flatten)]
    pub figures: FigureBytes,
}

/// One row over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverTime {
    /// The instant.
    #[serde(flatten)]
    pub at: Instant,
    /// Sums over all segments there.
    #[serde(flatten)]
    pub figures: FigureBytes,
}

/// `small` or `large`, as in snapshots.
pub fn segment_type(segment_type: SegmentType) -> &'static str {
    match segment_type {
        SegmentType::Small => "small",
        SegmentType::Large => "large",
    }
}

impl From<&Moment> for Instant {
    fn from(moment: &Moment) -> Self {
        Self { entry: moment.entry, time_us: moment.time_us, annotations: moment.annotations.clone() }
    }
}

impl From<&Figures> for FigureBytes {
    fn from(figures: &Figures) -> Self {
        Self {
            reserved_bytes: figures.reserved,
            active_bytes: figures.active(),
            allocated_bytes: figures.allocated,
            pending_free_bytes: figures.pending_free,
            requested_bytes: figures.requested,
            inactive_bytes: figures.inactive,
            inactive_share: figures.inactive_share(),
            rounding_bytes: figures.rounding(),
            largest_free_block_bytes: figures.largest_free_block,
            releasable_bytes: figures.releasable,
            pinned_free_bytes: figures.pinned_free,
            segment_count: figures.segments,
            block_count: figures.blocks,
            free_block_count: figures.free_blocks,
        }
    }
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

impl From<&SizeClass> for FreeBlocks {
    fn from(class: &SizeClass) -> Self {
        Self { min_bytes: class.min_bytes, max_bytes: class.max_bytes(), blocks: class.blocks, bytes: class.bytes }
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

impl From<&PoolFragmentation> for Pool {
    fn from(pool: &PoolFragmentation) -> Self {
        Self {
            segment_type: segment_type(pool.segment_type),
            stream: pool.stream,
            pool_id: pool.pool,
            private: pool.private.as_ref().map(PrivatePoolFacts::from),
            expandable: pool.expandable,
            figures: (&pool.figures).into(),
            free_blocks: pool.free_blocks.iter().map(FreeBlocks::from).collect(),
        }
    }
}

impl From<&SegmentFragmentation> for Segment {
    fn from(SegmentFragmentation { segment, figures, made_by }: &SegmentFragmentation) -> Self {
        Self {
            address: segment.addr,
            segment_type: segment_type(segment.segment_type),
            stream: segment.stream,
            pool_id: segment.pool,
            expandable: segment.expandable,
            made_by: made_by.clone(),
            figures: figures.into(),
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

impl From<&OverTimeRow> for OverTime {
    fn from(row: &OverTimeRow) -> Self {
        Self { at: (&row.moment).into(), figures: (&row.figures).into() }
    }
}

impl From<&DeviceFragmentation> for FragmentationDevice {
    fn from(device: &DeviceFragmentation) -> Self {
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
            at: (&device.moment).into(),
            figures: (&device.figures).into(),
            stray_blocks: device.stray.0,
            stray_bytes: device.stray.1,
            counters: (&device.counters).into(),
            stranded: device.stranded.as_ref().map(StrandedMemory::from),
            most_inactive: MostInactiveInstant {
                entry: History::entry_before(device.most_inactive.instant),
                inactive_bytes: device.most_inactive.inactive,
                reserved_bytes: device.most_inactive.reserved,
            },
            pools: device.pools.iter().map(Pool::from).collect(),
            by: device.by,
            inclusive: device.by.is_inclusive(),
            pinning: device.pinning.rows.iter().map(PinningGroup::from).collect(),
            free_blocks: device.free_blocks.iter().map(FreeBlocks::from).collect(),
            rounding: device.used_blocks.iter().map(RoundingLoss::from).collect(),
            segments: device.segments.iter().map(Segment::from).collect(),
            over_time: device.over_time.as_ref().map(|rows| rows.iter().map(OverTime::from).collect()),
            settings: device.settings.as_ref().map(OtherSettings::from),
        }
    }
}

/// The whole answer of `memviz fragmentation`.
pub fn fragmentation<'a>(source: Source<'a>, report: &FragmentationReport) -> Head<'a, FragmentationDevice> {
    Head::of::<FragmentationReport>(source, None, report.devices.iter().map(FragmentationDevice::from).collect())
}
