//! One device's memory events as entries and a history.
//!
//! The running totals of the trace are authoritative. If an event's own bytes explain only a part of the change of the total,
//! something happened that the trace does not show: added memory becomes an allocation without a stack; removed memory is
//! taken from such allocations, then from memory from before the trace. The rest corrects the counters. Each of these is an
//! anomaly.

use super::super::allocation::{Allocation, Instant, NEVER, NO_ALLOCATION};
use super::super::anomaly::{Anomalies, AnomalyKind};
use super::super::counters::Counters;
use super::super::history::{BaselineOrigin, SegmentSpan};
use crate::model::profile::{MemoryEvent, MemoryKind};
use crate::model::trace_entry::{ContextId, TraceEntries, TraceEntry};
use crate::model::{Action, StackId};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// Entries and allocations of one device while they are built.
#[derive(Debug)]
pub struct Ledger<'a> {
    pub entries: &'a mut TraceEntries,
    pub context: ContextId,
    pub links: Vec<u32>,
    pub allocations: Vec<Allocation>,
    /// How many of the allocations are from before the trace.
    pub baseline: usize,
    pub segments: Vec<SegmentSpan>,
    pub anomalies: Anomalies,
    pub corrections: Vec<(Instant, i64)>,
    pub start: Counters,
    /// Allocations of which only the size is known, the latest last.
    anonymous: Vec<u32>,
    live: HashMap<u64, u32, RandomState>,
    /// Reserved ranges that exist, the latest last.
    reserved: Vec<u32>,
    reserved_total: i64,
    total: i64,
    /// Whether the totals include memory that was freed while no profiler was watching.
    has_stale_totals: bool,
    /// Bytes of the totals that no block in the trace explains, if they may be stale; they are left out.
    stale: i64,
    now_us: i64,
}

impl<'a> Ledger<'a> {
    pub fn new(entries: &'a mut TraceEntries, context: ContextId) -> Self {
        Self {
            entries,
            context,
            links: Vec::new(),
            allocations: Vec::new(),
            baseline: 0,
            segments: Vec::new(),
            anomalies: Anomalies::default(),
            corrections: Vec::new(),
            start: Counters::default(),
            anonymous: Vec::new(),
            live: HashMap::default(),
            reserved: Vec::new(),
            reserved_total: 0,
            total: 0,
            has_stale_totals: false,
            stale: 0,
            now_us: 0,
        }
    }

    /// Leaves out what the totals contain and no block in the trace explains.
    ///
    /// `ProfiledCPUMemoryReporter` (`c10/core/CPUAllocator.cpp`) counts only while a profiler is on: it misses what was allocated
    /// before, and keeps what is freed between two sessions.
    pub fn with_stale_totals(self) -> Self {
        Self { has_stale_totals: true, ..self }
    }

    /// Adds a device's events, in chronological order.
    pub fn write<'e>(&mut self, events: impl Iterator<Item = (&'e MemoryEvent, StackId)> + Clone, base_ns: i64) {
        self.open(events.clone().map(|(event, _)| event));
        for (event, stack) in events {
            self.now_us = base_ns.saturating_add(event.time_ns).div_euclid(1000);
            self.reserve(event.reserved, stack);
            let event = &MemoryEvent { allocated: event.allocated.wrapping_sub(self.stale), ..*event };
            match event.kind {
                MemoryKind::Change => self.change(event, stack),
                MemoryKind::OutOfMemory => {
                    self.settle(event.allocated, 0);
                    self.push(Action::Oom, 0, event.bytes.unsigned_abs(), stack, NO_ALLOCATION);
                }
            }
        }
    }

    /// Adds what was there before the first event: blocks that the trace frees without having allocated them, and the rest.
    fn open<'e>(&mut self, events: impl Iterator<Item = &'e MemoryEvent> + Clone) {
        let Some(first) = events.clone().next() else { return };
        let before = match first.kind {
            MemoryKind::Change => first.allocated.wrapping_sub(first.bytes),
            MemoryKind::OutOfMemory => first.allocated,
        };
        let mut seen: HashSet<u64, RandomState> = HashSet::default();
        let mut known = 0u64;
        for event in events.filter(|event| event.kind == MemoryKind::Change) {
            if seen.insert(event.addr) && event.bytes < 0 {
                self.live.insert(event.addr, self.allocations.len() as u32);
                self.allocations.push(block(event.addr, event.bytes.unsigned_abs(), 0));
                known = known.saturating_add(event.bytes.unsigned_abs());
            }
        }
        match u64::try_from(before).ok().and_then(|before| before.checked_sub(known)) {
            Some(0) => {}
            Some(rest) if self.has_stale_totals => self.stale = rest as i64,
            Some(rest) => {
                self.anonymous.push(self.allocations.len() as u32);
                self.allocations.push(block(0, rest, 0));
            }
            // More is freed than was allocated.
            None => self.anomalies.add(AnomalyKind::TotalGap, None, 0),
        }
        self.baseline = self.allocations.len();
        let before = before.wrapping_sub(self.stale);
        self.total = before;
        self.start = Counters { allocated: before, active: before, requested: before, reserved: first.reserved };
        self.reserved_total = first.reserved;
        if let Ok(size @ 1..) = u64::try_from(first.reserved) {
            self.reserved.push(0);
            self.segments.push(SegmentSpan { size, gone: NEVER, ..SegmentSpan::default() });
        }
    }

    fn change(&mut self, event: &MemoryEvent, stack: StackId) {
        let size = event.bytes.unsigned_abs();
        if event.bytes >= 0 {
            if let Some(index) = self.live.remove(&event.addr) {
                self.anomaly(AnomalyKind::OverlappingAlloc, event.addr);
                self.free(index);
            }
            self.settle(event.allocated, event.bytes);
            let index = self.allocate(event.addr, size, stack);
            if size > 0 {
                self.live.insert(event.addr, index);
            }
            return;
        }
        let Some(index) = self.live.remove(&event.addr) else {
            self.anomaly(AnomalyKind::FreeOfUnknown, event.addr);
            self.settle(event.allocated, 0);
            self.free_of_unknown(event.addr, size);
            return;
        };
        let held = self.allocations[index as usize].size;
        if held != size {
            self.anomaly(AnomalyKind::SizeMismatch, event.addr);
        }
        self.settle(event.allocated, 0i64.wrapping_sub_unsigned(held));
        self.free(index);
    }

    /// Corrects the total so that `bytes` lead to `after`.
    fn settle(&mut self, after: i64, bytes: i64) {
        let gap = after.wrapping_sub(bytes).wrapping_sub(self.total);
        if gap == 0 {
            return;
        }
        let is_reset = gap < 0 && after == bytes.max(0);
        self.anomaly(if is_reset { AnomalyKind::TotalReset } else { AnomalyKind::TotalGap }, 0);
        if gap > 0 {
            let index = self.allocate(0, gap.unsigned_abs(), StackId::EMPTY);
            self.anonymous.push(index);
            return;
        }
        let mut missing = gap.unsigned_abs();
        while missing > 0
            && let Some(index) = self.anonymous.pop()
        {
            let size = self.allocations[index as usize].size;
            self.free(index);
            // The rest of the allocation stays.
            if let Some(rest @ 1..) = size.checked_sub(missing) {
                let index = self.allocate(0, rest, StackId::EMPTY);
                self.anonymous.push(index);
            }
            missing = missing.saturating_sub(size);
        }
        if missing > 0 {
            let bytes = 0i64.wrapping_sub_unsigned(missing);
            self.total = self.total.wrapping_add(bytes);
            self.corrections.push((self.links.len() as Instant + 1, bytes));
        }
    }

    fn reserve(&mut self, reserved: i64, stack: StackId) {
        let change = reserved.wrapping_sub(self.reserved_total);
        self.reserved_total = reserved;
        let size = change.unsigned_abs();
        if change > 0 {
            self.push(Action::SegmentAlloc, 0, size, stack, NO_ALLOCATION);
            let made = self.links.len() as Instant;
            self.reserved.push(self.segments.len() as u32);
            self.segments.push(SegmentSpan { size, born: made, made, gone: NEVER, stack, ..SegmentSpan::default() });
        } else if change < 0 {
            self.push(Action::SegmentFree, 0, size, StackId::EMPTY, NO_ALLOCATION);
            self.release(size);
        }
    }

    /// Releases what was reserved last.
    fn release(&mut self, mut size: u64) {
        let now = self.links.len() as Instant;
        while size > 0
            && let Some(index) = self.reserved.pop()
        {
            let span = &mut self.segments[index as usize];
            let whole = *span;
            span.gone = now;
            if whole.size > size {
                span.size = size;
                self.reserved.push(self.segments.len() as u32);
                self.segments.push(SegmentSpan { size: whole.size - size, ..whole });
            }
            size = size.saturating_sub(whole.size);
        }
    }

    pub fn allocate(&mut self, addr: u64, size: u64, stack: StackId) -> u32 {
        let index = self.allocations.len() as u32;
        self.allocations.push(block(addr, size, self.links.len() as Instant + 1));
        self.push(Action::Alloc, addr, size, stack, index);
        self.total = self.total.wrapping_add_unsigned(size);
        index
    }

    /// Frees a block now. A trace has one event for a free, so it is requested and completed at once.
    pub fn free(&mut self, index: u32) {
        let now = self.links.len() as Instant + 1;
        let allocation = &mut self.allocations[index as usize];
        (allocation.freed, allocation.completed) = (now, now);
        let (addr, size) = (allocation.addr, allocation.size);
        self.push(Action::FreeCompleted, addr, size, StackId::EMPTY, index);
        self.total = self.total.wrapping_sub_unsigned(size);
    }

    /// Adds a free without an allocation.
    pub fn free_of_unknown(&mut self, addr: u64, size: u64) {
        self.push(Action::FreeCompleted, addr, size, StackId::EMPTY, NO_ALLOCATION);
    }

    /// Sets the time of the following entries.
    pub fn at(&mut self, time_us: i64) {
        self.now_us = time_us;
    }

    pub fn anomaly(&mut self, kind: AnomalyKind, addr: u64) {
        self.anomalies.add(kind, Some(self.links.len() as u32), addr);
    }

    /// Where baseline allocations come from: unknown.
    pub fn origins(&self) -> Vec<BaselineOrigin> {
        vec![BaselineOrigin::default(); self.baseline]
    }

    fn push(&mut self, action: Action, addr: u64, size: u64, stack: StackId, link: u32) {
        let (time_us, context) = (self.now_us, self.context);
        self.entries.push(TraceEntry { action, addr, size, time_us, stack, context });
        self.links.push(link);
    }
}

/// A block that was not freed yet.
pub fn block(addr: u64, size: u64, born: Instant) -> Allocation {
    Allocation { addr, requested: size, size, born, freed: NEVER, completed: NEVER }
}
