//! How a set of segments is used: sums over a layout.

use super::layout::{Layout, SegmentLayout};
use super::pinning::pinned_units;
use crate::model::BlockState;
use crate::replay::History;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sums over some segments at an instant, in bytes. `allocated + pending_free + inactive` is `reserved`, and
/// `releasable + pinned_free` is `inactive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "FigureBytes"))]
#[serde(into = "FigureBytes")]
pub struct Figures {
    /// Number of segments.
    pub segments: u64,
    /// Number of active blocks: those in use, and those whose free is pending.
    pub blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Bytes of the segments.
    pub reserved: u64,
    /// Bytes of allocated blocks.
    pub allocated: u64,
    /// Bytes of blocks that the program freed but another stream may still use.
    pub pending_free: u64,
    /// Requested bytes in allocated blocks and those with a pending free. Wraps around in recordings that contradict
    /// themselves.
    pub requested: u64,
    /// Bytes of free blocks.
    pub inactive: u64,
    /// Free bytes that `empty_cache` releases: in segments without an active block, or in whole free pages of expandable
    /// segments. Segments of a private pool stay with it as long as the pool is used.
    pub releasable: u64,
    /// Free bytes that active blocks keep reserved.
    pub pinned_free: u64,
    pub largest_free_block: u64,
}

/// The keys of [`Figures`].
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FigureBytes {
    /// Bytes of the segments: `allocated + pending_free + inactive`.
    reserved_bytes: u64,
    /// Bytes of blocks in use and pending free.
    active_bytes: u64,
    /// Bytes of blocks in use.
    allocated_bytes: u64,
    /// Bytes of blocks freed by the program that another stream may still use.
    pending_free_bytes: u64,
    /// Requested bytes in active blocks.
    requested_bytes: u64,
    /// Bytes of free blocks: `releasable + pinned_free`.
    inactive_bytes: u64,
    /// `inactive_bytes / reserved_bytes`, from 0 to 1.
    inactive_share: f64,
    /// `active_bytes - requested_bytes`.
    rounding_bytes: i64,
    /// The largest free block.
    largest_free_block_bytes: u64,
    /// Free bytes in segments, or pages of expandable ones, without a live block.
    releasable_bytes: u64,
    /// Free bytes that live blocks keep from being released.
    pinned_free_bytes: u64,
    /// Number of segments.
    segment_count: u64,
    /// Number of blocks in use and pending free.
    block_count: u64,
    /// Number of free blocks.
    free_block_count: u64,
}

impl From<Figures> for FigureBytes {
    fn from(figures: Figures) -> Self {
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

/// Amounts below this are not worth mentioning: CUDA's own context uses more.
pub(crate) const NOTABLE: u64 = 100 << 20;
/// Free memory that cannot be released is worth mentioning if it is at least this fraction (1/N) of reserved memory: a fifth
/// is more than the unused ends of segments take in programs without fragmentation.
const FRAGMENTED_PART: u64 = 5;

impl Figures {
    /// Whether active blocks keep so much free memory reserved that it is worth mentioning.
    pub(crate) fn pins_much(&self) -> bool {
        self.pinned_free >= NOTABLE && self.pinned_free >= self.reserved / FRAGMENTED_PART
    }

    /// The figures of a whole layout.
    pub fn of(history: &History, layout: &Layout) -> Self {
        layout
            .segments
            .iter()
            .fold(Self::default(), |sum, segment| sum.plus(&Self::of_segment(history, layout, segment)))
    }

    /// The combined figures of several sets of segments.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        parts.into_iter().fold(Self::default(), Self::plus)
    }

    /// The figures of one of its segments.
    pub fn of_segment(history: &History, layout: &Layout, segment: &SegmentLayout) -> Self {
        let mut figures = Self { segments: 1, reserved: segment.size, ..Self::default() };
        for piece in layout.pieces_of(segment) {
            match piece.state {
                BlockState::ActiveAllocated => figures.allocated += piece.size,
                BlockState::ActivePendingFree => figures.pending_free += piece.size,
                BlockState::Inactive => {
                    figures.free_blocks += 1;
                    figures.inactive += piece.size;
                    figures.largest_free_block = figures.largest_free_block.max(piece.size);
                }
            }
            if let Some(allocation) = piece.allocation.and_then(|index| history.allocations.get(index)) {
                figures.blocks += 1;
                figures.requested = figures.requested.wrapping_add(allocation.requested);
            }
        }
        pinned_units(layout, segment, |free, _| figures.pinned_free += free);
        figures.releasable = figures.inactive - figures.pinned_free;
        figures
    }

    /// The combined figures.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            blocks: self.blocks + other.blocks,
            free_blocks: self.free_blocks + other.free_blocks,
            reserved: self.reserved + other.reserved,
            allocated: self.allocated + other.allocated,
            pending_free: self.pending_free + other.pending_free,
            requested: self.requested.wrapping_add(other.requested),
            inactive: self.inactive + other.inactive,
            releasable: self.releasable + other.releasable,
            pinned_free: self.pinned_free + other.pinned_free,
            largest_free_block: self.largest_free_block.max(other.largest_free_block),
        }
    }

    /// Bytes of active blocks.
    pub fn active(&self) -> u64 {
        self.allocated + self.pending_free
    }

    /// Rounding loss: the bytes of blocks beyond the requested bytes. Negative only in recordings that contradict themselves.
    pub fn rounding(&self) -> i64 {
        self.active().wrapping_sub(self.requested) as i64
    }

    /// The fraction of `reserved` that is inactive, from 0 to 1; 0 if nothing is reserved.
    pub fn inactive_share(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.inactive as f64 / self.reserved as f64 }
    }
}

/// Blocks of similar size: from `min_bytes` to less than twice that, a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "FreeBlocks", rename = "FreeBlocks"))]
#[serde(into = "FreeBlocks")]
pub struct SizeClass {
    /// Smallest size in the class.
    pub min_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    pub bytes: u64,
    /// Requested bytes; 0 for free blocks.
    pub requested: u64,
}

/// The keys of [`SizeClass`] for free blocks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FreeBlocks {
    /// Smallest size in the class, a power of two.
    min_bytes: u64,
    /// Largest size in the class.
    max_bytes: u64,
    /// Number of blocks.
    blocks: u64,
    /// Their bytes.
    bytes: u64,
}

impl From<SizeClass> for FreeBlocks {
    fn from(class: SizeClass) -> Self {
        Self { min_bytes: class.min_bytes, max_bytes: class.max_bytes(), blocks: class.blocks, bytes: class.bytes }
    }
}

impl SizeClass {
    /// The largest size in the class.
    pub fn max_bytes(&self) -> u64 {
        self.min_bytes.saturating_mul(2).saturating_sub(1)
    }

    /// Rounding loss; see [`Figures::rounding`].
    pub fn rounding(&self) -> i64 {
        self.bytes.wrapping_sub(self.requested) as i64
    }
}

/// Blocks by size class, smallest first: either the free blocks, or the active ones.
pub(crate) fn size_classes<'l>(
    history: &History,
    layout: &'l Layout,
    segments: impl Iterator<Item = &'l SegmentLayout>,
    free: bool,
) -> Vec<SizeClass> {
    let mut classes: BTreeMap<u64, SizeClass> = BTreeMap::new();
    for piece in segments.flat_map(|segment| layout.pieces_of(segment)) {
        if (piece.state == BlockState::Inactive) != free {
            continue;
        }
        let requested = piece.allocation.and_then(|index| history.allocations.get(index)).map_or(0, |it| it.requested);
        let min_bytes = 1 << piece.size.max(1).ilog2();
        let class = classes.entry(min_bytes).or_insert(SizeClass { min_bytes, ..SizeClass::default() });
        class.blocks += 1;
        class.bytes += piece.size;
        class.requested = class.requested.wrapping_add(requested);
    }
    classes.into_values().collect()
}
