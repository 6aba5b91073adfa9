//! A caching allocator that decides by itself where blocks are placed.

use super::addresses::{Addresses, Placement};
use super::blocks::{Block, BlockId, DEFAULT_POOL, NONE, Pool, PoolIndex, PoolKey, State};
use super::limits::Limits;
use super::rules::{MIN_BLOCK, SMALL_SIZE, SizeRules};
use crate::model::{Action, PoolId, SegmentType};
use std::collections::{BTreeMap, BTreeSet};

/// A request, as `DeviceCachingAllocator::malloc` receives it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The pool that serves it: see [`Allocator::pool`].
    pub pool: PoolIndex,
    /// Bytes, rounded by [`SizeRules::round`].
    pub bytes: u64,
    pub requested: u64,
    /// Whether a graph is being captured: cached memory may then not be released for the request.
    pub is_capturing: bool,
    /// The address at which the driver places the next segment, if it is known and free.
    pub address: Option<u64>,
}

/// What the allocator requested from the driver, or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEvent {
    /// [`Action::SegmentAlloc`], [`Action::SegmentFree`], [`Action::SegmentMap`] or [`Action::SegmentUnmap`].
    pub action: Action,
    pub addr: u64,
    pub size: u64,
}

/// Counters of `torch.cuda.memory_stats()`, in bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `allocated_bytes.all.current`.
    pub allocated: u64,
    /// `active_bytes.all.current`.
    pub active: u64,
    /// `requested_bytes.all.current`.
    pub requested: u64,
    /// `reserved_bytes.all.current`.
    pub reserved: u64,
    /// `reserved_bytes.all.peak`: a failing request may reserve memory first and release it again.
    pub reserved_peak: u64,
    /// `num_alloc_retries`: requests that were retried after all cached memory was released.
    pub retries: u64,
    /// `num_device_alloc`: calls to `cudaMalloc`, and ranges mapped.
    pub device_allocs: u64,
    /// `num_device_free`: calls to `cudaFree`, and ranges unmapped.
    pub device_frees: u64,
}

impl Stats {
    /// Whether nothing was requested from the driver or released between these counters and other counters of the same
    /// allocator.
    #[doc(hidden)]
    pub fn has_same_segments(&self, other: &Self) -> bool {
        (self.device_allocs, self.device_frees) == (other.device_allocs, other.device_frees)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub addr: u64,
    pub size: u64,
}

/// The caching allocator of one device: `DeviceCachingAllocator` of PyTorch, without the memory.
///
/// Blocks are rows of one table, and neighbors refer to each other by index, so the only heap allocations of a request are
/// the nodes of its pool's ordered set. The invariants, which `invariants` checks: the blocks of a segment are linked in
/// address order and cover it without gaps; two neighbors are never both free or both unmapped; the pool's ordered set
/// contains exactly the free blocks, and its list of unmapped blocks exactly the unmapped ones; the counters are the sums
/// over blocks.
#[derive(Clone, Debug)]
pub struct Allocator {
    pub(super) rules: SizeRules,
    pub(super) limits: Limits,
    pub(super) blocks: Vec<Block>,
    /// Slots of the table that are unused.
    unused: Vec<u32>,
    pub(super) pools: Vec<Pool>,
    /// Every pool by its key, in the order in which cached blocks are released. A recording may have any number of streams
    /// and pools, so no lookup scans them one by one.
    pub(super) release_order: BTreeMap<PoolKey, u32>,
    pub(super) ranges: Vec<Range>,
    pub(super) addresses: Addresses,
    /// Blocks whose free is pending. Their number and the order in which they complete are arbitrary.
    pub(super) pending: BTreeSet<u32>,
    served: u32,
    /// Bytes obtained from the driver: reserved bytes, rounded up to the driver's granularity.
    pub(super) used: u64,
    pub(super) stats: Stats,
    pub(super) events: Vec<SegmentEvent>,
}

impl Allocator {
    /// An allocator that has reserved nothing. The driver's first address is `base`.
    pub fn new(rules: SizeRules, limits: Limits, placement: Placement, base: u64) -> Self {
        Self {
            rules,
            limits,
            blocks: Vec::new(),
            unused: Vec::new(),
            pools: Vec::new(),
            release_order: BTreeMap::new(),
            ranges: Vec::new(),
            addresses: Addresses::new(placement, base),
            pending: BTreeSet::new(),
            served: 0,
            used: 0,
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What was requested from the driver and released since the last call, in order.
    pub fn drain_events(&mut self) -> impl Iterator<Item = SegmentEvent> + '_ {
        self.events.drain(..)
    }

    /// Whether [`Allocator::drain_events`] has anything to return.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The pool for requests on a stream, in the default pool or a private pool, for small or large blocks.
    pub fn pool(&mut self, stream: u64, private: Option<PoolId>, segment_type: SegmentType) -> PoolIndex {
        let private = private.unwrap_or(DEFAULT_POOL);
        let is_small = segment_type == SegmentType::Small;
        let key = PoolKey::new(private, is_small, stream);
        if let Some(&known) = self.release_order.get(&key) {
            return PoolIndex(known);
        }
        let index = self.pools.len() as u32;
        let same_kind = self.release_order.range(PoolKey { stream: 0, ..key }..=PoolKey { stream: u64::MAX, ..key });
        let counts_in = same_kind.map(|(_, &other)| self.pools[other as usize].counts_in).next();
        self.pools.push(Pool {
            is_private: key.is_private,
            is_small,
            is_released: false,
            is_plain: false,
            counts_in: counts_in.unwrap_or(index),
            searches: 0,
            free: BTreeMap::new(),
            unmapped: BTreeMap::new(),
        });
        self.release_order.insert(key, index);
        PoolIndex(index)
    }

    /// Marks a private pool as no longer needed: its cached memory may be released.
    pub fn release_pool(&mut self, private: PoolId) {
        for (_, &pool) in self.release_order.range(PoolKey::all_of(private)) {
            self.pools[pool as usize].is_released = true;
        }
    }

    /// Makes new segments of a private pool regular although `expandable_segments` is set, as PyTorch does up to 2.4 and in
    /// pools with their own allocator.
    pub fn keep_plain(&mut self, private: PoolId) {
        for (_, &pool) in self.release_order.range(PoolKey::all_of(private)) {
            self.pools[pool as usize].is_plain = true;
        }
    }

    /// Serves a request; `None` if PyTorch would raise `OutOfMemoryError`.
    #[inline]
    pub fn alloc(&mut self, request: Request) -> Option<BlockId> {
        let found = match self.best_fit(request.pool.0, request.bytes) {
            Some(found) => found,
            None => self.grow_or_retry(&request)?,
        };
        Some(self.take(found, &request))
    }

    /// The program frees a block that another stream may still use: it is no longer allocated, but stays active.
    pub fn request_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.index as usize];
        if block.serial == id.serial && block.state == State::Allocated {
            block.state = State::Pending;
            self.stats.allocated -= block.size;
            self.pending.insert(id.index);
        }
    }

    /// Frees a block: requests the free, if it was not requested yet, and completes it. Does nothing if it was already
    /// completed.
    #[inline]
    pub fn free(&mut self, id: BlockId) {
        let block = self.blocks[id.index as usize];
        match block.state {
            _ if block.serial != id.serial => return,
            State::Allocated => self.stats.allocated -= block.size,
            State::Pending => drop(self.pending.remove(&id.index)),
            State::Free | State::Unmapped | State::Gone => return,
        }
        self.complete_free(id.index);
    }

    pub fn size(&self, id: BlockId) -> u64 {
        self.blocks[id.index as usize].size
    }

    pub fn address(&self, id: BlockId) -> u64 {
        self.blocks[id.index as usize].addr
    }

    /// Releases all cached memory to the driver: `torch.cuda.empty_cache()`.
    pub fn empty_cache(&mut self) {
        self.release_cached();
    }

    /// `get_free_block`: the smallest free block that is large enough. If `max_split_size` forbids its use, no other block is
    /// considered.
    fn best_fit(&mut self, pool: u32, bytes: u64) -> Option<u32> {
        if self.limits.collected.is_some() {
            let counts_in = self.pools[pool as usize].counts_in;
            self.pools[counts_in as usize].searches += 1;
        }
        let mut fits = self.pools[pool as usize].free.range((bytes, 0)..);
        let (_, &first) = fits.next()?;
        let mut found = first;
        if self.blocks[found as usize].range != NONE {
            // The unmapped memory after the free block counts as a part of it.
            for (_, &next) in fits {
                if self.blocks[found as usize].range == NONE || self.size_with_room(next) >= self.size_with_room(found)
                {
                    break;
                }
                found = next;
            }
        }
        (!self.rules.keeps_back(bytes, self.blocks[found as usize].size)).then_some(found)
    }

    /// Bytes of a free block and of the unmapped block after it.
    fn size_with_room(&self, index: u32) -> u64 {
        let block = &self.blocks[index as usize];
        let room = self.blocks.get(block.next as usize).filter(|next| next.state == State::Unmapped);
        block.size + room.map_or(0, |next| next.size)
    }

    /// A free block of at least this many bytes, obtained from the driver: `malloc` after its search has failed.
    fn grow_or_retry(&mut self, request: &Request) -> Option<u32> {
        self.collect_garbage();
        if let Some(found) = self.grow(request) {
            return Some(found);
        }
        if self.limits.fails_at_once && !self.is_allowed(request) {
            return None;
        }
        if self.release_oversize(request)
            && let Some(found) = self.grow(request)
        {
            return Some(found);
        }
        if request.is_capturing {
            return None;
        }
        self.release_cached();
        self.stats.retries += 1;
        self.grow(request)
    }

    /// Whether the process may reserve a segment for the request. For expandable segments, the size of a regular segment is
    /// compared, too.
    fn is_allowed(&mut self, request: &Request) -> bool {
        let segment = self.rules.driver_request(request.bytes, false);
        let reserved = self.stats.reserved.saturating_add(segment);
        self.limits.allowed.as_mut().is_none_or(|allowed| allowed.fits(reserved))
    }

    /// `alloc_block`: a new segment, or more pages of an expandable one.
    fn grow(&mut self, request: &Request) -> Option<u32> {
        if !self.is_allowed(request) {
            return None;
        }
        if self.rules.grows_in_place() && !self.pools[request.pool.0 as usize].is_plain {
            return self.grow_in_place(request);
        }
        let size = self.rules.driver_request(request.bytes, false);
        if !self.limits.capacity.fits(self.used.saturating_add(driver_bytes(size))) {
            return None;
        }
        let addr = self.addresses.take(size, request.address)?;
        self.count_reserved(Action::SegmentAlloc, addr, size);
        let index = self.add(Block::new(addr, size, request.pool.0, NONE));
        self.enlist(index);
        Some(index)
    }

    /// Splits a block off a free one (`alloc_found_block`), or takes the whole block if `should_split` is false.
    fn take(&mut self, index: u32, request: &Request) -> BlockId {
        let bytes = request.bytes;
        let Block { addr, size, next, pool, range, .. } = self.blocks[index as usize];
        let pool_row = &mut self.pools[pool as usize];
        pool_row.free.remove(&(size, addr));
        let taken = match size - bytes {
            rest if pool_row.is_small && rest >= MIN_BLOCK => bytes,
            _ if pool_row.is_small => size,
            _ => self.rules.large_block(bytes, size),
        };
        if taken < size {
            let rest = self.add(Block::new(addr + taken, size - taken, pool, range));
            self.link(rest, index, next);
            self.enlist(rest);
        }
        self.blocks[index as usize].size = taken;
        self.hand_out(index, request.requested)
    }

    /// Counts a block as allocated.
    pub(super) fn hand_out(&mut self, index: u32, requested: u64) -> BlockId {
        self.served = self.served.wrapping_add(1);
        let block = &mut self.blocks[index as usize];
        (block.state, block.serial, block.requested) = (State::Allocated, self.served, requested);
        self.stats.requested += requested;
        self.stats.allocated += block.size;
        self.stats.active += block.size;
        BlockId { index, serial: self.served }
    }

    /// Links a block between two others.
    pub(super) fn link(&mut self, index: u32, previous: u32, next: u32) {
        let block = &mut self.blocks[index as usize];
        (block.previous, block.next) = (previous, next);
        if let Some(before) = self.blocks.get_mut(previous as usize) {
            before.next = index;
        }
        if let Some(after) = self.blocks.get_mut(next as usize) {
            after.previous = index;
        }
    }

    /// Makes a block free that is active but no longer allocated.
    pub(super) fn complete_free(&mut self, index: u32) {
        let block = &self.blocks[index as usize];
        self.stats.active -= block.size;
        self.stats.requested -= block.requested;
        self.add_free(index);
    }

    /// Counts memory obtained from the driver.
    pub(super) fn count_reserved(&mut self, action: Action, addr: u64, size: u64) {
        self.used += driver_bytes(size);
        self.stats.reserved += size;
        self.stats.reserved_peak = self.stats.reserved_peak.max(self.stats.reserved);
        self.stats.device_allocs += 1;
        self.events.push(SegmentEvent { action, addr, size });
    }

    /// Counts memory that was released.
    pub(super) fn count_returned(&mut self, action: Action, addr: u64, size: u64) {
        self.used -= driver_bytes(size);
        self.stats.reserved -= size;
        self.stats.device_frees += 1;
        self.events.push(SegmentEvent { action, addr, size });
    }

    /// Frees a block and merges it with its free neighbors.
    pub(super) fn add_free(&mut self, index: u32) {
        self.blocks[index as usize].state = State::Free;
        self.merge(index, State::Free);
        self.enlist(index);
    }

    /// Merges the neighbors in this state into a block that is not in its pool's lists.
    pub(super) fn merge(&mut self, index: u32, state: State) {
        let mut block = self.blocks[index as usize];
        for neighbor in [block.previous, block.next] {
            let Some(&other) = self.blocks.get(neighbor as usize).filter(|other| other.state == state) else {
                continue;
            };
            let pool = &mut self.pools[other.pool as usize];
            match state {
                State::Unmapped => _ = pool.unmapped.remove(&other.addr),
                _ => _ = pool.free.remove(&(other.size, other.addr)),
            }
            block.size += other.size;
            if neighbor == block.previous {
                (block.addr, block.previous) = (other.addr, other.previous);
            } else {
                block.next = other.next;
            }
            self.drop_slot(neighbor);
        }
        self.blocks[index as usize] = block;
        self.link(index, block.previous, block.next);
    }

    /// Adds a block to its pool's free blocks.
    pub(super) fn enlist(&mut self, index: u32) {
        let Block { addr, size, pool, .. } = self.blocks[index as usize];
        let counts_in = self.pools[pool as usize].counts_in;
        let block = &mut self.blocks[index as usize];
        block.state = State::Free;
        block.free_since = self.pools[counts_in as usize].searches;
        self.pools[pool as usize].free.insert((size, addr), index);
    }

    pub(super) fn add(&mut self, block: Block) -> u32 {
        let index = self.unused.pop().unwrap_or(self.blocks.len() as u32);
        match self.blocks.get_mut(index as usize) {
            Some(unused) => *unused = block,
            None => self.blocks.push(block),
        }
        index
    }

    /// Frees the slot of a block.
    pub(super) fn drop_slot(&mut self, index: u32) {
        self.blocks[index as usize].state = State::Gone;
        self.unused.push(index);
    }

    /// Whether the small pool serves a rounded request.
    pub fn segment_type(bytes: u64) -> SegmentType {
        if bytes <= SMALL_SIZE { SegmentType::Small } else { SegmentType::Large }
    }
}

/// Bytes that the driver uses for a segment: it allocates in units of 2 MiB.
pub(super) fn driver_bytes(size: u64) -> u64 {
    size.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX)
}
