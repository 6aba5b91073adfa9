//! Blocks, and the pools of free blocks.

use crate::model::PoolId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

pub(super) const NONE: u32 = u32::MAX;

/// A block that was allocated. Once its free has completed, the ID refers to nothing, even if another block is at its
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    pub(super) index: u32,
    /// [`Block::serial`] of the block.
    pub(super) serial: u32,
}

/// A pool of one allocator: the blocks of one stream, one private pool, and one size class (small or large). Blocks of
/// different pools never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolIndex(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Allocated,
    /// Freed by the program, but still in use by another stream.
    Pending,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
    /// An unused slot.
    Gone,
}

/// A part of a segment, or of the range of an expandable segment. Neighbors are linked; two neighbors are never both free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub addr: u64,
    pub size: u64,
    /// The size of the last request that it served, in bytes.
    pub requested: u64,
    /// Neighbors within the segment.
    pub previous: u32,
    pub next: u32,
    pub pool: u32,
    /// Index of the expandable range that contains it; [`NONE`] in a regular segment.
    pub range: u32,
    /// The pool's number of searches when it became free.
    pub free_since: u32,
    /// Serial number of the last request that it served.
    pub serial: u32,
    pub state: State,
}

impl Block {
    /// Address space or memory that is unused and not in any list yet.
    pub fn new(addr: u64, size: u64, pool: u32, range: u32) -> Self {
        let (previous, next) = (NONE, NONE);
        Self { addr, size, requested: 0, previous, next, pool, range, free_since: 0, serial: 0, state: State::Gone }
    }

    /// Whether it is a whole regular segment.
    pub fn is_whole_segment(&self) -> bool {
        self.previous == NONE && self.next == NONE && self.range == NONE
    }
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four facts about a pool, none of which excludes another")]
pub(super) struct Pool {
    pub is_private: bool,
    pub is_small: bool,
    /// Whether the private pool is no longer needed, so that its memory may be released.
    pub is_released: bool,
    /// Whether its segments are regular ones regardless of the settings.
    pub is_plain: bool,
    /// The pool whose search counter it shares: PyTorch has one counter for all streams.
    pub counts_in: u32,
    /// Number of searches for a free block while garbage collection counts ages.
    pub searches: u32,
    /// Free blocks by size and address: the order in which the allocator searches them.
    pub free: BTreeMap<(u64, u64), u32>,
    /// Unmapped blocks by address.
    pub unmapped: BTreeMap<u64, u32>,
}

pub(super) const DEFAULT_POOL: PoolId = (0, 0);

/// The key of a pool, in the order in which cached blocks are released: default before private pools, large before small,
/// then by stream. Pools of graphs that are no longer needed release small blocks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolKey {
    pub is_private: bool,
    pub private: PoolId,
    pub is_second: bool,
    pub stream: u64,
}

impl PoolKey {
    pub fn new(private: PoolId, is_small: bool, stream: u64) -> Self {
        let is_private = private != DEFAULT_POOL;
        Self { is_private, private, is_second: is_small != is_private, stream }
    }

    /// The keys of all streams of a pool, for small and large blocks.
    pub fn all_of(private: PoolId) -> RangeInclusive<Self> {
        let first = Self { is_second: false, ..Self::new(private, false, 0) };
        first..=Self { is_second: true, stream: u64::MAX, ..first }
    }
}

impl Pool {
    /// Whether its cached blocks may be released to the driver.
    pub fn may_release(&self) -> bool {
        !self.is_private || self.is_released
    }
}
