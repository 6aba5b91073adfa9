//! A second `CUDACachingAllocator`, written from PyTorch's rules and not from memviz's replay, so that the two can disagree.
//!
//! It runs a program of requests on one device and stores everything that the trace does not contain: the position and size
//! of each block, and the counters after each entry. It is as simple as possible: blocks of a segment are a vector in address
//! order, and every search and sum visits all of them.

use memviz::model::{Action, BlockState};

pub const MIB: u64 = 1 << 20;

/// Sizes are multiples of this (`kMinBlockSize`).
const GRAIN: u64 = 512;
/// Largest block of the small pool (`kSmallSize`).
const SMALL_LIMIT: u64 = MIB;
/// Segments of the small pool, and the growth of its expandable segments (`kSmallBuffer`).
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Segments for large blocks below [`LARGE_LIMIT`], and the growth of large expandable segments (`kLargeBuffer`).
const LARGE_SEGMENT: u64 = 20 * MIB;
/// Blocks of this size or more get a segment of their own size (`kMinLargeAlloc`).
const LARGE_LIMIT: u64 = 10 * MIB;
/// To a multiple of this (`kRoundLarge`).
const LARGE_STEP: u64 = 2 * MIB;

/// Where segments grow in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expandable {
    Never,
    Always,
    /// Up to PyTorch 2.4, private pools had regular segments, whose blocks were split as in expandable ones.
    OutsidePrivatePools,
}

/// A device and the allocator's settings.
#[derive(Clone, Debug)]
pub struct Config {
    pub expandable: Expandable,
    pub max_split_size: Option<u64>,
    /// `roundup_power2_divisions` for sizes from 1 MiB, 2 MiB, 4 MiB...
    pub divisions: [u64; 16],
    /// Bytes of the device.
    pub capacity: u64,
    /// Bytes the driver leaves between two segments.
    pub spacing: u64,
}

/// What a program requests from the allocator. Numbers that select a block count modulo the number of eligible ones.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc {
        size: u64,
        stream: u64,
        private_pool: u64,
    },
    Free {
        pick: usize,
    },
    /// Frees what the operation with this number allocated.
    #[allow(dead_code, reason = "each test file uses a part of this one")]
    FreeOf(usize),
    RecordStream {
        pick: usize,
    },
    CompleteFree {
        pick: usize,
    },
    EmptyCache,
    Annotate {
        pick: usize,
    },
    Snapshot,
}

/// A trace entry as PyTorch records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub action: Action,
    pub addr: u64,
    pub size: u64,
    pub stream: u64,
    pub private_pool: u64,
    /// Number of the operation that caused it.
    pub op: usize,
}

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub addr: u64,
    pub size: u64,
    pub requested: u64,
    pub pending: bool,
    /// Whether its segment has free memory right after it.
    pub free_behind: bool,
}

/// The four counters of `torch.cuda.memory_stats()`: allocated, active, requested, reserved.
pub type Counters = [u64; 4];

/// The state between two entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Blocks in use, in address order.
    pub held: Vec<Held>,
    /// Reserved address ranges in order; adjacent ones are merged.
    pub reserved: Vec<(u64, u64)>,
}

impl Moment {
    pub fn counters(&self) -> Counters {
        let active = self.held.iter().map(|block| block.size).sum();
        let allocated = self.held.iter().filter(|block| !block.pending).map(|block| block.size).sum();
        let requested = self.held.iter().map(|block| block.requested).sum();
        let reserved = self.reserved.iter().map(|(start, end)| end - start).sum();
        [allocated, active, requested, reserved]
    }
}

/// A segment at the end.
#[derive(Clone, Debug)]
pub struct FinalSegment {
    pub stream: u64,
    pub private_pool: u64,
    pub small: bool,
    pub expandable: bool,
    pub blocks: Vec<FinalBlock>,
}

/// A block at the end.
#[derive(Clone, Copy, Debug)]
pub struct FinalBlock {
    pub addr: u64,
    pub size: u64,
    /// As in PyTorch, the size of the last request if the block is free.
    pub requested: u64,
    pub state: BlockState,
    /// Number of the operation that allocated it last.
    pub op: usize,
}

/// The whole history of a device.
#[derive(Clone, Debug)]
pub struct Log {
    pub entries: Vec<Entry>,
    /// `moments[i]` is before entry `i`; the last one is after the last entry.
    pub moments: Vec<Moment>,
    pub segments: Vec<FinalSegment>,
}

/// Runs `ops` on a device whose first address is `base`.
pub fn run(config: &Config, base: u64, ops: &[Op]) -> Log {
    let mut device =
        Device { config, base, areas: Vec::new(), op: 0, entries: Vec::new(), moments: vec![Moment::default()] };
    for (index, &op) in ops.iter().enumerate() {
        device.op = index;
        device.apply(op);
    }
    let segments = device.final_segments();
    Log { entries: device.entries, moments: device.moments, segments }
}

/// Blocks of different pools are never in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pool {
    /// Number of a private pool, 0 for the default one.
    private: u64,
    small: bool,
    stream: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Address space of an expandable segment that is not mapped.
    Unmapped,
    Free,
    Allocated,
    Pending,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    addr: u64,
    size: u64,
    requested: u64,
    state: State,
    /// Whether another stream uses it, so that its free completes later.
    shared: bool,
    op: usize,
}

impl Block {
    fn end(&self) -> u64 {
        self.addr + self.size
    }

    fn piece(&self, addr: u64, end: u64, state: State) -> Self {
        Self { addr, size: end - addr, requested: 0, state, shared: false, op: self.op }
    }

    fn available(&self) -> bool {
        matches!(self.state, State::Free | State::Unmapped)
    }
}

/// A segment, or the whole address range of an expandable one. Its blocks tile it.
#[derive(Clone, Debug)]
struct Area {
    pool: Pool,
    expandable: bool,
    blocks: Vec<Block>,
}

impl Area {
    fn start(&self) -> u64 {
        self.blocks[0].addr
    }

    fn end(&self) -> u64 {
        self.blocks[self.blocks.len() - 1].end()
    }

    /// The growth of an expandable segment.
    fn granule(&self) -> u64 {
        if self.pool.small { SMALL_SEGMENT } else { LARGE_SEGMENT }
    }

    /// Merges each run of free blocks, and each run of unmapped ones, into one block.
    fn merge(&mut self) {
        self.blocks.dedup_by(|next, block| {
            let merges = block.state == next.state && block.available();
            if merges {
                block.size += next.size;
            }
            merges
        });
    }

    /// Size that counts for best fit: an expandable segment's last block can grow into the space after it.
    fn size_with_room(&self, index: usize) -> u64 {
        let room = self.blocks.get(index + 1).filter(|next| next.state == State::Unmapped);
        self.blocks[index].size + room.map_or(0, |next| next.size)
    }
}

/// Position of a block: area and index within.
type Place = (usize, usize);

struct Device<'c> {
    config: &'c Config,
    base: u64,
    areas: Vec<Area>,
    op: usize,
    entries: Vec<Entry>,
    moments: Vec<Moment>,
}

impl Device<'_> {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Alloc { size, stream, private_pool } => self.alloc(size, stream, private_pool),
            Op::Free { pick } => {
                if let Some(place) = self.pick(pick, State::Allocated) {
                    self.free(place);
                }
            }
            Op::FreeOf(op) => {
                let found = self.blocks(State::Allocated).find(|(_, block)| block.op == op).map(|(place, _)| place);
                if let Some(place) = found {
                    self.free(place);
                }
            }
            Op::RecordStream { pick } => {
                if let Some((area, index)) = self.pick(pick, State::Allocated) {
                    self.areas[area].blocks[index].shared = true;
                }
            }
            Op::CompleteFree { pick } => {
                if let Some(place) = self.pick(pick, State::Pending) {
                    self.complete_free(place);
                }
            }
            Op::EmptyCache => self.empty_cache(),
            Op::Annotate { pick } => {
                if let Some((area, index)) = self.pick(pick, State::Allocated) {
                    let Block { addr, requested, .. } = self.areas[area].blocks[index];
                    self.record(Action::Annotate, addr, requested, self.areas[area].pool);
                }
            }
            Op::Snapshot => {
                let [_, active, ..] = self.moment().counters();
                self.record(Action::Snapshot, 0, active, Pool { private: 0, small: false, stream: 0 });
            }
        }
    }

    fn alloc(&mut self, requested: u64, stream: u64, private_pool: u64) {
        let size = self.round(requested);
        let pool = Pool { private: private_pool, small: size <= SMALL_LIMIT, stream };
        let mut found = self.best_fit(pool, size).or_else(|| self.grow(pool, size));
        if found.is_none() {
            self.empty_cache();
            found = self.grow(pool, size);
        }
        let Some((area, index)) = found else {
            let free = self.config.capacity - self.reserved();
            self.record(Action::Oom, free, size, pool);
            return;
        };
        let blocks = &mut self.areas[area].blocks;
        let whole = blocks[index];
        let rest = whole.size - size;
        let split = if pool.small || self.config.expandable != Expandable::Never {
            rest >= GRAIN
        } else {
            rest > SMALL_LIMIT && size < self.config.max_split_size.unwrap_or(u64::MAX)
        };
        if split {
            blocks.insert(index + 1, whole.piece(whole.addr + size, whole.end(), State::Free));
        }
        let taken = if split { size } else { whole.size };
        blocks[index] = Block { size: taken, requested, state: State::Allocated, shared: false, op: self.op, ..whole };
        self.record(Action::Alloc, whole.addr, requested, pool);
    }

    fn round(&self, requested: u64) -> u64 {
        let grains = requested.div_ceil(GRAIN).max(1) * GRAIN;
        if requested <= GRAIN {
            return grains;
        }
        let power = u64::from(requested.ilog2());
        let divisions = self.config.divisions[power.saturating_sub(20).min(15) as usize];
        if divisions < 2 || requested <= GRAIN * divisions {
            return grains;
        }
        let step = (1 << power) / divisions;
        requested.div_ceil(step) * step
    }

    /// The smallest free block that is large enough, the first one among equally small ones.
    fn best_fit(&self, pool: Pool, size: u64) -> Option<Place> {
        let mut fits: Vec<_> = self
            .blocks(State::Free)
            .filter(|&(place, block)| self.areas[place.0].pool == pool && block.size >= size)
            .map(|(place, block)| (block.size, block.addr, place))
            .collect();
        fits.sort_unstable();
        let room = |place: Place| self.areas[place.0].size_with_room(place.1);
        let mut best = *fits.first()?;
        for &next in &fits[1..] {
            // Among expandable segments, the one with the least room to grow is used.
            if !self.areas[best.2.0].expandable || room(next.2) >= room(best.2) {
                break;
            }
            best = next;
        }
        let (found, _, place) = best;
        let refused = self
            .config
            .max_split_size
            .is_some_and(|limit| (size < limit && found >= limit) || (size >= limit && found >= size + LARGE_SEGMENT));
        (!refused).then_some(place)
    }

    /// A free block of at least `size` bytes from the driver.
    fn grow(&mut self, pool: Pool, size: u64) -> Option<Place> {
        let expandable = match self.config.expandable {
            Expandable::Never => false,
            Expandable::Always => true,
            Expandable::OutsidePrivatePools => pool.private == 0,
        };
        if expandable {
            return self.grow_in_place(pool, size);
        }
        let segment = match size {
            _ if pool.small => SMALL_SEGMENT,
            size if size < LARGE_LIMIT => LARGE_SEGMENT,
            size => size.next_multiple_of(LARGE_STEP),
        };
        if self.reserved() + segment > self.config.capacity {
            return None;
        }
        let area = self.reserve(pool, segment, false);
        let addr = self.areas[area].start();
        self.record(Action::SegmentAlloc, addr, segment, pool);
        Some((area, 0))
    }

    /// Maps memory for the first run of free and unmapped blocks with `size` bytes of address space.
    fn grow_in_place(&mut self, pool: Pool, size: u64) -> Option<Place> {
        let (area, mut index) = match self.space_to_grow(pool, size) {
            Some(place) => place,
            None => (self.reserve(pool, (2 * self.config.capacity).next_multiple_of(LARGE_SEGMENT), true), 0),
        };
        if self.areas[area].blocks[index].state == State::Unmapped {
            index = self.map(area, index, size)?;
        }
        loop {
            let have = self.areas[area].blocks[index].size;
            if have >= size {
                return Some((area, index));
            }
            index = self.map(area, index + 1, size - have)?;
        }
    }

    fn space_to_grow(&self, pool: Pool, size: u64) -> Option<Place> {
        for ((area, index), _) in self.blocks(State::Unmapped).filter(|&(place, _)| self.areas[place.0].pool == pool) {
            let blocks = &self.areas[area].blocks;
            let start = if index > 0 && blocks[index - 1].state == State::Free { index - 1 } else { index };
            let run = blocks[start..].iter().take_while(|block| block.available());
            if run.map(|block| block.size).sum::<u64>() >= size {
                return Some((area, start));
            }
        }
        None
    }

    /// Maps up to `size` bytes, in whole granules, at the start of an unmapped block. Returns the index of the free
    /// block they became part of.
    fn map(&mut self, area: usize, index: usize, size: u64) -> Option<usize> {
        let unmapped = self.areas[area].blocks[index];
        let mapped = size.next_multiple_of(self.areas[area].granule()).min(unmapped.size);
        if self.reserved() + mapped > self.config.capacity {
            return None;
        }
        let middle = unmapped.addr + mapped;
        let pieces = [
            unmapped.piece(unmapped.addr, middle, State::Free),
            unmapped.piece(middle, unmapped.end(), State::Unmapped),
        ];
        let blocks = &mut self.areas[area].blocks;
        blocks.splice(index..=index, pieces.into_iter().filter(|piece| piece.size > 0));
        self.areas[area].merge();
        self.record(Action::SegmentMap, unmapped.addr, mapped, self.areas[area].pool);
        self.areas[area].blocks.iter().position(|block| block.addr <= unmapped.addr && unmapped.addr < block.end())
    }

    /// Reserves address space: the first gap that is wide enough. Returns the index of the new area.
    fn reserve(&mut self, pool: Pool, size: u64, expandable: bool) -> usize {
        let mut addr = self.base;
        let mut index = 0;
        for area in &self.areas {
            if addr + size + self.config.spacing <= area.start() {
                break;
            }
            addr = area.end() + self.config.spacing;
            index += 1;
        }
        let state = if expandable { State::Unmapped } else { State::Free };
        let block = Block { addr, size, requested: 0, state, shared: false, op: self.op };
        self.areas.insert(index, Area { pool, expandable, blocks: vec![block] });
        index
    }

    fn free(&mut self, (area, index): Place) {
        let block = &mut self.areas[area].blocks[index];
        block.state = State::Pending;
        let Block { addr, requested, shared, .. } = *block;
        self.record(Action::FreeRequested, addr, requested, self.areas[area].pool);
        if !shared {
            self.complete_free((area, index));
        }
    }

    fn complete_free(&mut self, (area, index): Place) {
        let block = &mut self.areas[area].blocks[index];
        block.state = State::Free;
        block.shared = false;
        let Block { addr, requested, .. } = *block;
        self.areas[area].merge();
        self.record(Action::FreeCompleted, addr, requested, self.areas[area].pool);
    }

    /// Waits for every pending free, then releases everything that is completely free, including private pools, as if they
    /// were no longer needed.
    fn empty_cache(&mut self) {
        while let Some(place) = self.pick(0, State::Pending) {
            self.complete_free(place);
        }
        let free = self.blocks(State::Free).map(|((area, _), block)| (self.areas[area].pool, block.size, block.addr));
        let mut free: Vec<_> = free.collect();
        free.sort_unstable();
        for (pool, _, addr) in free {
            let Some((area, index)) = self.at(addr) else { continue };
            if self.areas[area].expandable {
                self.unmap(area, index);
            } else if self.areas[area].blocks.len() == 1 {
                let size = self.areas.remove(area).blocks[0].size;
                self.record(Action::SegmentFree, addr, size, pool);
            }
        }
        self.areas.retain(|area| area.blocks.len() > 1 || area.blocks[0].state != State::Unmapped);
    }

    /// Unmaps the whole granules of a free block.
    fn unmap(&mut self, area: usize, index: usize) {
        let Area { pool, blocks, .. } = &self.areas[area];
        let (block, origin, granule) = (blocks[index], self.areas[area].start(), self.areas[area].granule());
        let start = origin + (block.addr - origin).next_multiple_of(granule);
        let end = origin + (block.end() - origin) / granule * granule;
        if start >= end {
            return;
        }
        let pool = *pool;
        let pieces = [
            block.piece(block.addr, start, State::Free),
            block.piece(start, end, State::Unmapped),
            block.piece(end, block.end(), State::Free),
        ];
        let blocks = &mut self.areas[area].blocks;
        blocks.splice(index..=index, pieces.into_iter().filter(|piece| piece.size > 0));
        self.areas[area].merge();
        self.record(Action::SegmentUnmap, start, end - start, pool);
    }

    /// Every block in a state, in address order.
    fn blocks(&self, state: State) -> impl Iterator<Item = (Place, &Block)> {
        self.areas.iter().enumerate().flat_map(move |(area, contents)| {
            let blocks = contents.blocks.iter().enumerate();
            blocks.filter(move |(_, block)| block.state == state).map(move |(index, block)| ((area, index), block))
        })
    }

    fn at(&self, addr: u64) -> Option<Place> {
        self.blocks(State::Free).find(|(_, block)| block.addr == addr).map(|(place, _)| place)
    }

    fn pick(&self, pick: usize, state: State) -> Option<Place> {
        let count = self.blocks(state).count();
        (count > 0).then(|| self.blocks(state).nth(pick % count)).flatten().map(|(place, _)| place)
    }

    fn reserved(&self) -> u64 {
        self.moment().counters()[3]
    }

    fn moment(&self) -> Moment {
        let mut moment = Moment::default();
        for (area, index) in self.areas.iter().flat_map(|area| (0..area.blocks.len()).map(move |index| (area, index))) {
            let block = &area.blocks[index];
            if block.state == State::Unmapped {
                continue;
            }
            match moment.reserved.last_mut() {
                Some(range) if range.1 == block.addr => range.1 = block.end(),
                _ => moment.reserved.push((block.addr, block.end())),
            }
            if block.state != State::Free {
                moment.held.push(Held {
                    addr: block.addr,
                    size: block.size,
                    requested: block.requested,
                    pending: block.state == State::Pending,
                    free_behind: area.blocks.get(index + 1).is_some_and(|next| next.state == State::Free),
                });
            }
        }
        moment
    }

    fn record(&mut self, action: Action, addr: u64, size: u64, pool: Pool) {
        let Pool { stream, private: private_pool, .. } = pool;
        self.entries.push(Entry { action, addr, size, stream, private_pool, op: self.op });
        self.moments.push(self.moment());
    }

    /// The segments in the snapshot: one for each mapped run of an area.
    fn final_segments(&self) -> Vec<FinalSegment> {
        let mut segments = Vec::new();
        for area in &self.areas {
            for run in area.blocks.split(|block| block.state == State::Unmapped).filter(|run| !run.is_empty()) {
                let block = |block: &Block| FinalBlock {
                    addr: block.addr,
                    size: block.size,
                    requested: block.requested,
                    state: match block.state {
                        State::Allocated => BlockState::ActiveAllocated,
                        State::Pending => BlockState::ActivePendingFree,
                        State::Free | State::Unmapped => BlockState::Inactive,
                    },
                    op: block.op,
                };
                let Pool { stream, private: private_pool, small } = area.pool;
                let blocks = run.iter().map(block).collect();
                segments.push(FinalSegment { stream, private_pool, small, expandable: area.expandable, blocks });
            }
        }
        segments
    }
}
