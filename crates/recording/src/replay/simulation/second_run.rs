//! The second run over a recording that started late.
//!
//! The first run starts from an empty allocator. Most of what it finds holds whatever existed before: which allocation each
//! entry concerns, and the size of each block of the small pool, which follows from the request. Only segments and blocks of
//! the large pool depend on the baseline, so the second run applies their entries alone.
//!
//! The result is exact only if the trace does not contradict the baseline. Where it may, the second run gives up, and all
//! entries are applied anew, so that each contradiction is counted.

use super::Simulation;
use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::model::{Action, TraceEntries};
use crate::replay::address_map::AddressMap;
use crate::replay::allocation::{Instant, NEVER};
use crate::replay::anomaly::{Anomalies, Anomaly, AnomalyKind};
use crate::replay::baseline::Baseline;
use crate::replay::history::SegmentSpan;
use crate::replay::occupancy::{Occupancy, PAGE_BYTES};
use crate::replay::ranges::Ranges;
use std::ops::Range;

impl Simulation {
    /// Turns the first run of these rows into the second, which starts from `baseline`. Returns false if it has to be made in
    /// full; then this simulation is good for its memory only.
    pub fn second_run(
        &mut self,
        rules: SizeRules,
        baseline: &Baseline,
        entries: &TraceEntries,
        rows: Range<usize>,
    ) -> bool {
        // Both follow from an empty start.
        let explained =
            |anomaly: &Anomaly| matches!(anomaly.kind, AnomalyKind::OutsideSegment | AnomalyKind::UnknownSegment);
        if self.doubted
            || baseline.contradicted
            || !self.rules.rounds_like(&rules)
            || !self.anomalies.kinds().all(explained)
        {
            return false;
        }
        let Some(numbers) = self.put_first(baseline) else { return false };
        let used = std::mem::take(&mut self.small);
        if self.overlaps_the_rest(&used, baseline) {
            return false;
        }
        self.rules = rules;
        self.discovering = false;
        self.anomalies = Anomalies::default();
        self.ranges = Ranges::default();
        self.large = AddressMap::default();
        self.tally = None;
        self.place(baseline);
        self.apply_large(&numbers, entries, rows);
        let first_ranges = self.ranges.spans().get(..baseline.ranges.len()).unwrap_or(&[]);
        self.anomalies.total() == 0
            && used.outside().all(|(page, last)| reserved_until(first_ranges, page, PAGE_BYTES, last))
    }

    /// Puts the blocks of the baseline before all other allocations. Returns the new index of each allocation, or nothing if
    /// an entry records another size than the baseline has.
    fn put_first(&mut self, baseline: &Baseline) -> Option<Vec<u32>> {
        let mut allocations = Vec::with_capacity(baseline.blocks.len() + self.allocations.len());
        allocations.extend(baseline.blocks.iter().map(|block| block.allocation));
        let mut numbers = Vec::with_capacity(self.allocations.len());
        for allocation in &self.allocations {
            if !allocation.is_baseline() {
                numbers.push(allocations.len() as u32);
                allocations.push(*allocation);
                continue;
            }
            let at = baseline.blocks.binary_search_by_key(&allocation.addr, |block| block.allocation.addr).ok()?;
            let block = &mut allocations[at];
            if block.requested != allocation.requested {
                return None;
            }
            block.freed = allocation.freed;
            block.completed = allocation.completed;
            numbers.push(at as u32);
        }
        for index in self.live.values_mut() {
            *index = numbers[*index as usize];
        }
        for (index, block) in allocations.iter().enumerate().take(baseline.blocks.len()) {
            if block.completed == NEVER {
                self.live.insert(block.addr, index as u32);
            }
        }
        self.allocations = allocations;
        self.discovered.clear();
        Some(numbers)
    }

    /// Whether the trace ever used memory of a block of the small pool that exists from its start to its end. The first run
    /// looked at the other ones.
    fn overlaps_the_rest(&self, used: &Occupancy, baseline: &Baseline) -> bool {
        let before = self.allocations.iter().take(baseline.blocks.len());
        let mut rest = before.filter(|block| block.completed == NEVER && block.size <= SMALL_SIZE);
        rest.any(|block| used.was_used(block.addr, block.size))
    }

    /// Applies the entries that depend on the baseline, and gives each entry the new number of its allocation.
    fn apply_large(&mut self, numbers: &[u32], entries: &TraceEntries, rows: Range<usize>) {
        let mut links = std::mem::take(&mut self.links);
        let actions = entries.actions().get(rows.clone()).unwrap_or(&[]);
        for (index, (&action, link)) in actions.iter().zip(&mut links).enumerate() {
            // An entry that concerns no allocation has a link past the end.
            if let Some(&number) = numbers.get(*link as usize) {
                *link = number;
            }
            self.applied = index as u32;
            match action {
                Action::Alloc => {
                    let Some(allocation) = self.allocations.get(*link as usize) else { continue };
                    if self.rules.is_large(allocation.size) {
                        let rounded = self.rules.round(allocation.requested);
                        self.allocations[*link as usize].size = self.place_large(allocation.addr, rounded, *link);
                    }
                }
                Action::FreeCompleted => {
                    let Some(allocation) = self.allocations.get(*link as usize) else { continue };
                    if self.rules.is_large(allocation.size) {
                        self.large.remove(allocation.addr);
                    } else if allocation.is_baseline() && allocation.size <= SMALL_SIZE {
                        self.small.remove(allocation.addr, allocation.size);
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap => {
                    entries.get(rows.start + index).iter().for_each(|entry| self.segment_added(entry));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    entries.get(rows.start + index).iter().for_each(|entry| self.segment_removed(entry));
                }
                _ => {}
            }
        }
        self.applied = links.len() as u32;
        self.links = links;
    }
}

/// Whether all these bytes are in ranges that exist from the start until an instant. `ranges` are in address order.
fn reserved_until(ranges: &[SegmentSpan], addr: u64, size: u64, instant: Instant) -> bool {
    let (mut at, end) = (addr, addr.saturating_add(size));
    let first = ranges.partition_point(|range| range.end() <= addr);
    for range in &ranges[first..] {
        if range.addr > at || range.gone <= instant {
            return false;
        }
        at = range.end();
        if at >= end {
            return true;
        }
    }
    false
}
