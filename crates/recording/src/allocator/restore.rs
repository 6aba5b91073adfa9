//! An allocator that starts from existing segments.

use super::blocks::{Block, BlockId, NONE, PoolIndex};
use super::model::{Allocator, driver_bytes};
use crate::model::BlockState;

/// A segment that exists before the first request: a regular one, or a mapped part of an expandable one.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    pub pool: PoolIndex,
    pub addr: u64,
    pub size: u64,
    /// Whether it is a mapped part of an expandable segment.
    pub expandable: bool,
}

impl Allocator {
    /// Adds a segment and its blocks, which cover it without gaps: bytes, requested bytes, and state. Segments must be in
    /// address order. `entered` receives the index within `blocks` of each active block, and its ID.
    pub fn restore(
        &mut self,
        segment: &Restored,
        blocks: impl Iterator<Item = (u64, u64, BlockState)>,
        mut entered: impl FnMut(usize, BlockId),
    ) {
        let (first, range) = if segment.expandable {
            (self.restore_pages(segment), self.ranges.len() as u32 - 1)
        } else {
            self.addresses.occupy(segment.addr, segment.size);
            (NONE, NONE)
        };
        self.used += driver_bytes(segment.size);
        self.stats.reserved += segment.size;
        self.stats.reserved_peak = self.stats.reserved;
        let (mut previous, next) = match self.blocks.get(first as usize) {
            Some(whole) => (whole.previous, whole.next),
            None => (NONE, NONE),
        };
        if first != NONE {
            self.drop_slot(first);
        }
        let mut addr = segment.addr;
        for (number, (size, requested, state)) in blocks.enumerate() {
            let index = self.add(Block::new(addr, size, segment.pool.0, range));
            self.link(index, previous, NONE);
            if state == BlockState::Inactive {
                self.enlist(index);
            } else {
                let id = self.hand_out(index, requested);
                if state == BlockState::ActivePendingFree {
                    self.request_free(id);
                }
                entered(number, id);
            }
            previous = index;
            addr += size;
        }
        if previous != NONE {
            let before = self.blocks[previous as usize].previous;
            self.link(previous, before, next);
        }
    }

    /// Takes the pages of a segment from the unmapped part of its range, which starts at the first segment of its pool.
    /// Returns the block for them.
    fn restore_pages(&mut self, segment: &Restored) -> u32 {
        let pool = segment.pool.0;
        let page = self.page_of(pool);
        let behind = self.pools[pool as usize].unmapped.last_key_value().map(|(_, &index)| index);
        let fits = |index: &u32| {
            let block = &self.blocks[*index as usize];
            let start = self.ranges[block.range as usize].addr;
            block.range as usize + 1 == self.ranges.len()
                && segment.addr >= block.addr
                && (segment.addr - start).is_multiple_of(page)
                && segment.addr - block.addr < block.size
                && segment.size <= block.size - (segment.addr - block.addr)
        };
        let unmapped = if let Some(index) = behind.filter(fits) {
            index
        } else {
            let size = self.limits.range.max(segment.size);
            let size = size.checked_next_multiple_of(page).unwrap_or(size);
            self.addresses.occupy(segment.addr, size);
            self.add_range(pool, segment.addr, size)
        };
        let gap = segment.addr - self.blocks[unmapped as usize].addr;
        let pages = if gap > 0 {
            self.cut_unmapped(unmapped, gap);
            let addr = self.blocks[unmapped as usize].addr;
            self.pools[pool as usize].unmapped.insert(addr, unmapped);
            self.blocks[unmapped as usize].next
        } else {
            unmapped
        };
        self.cut_unmapped(pages, segment.size);
        pages
    }
}
