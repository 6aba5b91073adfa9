//! Segments and their blocks at an instant.

use super::json;
use crate::facts::device::Device;
use crate::facts::grouping::private_pools::PrivatePools;
use crate::facts::segments::layout::{Layout, Piece, SegmentLayout};
use crate::model::{BlockState, DEFAULT_POOL, PoolId, SegmentType};
use crate::replay::Instant;
use serde::Serialize;

#[derive(Serialize)]
struct SegmentMap {
    instant: Instant,
    reserved_bytes: u64,
    active_bytes: u64,
    segments: Vec<Segment>,
    stray: Vec<usize>,
}

#[derive(Serialize)]
struct Segment {
    address: String,
    bytes: u64,
    expandable: bool,
    r#type: &'static str,
    stream: Option<u64>,
    pool: Option<String>,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    offset: u64,
    bytes: u64,
    state: &'static str,
    allocation: Option<usize>,
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
    })
}

impl Segment {
    fn of(layout: &Layout, segment: &SegmentLayout, pools: &PoolNames) -> Self {
        let block = |piece: &Piece| Block {
            offset: piece.addr - segment.addr,
            bytes: piece.size,
            state: state(piece.state),
            allocation: piece.allocation,
        };
        Self {
            address: address(segment.addr),
            bytes: segment.size,
            expandable: segment.expandable,
            r#type: match segment.segment_type {
                SegmentType::Small => "small",
                SegmentType::Large => "large",
            },
            stream: segment.stream,
            pool: segment.pool.map(|pool| pools.name(pool)),
            blocks: layout.pieces_of(segment).iter().map(block).collect(),
        }
    }
}

/// The state of a block in a word.
pub(super) fn state(state: BlockState) -> &'static str {
    match state {
        BlockState::ActiveAllocated => "allocated",
        BlockState::ActivePendingFree => "pending_free",
        BlockState::Inactive => "inactive",
    }
}

/// An address as debuggers write it: JavaScript has no integers of 64 bits.
pub(super) fn address(address: u64) -> String {
    format!("{address:#x}")
}

/// The names of pools, with what private ones are for: `private (0, 1): MemPool`.
pub(super) struct PoolNames(PrivatePools);

impl PoolNames {
    /// Looks at what private pools are for, if any of these is one.
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

/// A pool by its name.
pub(super) fn pool(pool: PoolId) -> String {
    if pool == DEFAULT_POOL { "default".to_owned() } else { format!("private ({}, {})", pool.0, pool.1) }
}
