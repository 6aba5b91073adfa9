//! Blocks of a program that is played again, as far as their sizes depend on what else is there.
//!
//! In the large pool a block may exceed what was asked for by up to 1 MiB: `allocated` counts what is not split off. How
//! much that is depends on which free blocks there are, so it changes when a program keeps less memory. Those blocks are
//! placed by the [`Allocator`]; all others are as large as their rounded requests wherever they lie.

use crate::allocator::{Allocator, BlockId, Limits, Placement, PoolIndex, Request, Restored, SizeRules};
use crate::facts::segments::layout::Layout;
use crate::model::{BlockState, PoolId, SegmentType};

/// Stream and private pool: blocks of different ones never meet.
pub(super) type Pool = (u64, Option<PoolId>);

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// A block that is as large as its rounded request.
    Exact(u64),
    /// A block of the large pool.
    Placed(BlockId),
}

/// The blocks of one device.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    rules: SizeRules,
    /// Bytes of all blocks whose place does not matter.
    exact: u64,
    placed: Allocator,
}

impl Blocks {
    /// The blocks of a layout. Those in use are handed to `place` by their allocation.
    pub(super) fn new(rules: SizeRules, layout: &Layout, mut place: impl FnMut(usize, Handle)) -> Self {
        let placed = Allocator::new(rules.clone(), Limits::default(), Placement::Ascending, 0);
        let mut blocks = Self { rules, exact: 0, placed };
        for segment in &layout.segments {
            let pieces = layout.pieces_of(segment);
            if segment.segment_type == SegmentType::Small || segment.expandable {
                for piece in pieces.iter().filter(|piece| piece.state != BlockState::Inactive) {
                    blocks.exact = blocks.exact.saturating_add(piece.size);
                    piece.allocation.into_iter().for_each(|index| place(index, Handle::Exact(piece.size)));
                }
                continue;
            }
            let pool = blocks.pool((segment.stream.unwrap_or(0), segment.pool));
            let restored = Restored { pool, addr: segment.addr, size: segment.size, expandable: false };
            // A free that is pending completes before the next request, as all frees do here.
            let state = |state| if state == BlockState::Inactive { state } else { BlockState::ActiveAllocated };
            let tiles = pieces.iter().map(|piece| (piece.size, piece.size, state(piece.state)));
            blocks.placed.restore(&restored, tiles, |number, block| {
                pieces[number].allocation.into_iter().for_each(|index| place(index, Handle::Placed(block)));
            });
        }
        blocks
    }

    /// The pool that large blocks of a stream and private pool come from.
    pub(super) fn pool(&mut self, (stream, private): Pool) -> PoolIndex {
        self.placed.pool(stream, private, SegmentType::Large)
    }

    /// Bytes of all blocks in use.
    pub(super) fn allocated(&self) -> u64 {
        self.exact.saturating_add(self.placed.stats().allocated)
    }

    /// Serves a request.
    pub(super) fn alloc(&mut self, pool: PoolIndex, requested: u64) -> Handle {
        let bytes = self.rules.round(requested);
        if self.rules.is_large(bytes) && !self.rules.splits_always() {
            let request = Request { pool, bytes, requested, is_capturing: false, address: None };
            if let Some(block) = self.placed.alloc(request) {
                return Handle::Placed(block);
            }
        }
        self.add(bytes)
    }

    /// Bytes that are in use from now on, wherever they lie.
    pub(super) fn add(&mut self, bytes: u64) -> Handle {
        self.exact = self.exact.saturating_add(bytes);
        Handle::Exact(bytes)
    }

    /// Bytes of a block.
    pub(super) fn size(&self, handle: Handle) -> u64 {
        match handle {
            Handle::Exact(size) => size,
            Handle::Placed(block) => self.placed.size(block),
        }
    }

    /// Takes a block back.
    pub(super) fn free(&mut self, handle: Handle) {
        match handle {
            Handle::Exact(size) => self.exact = self.exact.saturating_sub(size),
            Handle::Placed(block) => self.placed.free(block),
        }
    }

    /// Gives every segment without a block in use back to the driver.
    pub(super) fn empty_cache(&mut self) {
        self.placed.empty_cache();
    }
}
