//! A caching allocator that decides for itself where blocks go.
//!
//! In the large pool a block may exceed what was asked for by up to 1 MiB: `allocated` counts what is not split off. How
//! much that is depends on which free blocks there are, so it changes when a program keeps less memory. This plays
//! requests by the rules of `CUDACachingAllocator` (`get_free_block`, `should_split`, `free_block`).

use crate::allocator::SizeRules;
use crate::analysis::segments::layout::Layout;
use crate::model::{BlockState, PoolId, SegmentType};
use std::collections::{BTreeSet, HashMap};

/// Stream and private pool: blocks of different ones never meet.
pub(super) type Pool = (u64, Option<PoolId>);

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// A block that is as large as its rounded request: those of the small pool.
    Exact(u64),
    /// A block of the large pool, as an index.
    Placed(u32),
}

const NO_BLOCK: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    addr: u64,
    size: u64,
    pool: u32,
    /// Neighbours within the segment.
    previous: u32,
    next: u32,
    is_free: bool,
}

/// The blocks of one device.
#[derive(Clone, Debug)]
pub(super) struct Allocator {
    rules: SizeRules,
    blocks: Vec<Block>,
    /// Indexes of blocks that were merged into others.
    unused: Vec<u32>,
    pools: HashMap<Pool, u32>,
    /// Free blocks of each pool by size and address.
    free: Vec<BTreeSet<(u64, u64, u32)>>,
    /// Address of the next segment.
    next_segment: u64,
    /// Bytes of all blocks in use.
    pub(super) allocated: u64,
}

impl Allocator {
    /// An allocator with the segments of a layout, whose blocks in use are handed to `place` by their allocation.
    pub(super) fn new(rules: SizeRules, layout: &Layout, mut place: impl FnMut(usize, Handle)) -> Self {
        let mut allocator = Self {
            rules,
            blocks: Vec::new(),
            unused: Vec::new(),
            pools: HashMap::new(),
            free: Vec::new(),
            next_segment: layout.segments.last().map_or(0, |last| last.addr.saturating_add(last.size)),
            allocated: 0,
        };
        for segment in &layout.segments {
            let pool = allocator.pool((segment.stream.unwrap_or(0), segment.pool));
            let is_placed = segment.segment_type == SegmentType::Large && !segment.expandable;
            let mut previous = NO_BLOCK;
            for piece in layout.pieces_of(segment) {
                let is_free = piece.state == BlockState::Inactive;
                if !is_free {
                    allocator.allocated += piece.size;
                }
                if !is_placed {
                    piece.allocation.into_iter().for_each(|index| place(index, Handle::Exact(piece.size)));
                    continue;
                }
                let block = Block { addr: piece.addr, size: piece.size, pool, previous, next: NO_BLOCK, is_free };
                let index = allocator.add(block);
                if let Some(before) = allocator.blocks.get_mut(previous as usize) {
                    before.next = index;
                }
                previous = index;
                piece.allocation.into_iter().for_each(|allocation| place(allocation, Handle::Placed(index)));
            }
        }
        allocator
    }

    /// The number of a pool.
    pub(super) fn pool(&mut self, pool: Pool) -> u32 {
        let next = self.free.len() as u32;
        let number = *self.pools.entry(pool).or_insert(next);
        if number == next {
            self.free.push(BTreeSet::new());
        }
        number
    }

    /// Serves a request.
    pub(super) fn alloc(&mut self, pool: u32, requested: u64) -> Handle {
        let rounded = self.rules.round(requested);
        if !self.rules.is_large(rounded) || self.rules.splits_always() {
            self.allocated = self.allocated.saturating_add(rounded);
            return Handle::Exact(rounded);
        }
        let found = self.best_fit(pool, rounded).unwrap_or_else(|| self.add_segment(pool, rounded));
        let Block { addr, size, next, .. } = self.blocks[found as usize];
        self.free[pool as usize].remove(&(size, addr, found));
        let taken = self.rules.large_block(rounded, size);
        if taken < size {
            let rest = Block { addr: addr + taken, size: size - taken, pool, previous: found, next, is_free: true };
            let rest = self.add(rest);
            if let Some(after) = self.blocks.get_mut(next as usize) {
                after.previous = rest;
            }
            self.blocks[found as usize].next = rest;
        }
        let block = &mut self.blocks[found as usize];
        (block.size, block.is_free) = (taken, false);
        self.allocated += taken;
        Handle::Placed(found)
    }

    /// Bytes of a block.
    pub(super) fn size(&self, handle: Handle) -> u64 {
        match handle {
            Handle::Exact(size) => size,
            Handle::Placed(index) => self.blocks[index as usize].size,
        }
    }

    /// Takes a block back.
    pub(super) fn free(&mut self, handle: Handle) {
        let index = match handle {
            Handle::Exact(size) => {
                self.allocated -= size;
                return;
            }
            Handle::Placed(index) => index,
        };
        let mut block = self.blocks[index as usize];
        self.allocated -= block.size;
        for neighbour in [block.previous, block.next] {
            let Some(&other) = self.blocks.get(neighbour as usize).filter(|other| other.is_free) else { continue };
            self.free[other.pool as usize].remove(&(other.size, other.addr, neighbour));
            self.unused.push(neighbour);
            block.size += other.size;
            if neighbour == block.previous {
                (block.addr, block.previous) = (other.addr, other.previous);
            } else {
                block.next = other.next;
            }
        }
        block.is_free = true;
        self.blocks[index as usize] = block;
        if let Some(before) = self.blocks.get_mut(block.previous as usize) {
            before.next = index;
        }
        if let Some(after) = self.blocks.get_mut(block.next as usize) {
            after.previous = index;
        }
        self.free[block.pool as usize].insert((block.size, block.addr, index));
    }

    /// Gives every segment without a block in use back to the driver.
    pub(super) fn release_cached(&mut self) {
        for free in &mut self.free {
            let (blocks, unused) = (&self.blocks, &mut self.unused);
            free.retain(|&(_, _, index)| {
                let block = blocks[index as usize];
                let is_whole = block.previous == NO_BLOCK && block.next == NO_BLOCK;
                unused.extend(is_whole.then_some(index));
                !is_whole
            });
        }
    }

    /// The smallest free block that serves a request; blocks above `max_split_size` serve only requests near their size.
    fn best_fit(&self, pool: u32, rounded: u64) -> Option<u32> {
        let &(size, _, index) = self.free[pool as usize].range((rounded, 0, 0)..).next()?;
        (!self.rules.keeps_back(rounded, size)).then_some(index)
    }

    fn add_segment(&mut self, pool: u32, rounded: u64) -> u32 {
        let size = self.rules.driver_request(rounded, false);
        let addr = self.next_segment;
        self.next_segment = self.next_segment.saturating_add(size);
        self.add(Block { addr, size, pool, previous: NO_BLOCK, next: NO_BLOCK, is_free: true })
    }

    fn add(&mut self, block: Block) -> u32 {
        let index = self.unused.pop().unwrap_or(self.blocks.len() as u32);
        match self.blocks.get_mut(index as usize) {
            Some(unused) => *unused = block,
            None => self.blocks.push(block),
        }
        if block.is_free {
            self.free[block.pool as usize].insert((block.size, block.addr, index));
        }
        index
    }
}
