//! A model of the allocator, driven by a trace: it applies one entry after the other.
//!
//! The state is small: the active blocks by address, for the large pool also in address order, and the reserved ranges. Free
//! blocks are not stored: the allocator merges free neighbors at once, so a free block is the gap between two active blocks,
//! and the gap after a new block determines its size.

mod second_run;

use super::address_map::AddressMap;
use super::allocation::{Allocation, Instant, NEVER, NO_ALLOCATION};
use super::anomaly::{Anomalies, Anomaly, AnomalyKind};
use super::baseline::Baseline;
use super::history::SegmentSpan;
use super::inferred_rules::Variant;
use super::occupancy::{Occupancy, PAGE_BYTES};
use super::ranges::Ranges;
use super::split_timeline::Splits;
use super::tally::Tally;
use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, BlockState, Segment};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy, Debug)]
struct LargeBlock {
    end: u64,
    allocation: u32,
}

/// The state of one device's allocator, and all allocations.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    pub rules: SizeRules,
    /// What the recorded settings do not say.
    pub variant: Variant,
    /// Whether frees of unknown blocks are evidence about the time before the trace. Otherwise the baseline is already known,
    /// and they contradict it.
    discovering: bool,
    /// Every allocation: those of the baseline first, then in the order of the trace.
    pub allocations: Vec<Allocation>,
    /// Allocations of the baseline that were discovered during the simulation.
    pub discovered: Vec<u32>,
    /// The allocation of each entry; [`NO_ALLOCATION`] if there is none.
    pub links: Vec<u32>,
    pub ranges: Ranges,
    pub anomalies: Anomalies,
    pub free_requests: u64,
    /// Baseline blocks of the large pool of which only a lower bound is known, the requested size.
    pub unsettled: HashSet<u32, RandomState>,
    /// The counters along the trace. They are counted during the simulation if the size of every block is known when its
    /// entry is applied, which saves a second pass over all entries.
    pub tally: Option<Tally>,
    applied: u32,
    /// While discovering: whether an entry may contradict what was there before the trace.
    doubted: bool,
    /// Whether a block kept a remainder that was too small to be split off.
    kept_remainder: bool,
    /// The number of changes in `variant.splits` that were made, and the last of them.
    changes: usize,
    splits: Option<Splits>,
    /// Blocks that may have kept a rest or not: the size without it, and with it.
    undecided: HashMap<u32, [u64; 2], RandomState>,
    live: HashMap<u64, u32, RandomState>,
    large: AddressMap<LargeBlock>,
    small: Occupancy,
}

impl Simulation {
    /// A simulation that starts with an empty allocator and records what contradicts that.
    pub fn discovering(rules: SizeRules) -> Self {
        Self { rules, discovering: true, tally: Some(Tally::default()), ..Self::default() }
    }

    /// Whether this simulation, with the rules that it assumed, would have the same result under `rules`.
    pub fn holds_under(&self, rules: &SizeRules) -> bool {
        self.rules.make_the_same_blocks(rules, self.kept_remainder)
    }

    /// A simulation that starts from `baseline`. It reuses the memory of `spent`, whose pages are already mapped; this
    /// matters for a million entries.
    pub fn from_baseline(rules: SizeRules, baseline: &Baseline, spent: Self) -> Self {
        let Self { variant, mut allocations, mut links, mut live, mut small, .. } = spent;
        allocations.clear();
        links.clear();
        live.clear();
        small.clear();
        let mut simulation = Self { rules, variant, allocations, links, live, small, ..Self::default() };
        for (index, block) in baseline.blocks.iter().enumerate() {
            simulation.allocations.push(block.allocation);
            simulation.live.insert(block.allocation.addr, index as u32);
        }
        simulation.place(baseline);
        if simulation.unsettled.is_empty() {
            simulation.tally = Some(Tally::starting_at(baseline.counters(&simulation.allocations), 0));
        }
        simulation
    }

    /// Reserves the ranges of the baseline, and places its blocks there.
    fn place(&mut self, baseline: &Baseline) {
        for &span in &baseline.ranges {
            self.ranges.add(span);
        }
        for (index, block) in baseline.blocks.iter().enumerate() {
            let (index, allocation) = (index as u32, block.allocation);
            if self.rules.is_large(allocation.size) {
                let end = allocation.addr.saturating_add(allocation.size);
                let place = self.large.place(allocation.addr);
                self.large.insert(place, allocation.addr, LargeBlock { end, allocation: index });
            } else if allocation.size <= SMALL_SIZE {
                self.small.add(allocation.addr, allocation.size, 0);
            }
            if !block.settled {
                self.unsettled.insert(index);
            }
        }
    }

    /// The active allocation at `addr`, including those whose free is pending.
    pub fn live_at(&self, addr: u64) -> Option<u32> {
        self.live.get(&addr).copied()
    }

    /// Whether frees complete that were never requested, while no request is recorded at all (`skip_actions`).
    pub fn lacks_free_requests(&self) -> bool {
        let unrequested = |anomaly: &Anomaly| anomaly.kind == AnomalyKind::CompletedWithoutRequest;
        self.free_requests == 0 && self.anomalies.kinds().any(unrequested)
    }

    #[inline]
    pub fn apply(&mut self, entry: &TraceEntry) {
        while let Some(&(from, splits)) = self.variant.splits.get(self.changes)
            && from <= self.applied
        {
            self.changes += 1;
            self.splits = Some(splits);
            let expandable = match splits {
                Splits::Expandable => true,
                Splits::Regular => false,
                Splits::Unknown => !self.variant.keeps_rests,
            };
            self.rules = std::mem::take(&mut self.rules).with_expandable(expandable);
        }
        let link = match entry.action {
            Action::Alloc => self.alloc(entry),
            Action::FreeRequested => self.free_requested(entry),
            Action::FreeCompleted => self.free_completed(entry),
            Action::SegmentAlloc | Action::SegmentMap => {
                self.segment_added(entry);
                NO_ALLOCATION
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.segment_removed(entry);
                NO_ALLOCATION
            }
            Action::Annotate => self.annotated(entry),
            Action::Snapshot | Action::Oom | Action::Unknown => NO_ALLOCATION,
        };
        self.links.push(link);
        self.applied += 1;
        if let Some(tally) = &mut self.tally {
            let allocation = self.allocations.get(link as usize);
            tally.step(entry.action, allocation, self.applied, entry.size);
        }
    }

    fn alloc(&mut self, entry: &TraceEntry) -> u32 {
        let index = self.allocations.len() as u32;
        let rounded = self.whole_segment(entry).unwrap_or_else(|| self.rules.round(entry.size));
        let size = if self.rules.is_large(rounded) { self.place_large(entry.addr, rounded, index) } else { rounded };
        let replaced = self.live.insert(entry.addr, index).is_some();
        let overlapping = rounded <= SMALL_SIZE && !self.place_small(entry.addr, rounded);
        // The large pool detects this by itself.
        if overlapping || (replaced && !self.rules.is_large(rounded)) {
            self.anomaly(AnomalyKind::OverlappingAlloc, entry.addr);
        }
        self.allocations.push(Allocation {
            addr: entry.addr,
            requested: entry.size,
            size,
            born: self.applied + 1,
            freed: NEVER,
            completed: NEVER,
        });
        index
    }

    /// The size of the free block that a request gets as a whole, if its pool does not split segments.
    #[inline]
    fn whole_segment(&self, entry: &TraceEntry) -> Option<u64> {
        if !self.variant.gives_whole_segments(entry.context) {
            return None;
        }
        let range = self.ranges.containing(entry.addr)?;
        if !range.expandable {
            return (range.addr == entry.addr).then_some(range.size);
        }
        // Free neighbors are merged.
        let next = self.large.from(self.large.place(entry.addr)).map_or(u64::MAX, |(next, _)| next);
        Some(self.mapped_to(entry.addr, next) - entry.addr).filter(|size| *size > 0)
    }

    /// Adds a block of the small pool to the map. Returns false if another block is there.
    fn place_small(&mut self, addr: u64, rounded: u64) -> bool {
        let now = self.ranges.given_back();
        let (free, reserved) = self.small.add(addr, rounded, now);
        if !reserved {
            if self.ranges.cover(addr, rounded) {
                let ranges = &self.ranges;
                self.small.note_reserved(addr, rounded, now, |page| ranges.cover(page, PAGE_BYTES));
            } else {
                self.small.note_outside(addr, rounded, self.applied + 1);
                self.anomaly(AnomalyKind::OutsideSegment, addr);
            }
        }
        free
    }

    /// Adds a block of the large pool to the map and returns its size.
    fn place_large(&mut self, addr: u64, rounded: u64, index: u32) -> u64 {
        let Some(range) = self.ranges.containing(addr).copied() else {
            self.anomaly(AnomalyKind::OutsideSegment, addr);
            return rounded;
        };
        let place = self.large.place(addr);
        if let Some((before, &block)) = self.large.before(place) {
            if block.end > addr {
                if !self.split_off(before, block, addr) {
                    self.anomaly(AnomalyKind::OverlappingAlloc, addr);
                }
            } else if !self.unsettled.is_empty() && before >= range.addr {
                self.settle(before, block, addr);
            }
        }
        let next = self.large.from(place).map_or(u64::MAX, |(next, _)| next);
        // Mapped ranges of an expandable segment may be adjacent, and a block may span several.
        let limit = if range.expandable { next } else { next.min(range.end()) };
        let free = limit - addr;
        let size = if free < rounded {
            self.anomaly(AnomalyKind::OverlappingAlloc, addr);
            rounded
        } else if range.expandable && self.variant.splits.is_empty() {
            // Remainders of 512 bytes are split off, so the size of a block is the rounded request.
            rounded
        } else {
            let free = if range.expandable { self.mapped_to(addr, next) - addr } else { free };
            self.split(rounded, free.max(rounded), index)
        };
        let end = addr.saturating_add(size);
        self.large.insert(place, addr, LargeBlock { end, allocation: index });
        size
    }

    /// The size of a block of the large pool that is split from so many free bytes.
    fn split(&mut self, rounded: u64, free: u64, index: u32) -> u64 {
        let size = self.rules.large_block(rounded, free);
        self.kept_remainder |= size != rounded;
        if self.splits == Some(Splits::Unknown) {
            let [split, kept] =
                [true, false].map(|it| self.rules.clone().with_expandable(it).large_block(rounded, free));
            if split != kept {
                self.undecided.insert(index, [split, kept]);
            }
        }
        size
    }

    /// Where the free memory from an address on ends: at the next block, or where the mapped pages end.
    fn mapped_to(&self, addr: u64, next: u64) -> u64 {
        let mut end = addr;
        while let Some(more) = self.ranges.containing(end).filter(|_| end < next) {
            end = more.end();
        }
        end.min(next)
    }

    /// Takes it that a block kept no rest, if that is undecided and a new block starts there.
    fn split_off(&mut self, addr: u64, block: LargeBlock, next: u64) -> bool {
        let Some(&[split, _]) = self.undecided.get(&block.allocation).filter(|[split, _]| addr + split <= next) else {
            return false;
        };
        self.allocations[block.allocation as usize].size = split;
        if let Some(block) = self.large.get_mut(addr) {
            block.end = addr + split;
        }
        true
    }

    /// Takes the sizes of undecided blocks from the final segments that contain them.
    pub fn decide(&mut self, segments: &[Segment]) {
        if self.undecided.is_empty() {
            return;
        }
        // Sizes have changed since they were counted.
        self.tally = None;
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        for block in blocks.filter(|block| block.state != BlockState::Inactive) {
            let Some(&index) = self.live.get(&block.address) else { continue };
            if self.undecided.get(&index).is_some_and(|sizes| sizes.contains(&block.size)) {
                self.allocations[index as usize].size = block.size;
            }
        }
    }

    /// A baseline block with an unknown end ends where a new block starts: the allocator uses free blocks from their start,
    /// and a block exceeds its rounded size by at most 1 MiB.
    fn settle(&mut self, addr: u64, block: LargeBlock, next: u64) {
        if next - block.end > SMALL_SIZE || !self.unsettled.remove(&block.allocation) {
            return;
        }
        self.allocations[block.allocation as usize].size = next - addr;
        if let Some(block) = self.large.get_mut(addr) {
            block.end = next;
        }
    }

    fn free_requested(&mut self, entry: &TraceEntry) -> u32 {
        self.free_requests += 1;
        let now = self.applied + 1;
        let Some(&index) = self.live.get(&entry.addr) else {
            let completed = if self.variant.frees_complete_at_once { now } else { NEVER };
            return self.free_of_unknown(entry, now, completed);
        };
        let allocation = &mut self.allocations[index as usize];
        if allocation.freed == NEVER {
            allocation.freed = now;
        } else {
            self.anomaly(AnomalyKind::DoubleFree, entry.addr);
            return NO_ALLOCATION;
        }
        self.check_size(index, entry);
        if self.variant.frees_complete_at_once { self.free_completed(entry) } else { index }
    }

    fn free_completed(&mut self, entry: &TraceEntry) -> u32 {
        let now = self.applied + 1;
        let Some(index) = self.live.remove(&entry.addr) else { return self.free_of_unknown(entry, 0, now) };
        let allocation = &mut self.allocations[index as usize];
        allocation.completed = now;
        let large = self.rules.is_large(allocation.size);
        let unrequested = allocation.freed == NEVER;
        if unrequested {
            allocation.freed = now;
        }
        let (size, is_baseline) = (allocation.size, allocation.is_baseline());
        if large {
            self.large.remove(entry.addr);
        } else if size <= SMALL_SIZE {
            self.doubted |= is_baseline && self.discovering && self.small.was_used(entry.addr, size);
            self.small.remove(entry.addr, size);
        }
        if unrequested {
            self.anomaly(AnomalyKind::CompletedWithoutRequest, entry.addr);
        }
        self.check_size(index, entry);
        index
    }

    /// Applies the free of an unknown block: while discovering, a block from before the trace.
    fn free_of_unknown(&mut self, entry: &TraceEntry, freed: Instant, completed: Instant) -> u32 {
        if !self.discovering {
            self.anomaly(AnomalyKind::FreeOfUnknown, entry.addr);
            return NO_ALLOCATION;
        }
        let index = self.allocations.len() as u32;
        let size = self.rules.round(entry.size);
        self.allocations.push(Allocation { addr: entry.addr, requested: entry.size, size, born: 0, freed, completed });
        self.discovered.push(index);
        if completed == NEVER {
            self.live.insert(entry.addr, index);
        } else {
            self.doubted |= size <= SMALL_SIZE && self.small.was_used(entry.addr, size);
        }
        index
    }

    fn annotated(&mut self, entry: &TraceEntry) -> u32 {
        let Some(&index) = self.live.get(&entry.addr) else {
            self.doubted |= self.discovering;
            return NO_ALLOCATION;
        };
        index
    }

    fn check_size(&mut self, index: u32, entry: &TraceEntry) {
        if self.allocations[index as usize].requested != entry.size {
            self.anomaly(AnomalyKind::SizeMismatch, entry.addr);
        }
    }

    fn segment_added(&mut self, entry: &TraceEntry) {
        let added = self.ranges.add(SegmentSpan {
            addr: entry.addr,
            size: entry.size,
            born: self.applied + 1,
            made: self.applied + 1,
            gone: NEVER,
            expandable: entry.action == Action::SegmentMap,
            stack: entry.stack,
        });
        // A block that is active there is from before the first entry, so its segment must be, too.
        let holds_block = self.holds_block_in(entry.addr, entry.size);
        if !added || (holds_block && !self.discovering) {
            self.anomaly(AnomalyKind::OverlappingSegment, entry.addr);
        }
        self.doubted |= holds_block;
    }

    fn holds_block_in(&self, addr: u64, size: u64) -> bool {
        let next = self.large.from(self.large.place(addr));
        next.is_some_and(|(next, _)| next - addr < size) || self.small.any_in(addr, size)
    }

    fn segment_removed(&mut self, entry: &TraceEntry) {
        let now = self.applied + 1;
        let removed = match entry.action {
            Action::SegmentFree => self.ranges.remove(entry.addr, entry.size, now),
            _ => self.ranges.cut(entry.addr, entry.size, now),
        };
        if !removed {
            self.anomaly(AnomalyKind::UnknownSegment, entry.addr);
        }
    }

    fn anomaly(&mut self, kind: AnomalyKind, addr: u64) {
        self.anomalies.add(kind, Some(self.applied), addr);
    }
}
