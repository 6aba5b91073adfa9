//! Expandable segments.
//!
//! Each pool and stream has one range of addresses, larger than the device. Pages are mapped into it as they are needed.

use super::blocks::{Block, State};
use super::model::{Allocator, Range, Request, driver_bytes};
use crate::model::{Action, SegmentType};

impl Allocator {
    /// Bytes of the pages of a pool.
    pub(super) fn page_of(&self, pool: u32) -> u64 {
        let is_small = self.pools[pool as usize].is_small;
        self.rules.page_size(if is_small { SegmentType::Small } else { SegmentType::Large })
    }

    /// `try_allocate_expandable_block`: maps pages until a free block is large enough. If that fails, the pages stay mapped.
    pub(super) fn grow_in_place(&mut self, request: &Request) -> Option<u32> {
        let mut found = self.find_room(request)?;
        if self.blocks[found as usize].state == State::Unmapped {
            let bytes = self.blocks[found as usize].size.min(request.bytes);
            found = self.map(found, bytes)?;
        }
        loop {
            let Block { size, next, .. } = self.blocks[found as usize];
            if size >= request.bytes {
                return Some(found);
            }
            let bytes = self.blocks.get(next as usize)?.size.min(request.bytes - size);
            found = self.map(next, bytes)?;
        }
    }

    /// `find_expandable_block`: the lowest run of unmapped and free blocks with enough room, including the free block before
    /// the unmapped one if there is one; otherwise a new range.
    fn find_room(&mut self, request: &Request) -> Option<u32> {
        let is_available = |block: &Block| matches!(block.state, State::Free | State::Unmapped);
        for &unmapped in self.pools[request.pool.0 as usize].unmapped.values() {
            let before = self.blocks[unmapped as usize].previous;
            let is_free = self.blocks.get(before as usize).is_some_and(is_available);
            let start = if is_free { before } else { unmapped };
            let mut room = 0u64;
            let mut next = start;
            while let Some(block) = self.blocks.get(next as usize).filter(|block| is_available(block)) {
                room += block.size;
                if room >= request.bytes {
                    return Some(start);
                }
                next = block.next;
            }
        }
        let page = self.page_of(request.pool.0);
        let size = self.limits.range.max(request.bytes).checked_next_multiple_of(page)?;
        // The end of a known range is unknown, but ranges do not overlap.
        let addr = match request.address {
            Some(known) => known,
            None => self.addresses.take(size, None)?,
        };
        Some(self.add_range(request.pool.0, addr, size))
    }

    /// A range of addresses without memory: its only block.
    pub(super) fn add_range(&mut self, pool: u32, addr: u64, size: u64) -> u32 {
        let range = self.ranges.len() as u32;
        self.ranges.push(Range { addr, size });
        let index = self.add(Block { state: State::Unmapped, ..Block::new(addr, size, pool, range) });
        self.pools[pool as usize].unmapped.insert(addr, index);
        index
    }

    /// `map_block`: maps whole pages for the first bytes of an unmapped block. Returns the free block that then contains
    /// them; `None` if the driver does not have the memory.
    fn map(&mut self, index: u32, bytes: u64) -> Option<u32> {
        let Block { addr, size, pool, .. } = self.blocks[index as usize];
        let mapped = bytes.checked_next_multiple_of(self.page_of(pool))?.min(size);
        if !self.limits.capacity.fits(self.used.saturating_add(driver_bytes(mapped))) {
            return None;
        }
        self.count_reserved(Action::SegmentMap, addr, mapped);
        self.cut_unmapped(index, mapped);
        self.add_free(index);
        Some(index)
    }

    /// Removes an unmapped block from its pool's list, and adds the part after its first bytes as another block.
    pub(super) fn cut_unmapped(&mut self, index: u32, bytes: u64) {
        let block = self.blocks[index as usize];
        self.pools[block.pool as usize].unmapped.remove(&block.addr);
        if bytes < block.size {
            let addr = block.addr + bytes;
            let rest = self.add(Block { addr, size: block.size - bytes, ..block });
            self.link(rest, index, block.next);
            self.pools[block.pool as usize].unmapped.insert(addr, rest);
        }
        self.blocks[index as usize].size = bytes;
    }
}
