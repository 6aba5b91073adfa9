//! Segments and their blocks at an instant.

use super::json;
use crate::analysis::oom::Unserved;
use crate::facts::device::Device;
use crate::facts::grouping::private_pools::PrivatePools;
use crate::facts::segments::layout::{Layout, Piece, SegmentLayout};
use crate::facts::segments::pinning::charged;
use crate::model::{BlockState, DEFAULT_POOL, PoolId, SegmentType};
use crate::replay::Instant;
use crate::report::common::json::keys;
use serde::Serialize;

#[derive(Serialize)]
struct SegmentMap {
    instant: Instant,
    reserved_bytes: u64,
    active_bytes: u64,
    segments: Vec<Segment>,
    stray: Vec<usize>,
    failed: Option<Failed>,
}

keys! {
    /// The request that has just failed, and the free blocks for it.
    struct Failed(unserved: &Unserved) {
        let Unserved { request, serving, holes, .. } = unserved;
        pub bytes: u64 = request.bytes,
        pub site: String = request.site.clone(),
        /// The largest free block that could have served it, had it been larger.
        pub largest_bytes: u64 = serving.largest_usable,
        pub free_bytes: u64 = serving.figures.inactive,
        /// Free blocks of the segments that serve such requests.
        pub holes: usize = holes.len(),
        /// Bytes of the largest of them.
        pub largest_holes: Vec<u64> = holes.iter().copied().take(HOLES).collect(),
    }
}

/// The most free blocks that are listed for a failed request.
const HOLES: usize = 24;

keys! {

    struct Segment(layout: &Layout, segment: &SegmentLayout, pools: &PoolNames) {
        let charged = charged(layout, segment);
        let block = |piece: &Piece| Block {
            offset: piece.addr - segment.addr,
            bytes: piece.size,
            state: state(piece.state),
            allocation: piece.allocation,
            keeps: piece.allocation.and_then(|allocation| charged.get(&allocation).copied()).unwrap_or(0),
        };
        pub address: String = address(segment.addr),
        pub bytes: u64 = segment.size,
        pub expandable: bool = segment.expandable,
        pub r#type: &'static str = match segment.segment_type {
            SegmentType::Small => "small",
            SegmentType::Large => "large",
        },
        pub stream: Option<u64> = segment.stream,
        pub pool: Option<String> = segment.pool.map(|pool| pools.name(pool)),
        pub blocks: Vec<Block> = layout.pieces_of(segment).iter().map(block).collect(),
    }
}

#[derive(Debug, Serialize)]
struct Block {
    offset: u64,
    bytes: u64,
    state: &'static str,
    allocation: Option<usize>,
    /// Free bytes that cannot be released because of this block, as `memviz fragmentation` attributes them.
    keeps: u64,
}

/// The layout of a device at an instant, in address order.
pub fn segments(device: &Device<'_>, instant: Instant) -> String {
    let layout = Layout::at(device.track, instant);
    let pools = PoolNames::of(device, layout.segments.iter().filter_map(|segment| segment.pool));
    let used = layout.pieces.iter().filter(|piece| piece.state != BlockState::Inactive);
    json(&SegmentMap {
        instant,
        reserved_bytes: layout.segments.iter().fold(0, |sum: u64, segment| sum.wrapping_add(segment.size)),
        active_bytes: used.fold(0, |sum: u64, piece| sum.wrapping_add(piece.size)),
        segments: layout.segments.iter().map(|segment| Segment::of(&layout, segment, &pools)).collect(),
        stray: layout.stray.clone(),
        failed: Unserved::at(device, instant, &layout).map(|unserved| Failed::of(&unserved)),
    })
}

/// The state of a block, in one word.
pub(super) fn state(state: BlockState) -> &'static str {
    match state {
        BlockState::ActiveAllocated => "allocated",
        BlockState::ActivePendingFree => "pending_free",
        BlockState::Inactive => "inactive",
    }
}

/// An address as debuggers show it: JavaScript has no integers of 64 bits.
pub(super) fn address(address: u64) -> String {
    format!("{address:#x}")
}

/// The names of pools, with the kind of private ones: `private (0, 1): MemPool`.
pub(super) struct PoolNames(PrivatePools);

impl PoolNames {
    /// Determines the uses of private pools, if any of these pools is private.
    pub fn of(device: &Device<'_>, mut pools: impl Iterator<Item = PoolId>) -> Self {
        let has_private = pools.any(|pool| pool != DEFAULT_POOL);
        Self(if has_private { PrivatePools::of(device.track, device.sites()) } else { PrivatePools::default() })
    }

    pub fn name(&self, id: PoolId) -> String {
        match self.0.get(id) {
            Some(known) => format!("{}: {}", pool(id), known.kind.words()),
            None => pool(id),
        }
    }
}

pub(super) fn pool(pool: PoolId) -> String {
    if pool == DEFAULT_POOL { "default".to_owned() } else { format!("private ({}, {})", pool.0, pool.1) }
}
