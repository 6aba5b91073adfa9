//! What the allocator releases to the driver, and when.

use super::blocks::{Block, NONE, State};
use super::model::{Allocator, Request};
use crate::model::Action;

impl Allocator {
    /// `garbage_collect_cached_blocks`: releases whole segments of the default large pool that were free for long, until
    /// reserved memory is within the threshold. Segments of average age or older are released first.
    pub(super) fn collect_garbage(&mut self) {
        let Some(mut threshold) = self.limits.collected else { return };
        if !threshold.fits(self.stats.reserved) {
            let mut cached = self.collectable();
            let mut total_age: u64 = cached.iter().map(|&(_, age)| age).sum();
            let mut has_freed = true;
            while has_freed && !cached.is_empty() && !threshold.fits(self.stats.reserved) {
                let average = total_age as f64 / cached.len() as f64;
                let (old, young): (Vec<_>, Vec<_>) = cached.iter().partition(|&&(_, age)| age as f64 >= average);
                for &(index, age) in &old {
                    total_age -= age;
                    self.give_back(index);
                }
                has_freed = !old.is_empty();
                cached = young;
            }
        }
        self.limits.collected = Some(threshold);
    }

    /// Whole free segments of the default large pool, with the number of searches since they became free.
    fn collectable(&self) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for &pool in self.release_order.values() {
            let pool = &self.pools[pool as usize];
            if pool.is_small || pool.is_private {
                continue;
            }
            let searches = self.pools[pool.counts_in as usize].searches;
            let whole = pool.free.values().filter(|&&index| self.blocks[index as usize].is_whole_segment());
            found.extend(whole.map(|&index| (index, u64::from(searches - self.blocks[index as usize].free_since))));
        }
        found
    }

    /// `release_available_cached_blocks`: if blocks of `max_split_size` and more are not split, releases one that is large
    /// enough for the request, or several, the largest first. Returns whether that is enough. Blocks in expandable segments
    /// stay, and so do parts of regular segments, which are never that large under settings that PyTorch accepts.
    pub(super) fn release_oversize(&mut self, request: &Request) -> bool {
        let Some(oversize) = self.rules.max_split_size() else { return false };
        let wanted = request.bytes.max(oversize);
        let is_whole = |index: u32| self.blocks[index as usize].is_whole_segment();
        let free = &self.pools[request.pool.0 as usize].free;
        if let Some((_, &index)) = free.range((wanted, 0)..).next().filter(|&(_, &index)| is_whole(index)) {
            self.give_back(index);
            return true;
        }
        let mut released = 0;
        let mut gone = Vec::new();
        for (&(size, _), &index) in free.range(..(wanted, 0)).rev() {
            if released >= wanted || size < oversize {
                break;
            }
            if is_whole(index) {
                released += size;
                gone.push(index);
            }
        }
        for index in gone {
            self.give_back(index);
        }
        released >= wanted
    }

    /// `release_cached_blocks`: waits for every pending free, then releases all segments that are completely free.
    pub(super) fn release_cached(&mut self) {
        for index in std::mem::take(&mut self.pending) {
            self.complete_free(index);
        }
        let may_release = |&pool: &u32| {
            let pool = &self.pools[pool as usize];
            pool.may_release() && !pool.free.is_empty()
        };
        let pools: Vec<u32> = self.release_order.values().copied().filter(may_release).collect();
        for pool in pools {
            let cached: Vec<u32> = self.pools[pool as usize].free.values().copied().collect();
            let (plain, expandable): (Vec<u32>, Vec<u32>) =
                cached.into_iter().partition(|&index| self.blocks[index as usize].range == NONE);
            for index in plain {
                if self.blocks[index as usize].is_whole_segment() {
                    self.give_back(index);
                }
            }
            for index in expandable {
                self.unmap(index);
            }
        }
    }

    /// Releases a whole free segment (`release_block`).
    fn give_back(&mut self, index: u32) {
        let Block { addr, size, pool, .. } = self.blocks[index as usize];
        self.pools[pool as usize].free.remove(&(size, addr));
        self.drop_slot(index);
        self.addresses.give_back(addr, size);
        self.count_returned(Action::SegmentFree, addr, size);
    }

    /// Unmaps the whole pages within a free block of an expandable segment (`unmap_block`); a segment without mapped memory
    /// is removed.
    fn unmap(&mut self, index: u32) {
        let block = self.blocks[index as usize];
        let page = self.page_of(block.pool);
        let offset = block.addr - self.ranges[block.range as usize].addr;
        let from = offset.next_multiple_of(page) - offset;
        let to = ((offset + block.size) / page * page).saturating_sub(offset);
        if from >= to {
            return;
        }
        self.pools[block.pool as usize].free.remove(&(block.size, block.addr));
        let (addr, size) = (block.addr + from, to - from);
        if from > 0 {
            let before = self.add(Block::new(block.addr, from, block.pool, block.range));
            self.link(before, block.previous, index);
            self.enlist(before);
        }
        if to < block.size {
            let after = self.add(Block::new(block.addr + to, block.size - to, block.pool, block.range));
            self.link(after, index, block.next);
            self.enlist(after);
        }
        let unmapped = &mut self.blocks[index as usize];
        (unmapped.addr, unmapped.size, unmapped.state) = (addr, size, State::Unmapped);
        self.merge(index, State::Unmapped);
        self.count_returned(Action::SegmentUnmap, addr, size);
        let Block { addr, pool, previous, next, range, .. } = self.blocks[index as usize];
        if previous == NONE && next == NONE {
            let range = self.ranges[range as usize];
            self.addresses.give_back(range.addr, range.size);
            self.drop_slot(index);
        } else {
            self.pools[pool as usize].unmapped.insert(addr, index);
        }
    }
}
