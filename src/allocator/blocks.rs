//! Blocks, and the pools that hold the free ones.

use crate::model::PoolId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// No block, or no range.
pub(super) const NONE: u32 = u32::MAX;

/// A block that was handed out. Once its free has completed, it refers to nothing, whatever is at its address then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    pub(super) index: u32,
    /// [`Block::serial`] of the block that is meant.
    pub(super) serial: u32,
}

/// A pool of one allocator: what belongs to one stream, one private pool, and small or large blocks. Blocks of different
/// ones never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolIndex(pub(super) u32);

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Allocated,
    /// Freed by the program, in use by another stream.
    Pending,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
    /// A slot that no block uses.
    Gone,
}

/// A piece of a segment, or of the range of an expandable one. Neighbors are linked; no two free ones touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub addr: u64,
    pub size: u64,
    /// What its last owner requested, in bytes.
    pub requested: u64,
    /// Neighbors within the segment.
    pub previous: u32,
    pub next: u32,
    pub pool: u32,
    /// Index of the expandable range it is in, [`NONE`] in a plain segment.
    pub range: u32,
    /// Searches in its pool when it became free.
    pub free_since: u32,
    /// Number of the request that it was handed out for last.
    pub serial: u32,
    pub state: State,
}

impl Block {
    /// Address space or memory that nobody uses, in no list yet.
    pub fn new(addr: u64, size: u64, pool: u32, range: u32) -> Self {
        let (previous, next) = (NONE, NONE);
        Self { addr, size, requested: 0, previous, next, pool, range, free_since: 0, serial: 0, state: State::Gone }
    }

    /// Whether it is a whole plain segment.
    pub fn is_whole_segment(&self) -> bool {
        self.previous == NONE && self.next == NONE && self.range == NONE
    }
}

/// Free and unmapped blocks of one pool and stream.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four facts about a pool, none of which excludes another")]
pub(super) struct Pool {
    pub is_private: bool,
    pub is_small: bool,
    /// Whether the private pool is no longer needed, so that its memory may be released.
    pub is_released: bool,
    /// Whether its segments are plain ones whatever the settings say.
    pub is_plain: bool,
    /// The pool with which it shares the count of searches: PyTorch has one for all streams.
    pub counts_in: u32,
    /// Searches for a free block while ages count.
    pub searches: u32,
    /// Free blocks by size and address: the order in which the allocator looks at them.
    pub free: BTreeMap<(u64, u64), u32>,
    /// Unmapped blocks by address.
    pub unmapped: BTreeMap<u64, u32>,
}

/// The id of the pool that is nobody's own.
pub(super) const DEFAULT_POOL: PoolId = (0, 0);

/// What a pool is, in the order in which what is cached in pools is given back: default before private ones, large before
/// small, and by stream. Those of graphs that are no longer needed release small blocks first.
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
    /// Whether what is cached in it may be given back to the driver.
    pub fn may_release(&self) -> bool {
        !self.is_private || self.is_released
    }
}
