//! What was there before the first kept entry.
//!
//! A recording that starts late, or whose ring buffer dropped its start, still contains evidence: a block that is freed in
//! the trace but not allocated in it existed before, and so did one that is active at the end without an allocation in the
//! trace. Reserved ranges follow from the final segments by undoing the segment entries backwards.

use super::allocation::{Allocation, NEVER};
use super::anomaly::AnomalyKind;
use super::baseline::{Baseline, BaselineBlock};
use super::history::{BaselineOrigin, SegmentSpan};
use super::ranges::Ranges;
use super::simulation::Simulation;
use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::model::{Action, BlockState, DeviceTrace, Segment, Snapshot, StackId};
use foldhash::fast::RandomState;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Computes the baseline of `trace` from what `discovery`, a simulation that starts with an empty allocator, found.
pub fn baseline(snapshot: &Snapshot, trace: &DeviceTrace, discovery: &Simulation, rules: &SizeRules) -> Baseline {
    // The final segments of a truncated trace belong to a later time.
    let segments = if trace.truncated { &[] } else { snapshot.segments_of(trace.device) };
    let ranges = if starts_empty(trace, discovery, segments) {
        Ranges::default()
    } else {
        ranges_at_start(snapshot, trace, discovery, segments)
    };
    let (mut blocks, contradicted) = blocks_at_start(snapshot, trace, discovery, segments);
    blocks.sort_by_key(|block| block.allocation.addr);
    size_blocks(&mut blocks, &ranges, rules);
    Baseline { blocks, ranges: ranges.iter().copied().collect(), contradicted }
}

/// Whether the first run, which starts with no segment, ends with exactly the final ones. Undoing the entries of segments would
/// then leave nothing. Expandable segments are recorded whole, not as they were mapped.
fn starts_empty(trace: &DeviceTrace, discovery: &Simulation, segments: &[Segment]) -> bool {
    let of_segments = [AnomalyKind::OverlappingSegment, AnomalyKind::UnknownSegment];
    let same = |(span, segment): (&SegmentSpan, &Segment)| {
        !span.expandable && !segment.is_expandable && (span.addr, span.size) == (segment.address, segment.total_size)
    };
    !trace.truncated
        && !discovery.anomalies.kinds().any(|anomaly| of_segments.contains(&anomaly.kind))
        && discovery.ranges.iter().count() == segments.len()
        && discovery.ranges.iter().zip(segments).all(same)
}

/// Undoes the segment entries from the last to the first.
fn ranges_at_start(snapshot: &Snapshot, trace: &DeviceTrace, discovery: &Simulation, segments: &[Segment]) -> Ranges {
    let mut ranges = Ranges::default();
    if trace.truncated {
        for span in discovery.ranges.iter() {
            ranges.add(SegmentSpan { born: 0, made: 0, ..*span });
        }
    }
    for segment in segments {
        ranges.add(span_of(segment));
    }
    let is_segment = |action: &Action| {
        matches!(action, Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap)
    };
    let actions = snapshot.entries.actions().get(trace.rows.clone()).unwrap_or(&[]);
    for (index, _) in actions.iter().enumerate().rev().filter(|(_, action)| is_segment(action)) {
        let Some(entry) = snapshot.entries.get(trace.rows.start + index) else { continue };
        // What cannot be undone contradicts the final segments; the following replay counts it.
        match entry.action {
            Action::SegmentAlloc => ranges.remove(entry.addr, entry.size, 0),
            Action::SegmentMap => ranges.cut(entry.addr, entry.size, 0),
            action => ranges.add(SegmentSpan {
                addr: entry.addr,
                size: entry.size,
                born: 0,
                made: 0,
                gone: NEVER,
                expandable: action == Action::SegmentUnmap,
                stack: StackId::EMPTY,
            }),
        };
    }
    if trace.truncated {
        for segment in evident_segments(snapshot, trace, discovery) {
            ranges.add(span_of(segment));
        }
    }
    ranges
}

fn span_of(segment: &Segment) -> SegmentSpan {
    SegmentSpan {
        addr: segment.address,
        size: segment.total_size,
        born: 0,
        made: 0,
        gone: NEVER,
        expandable: segment.is_expandable,
        stack: segment.stack,
    }
}

/// Final segments that existed before a trace whose end is missing: those in which it allocates or frees without having
/// created them. For the others it is unknown whether they are from before the trace or after the cut.
fn evident_segments<'s>(
    snapshot: &'s Snapshot,
    trace: &DeviceTrace,
    discovery: &Simulation,
) -> impl Iterator<Item = &'s Segment> {
    let mut used: Vec<u64> = discovery.allocations.iter().map(|allocation| allocation.addr).collect();
    used.sort_unstable();
    // Ranges created in the trace, by start, each with the highest end so far.
    let mut made: Vec<(u64, u64)> = discovery.ranges.spans().iter().map(|span| (span.addr, span.end())).collect();
    made.sort_unstable();
    let mut furthest = 0;
    for (_, end) in &mut made {
        furthest = furthest.max(*end);
        *end = furthest;
    }
    snapshot.segments_of(trace.device).iter().filter(move |segment| {
        let before = made.partition_point(|&(start, _)| start < segment.address.saturating_add(segment.total_size));
        if before.checked_sub(1).is_some_and(|last| made[last].1 > segment.address) {
            return false;
        }
        let first = used.partition_point(|&addr| addr < segment.address);
        used.get(first).is_some_and(|&addr| addr - segment.address < segment.total_size)
    })
}

/// The blocks before the first entry, and whether entries or final segments contradict an entry that frees one of them.
fn blocks_at_start(
    snapshot: &Snapshot,
    trace: &DeviceTrace,
    discovery: &Simulation,
    segments: &[Segment],
) -> (Vec<BaselineBlock>, bool) {
    let mut contradicted = false;
    let first_alloc = first_allocations(discovery, segments);
    let mut blocks: HashMap<u64, BaselineBlock, RandomState> = HashMap::default();
    for &index in &discovery.discovered {
        let allocation = discovery.allocations[index as usize];
        let news = if allocation.freed == 0 { allocation.completed } else { allocation.freed };
        // An address that was allocated and freed earlier in the trace is freed twice; that says nothing about the time
        // before.
        let first = first_alloc.get(&allocation.addr).copied().unwrap_or(NEVER);
        contradicted |= first < allocation.completed;
        if first < news {
            continue;
        }
        let row = trace.rows.start + news as usize - 1;
        let context = snapshot.contexts.get(snapshot.entries.context(row));
        let origin = BaselineOrigin { stream: context.stream, pool: context.pool, ..BaselineOrigin::default() };
        let mut allocation = allocation;
        if discovery.lacks_free_requests() {
            // A missing block does not imply that the free was pending.
            allocation.freed = NEVER;
        }
        match blocks.entry(allocation.addr) {
            Entry::Occupied(_) => contradicted = true,
            Entry::Vacant(place) => {
                place.insert(BaselineBlock { allocation, settled: false, origin });
            }
        }
    }

    for segment in segments {
        for block in &segment.blocks {
            if block.state == BlockState::Inactive {
                continue;
            }
            let live = discovery.live_at(block.address).map(|index| discovery.allocations[index as usize]);
            let in_trace = live.is_some_and(|live| !live.is_baseline());
            let freed_in_trace = live.is_none() && first_alloc.contains_key(&block.address);
            if in_trace || freed_in_trace {
                continue;
            }
            let pending = block.state == BlockState::ActivePendingFree;
            let freed = live.map_or(if pending { 0 } else { NEVER }, |live| live.freed);
            let replaced = blocks.insert(
                block.address,
                BaselineBlock {
                    allocation: Allocation {
                        addr: block.address,
                        requested: block.requested_size,
                        size: block.size,
                        born: 0,
                        freed,
                        completed: NEVER,
                    },
                    settled: true,
                    origin: BaselineOrigin {
                        stack: block.stack,
                        forward: block.forward,
                        stream: segment.stream,
                        pool: segment.pool,
                    },
                },
            );
            contradicted |= replaced.is_some_and(|block| block.allocation.completed != NEVER);
        }
    }
    // The simulation writes the instants of free entries itself; it only needs to know what was pending at the start.
    let reset = |mut block: BaselineBlock| {
        block.allocation.completed = NEVER;
        if block.allocation.freed != 0 {
            block.allocation.freed = NEVER;
        }
        block
    };
    (blocks.into_values().map(reset).collect(), contradicted)
}

/// When the trace first allocates at each address that it frees without having allocated, or that has a block at the end
/// without an allocation in the trace. A complete recording has neither, so its entries are not scanned.
fn first_allocations(discovery: &Simulation, segments: &[Segment]) -> HashMap<u64, u32, RandomState> {
    let freed = discovery.discovered.iter().map(|&index| discovery.allocations[index as usize].addr);
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let held = blocks.filter(|block| block.state != BlockState::Inactive).map(|block| block.address);
    let asked: HashSet<u64, RandomState> =
        freed.chain(held.filter(|&addr| discovery.live_at(addr).is_none())).collect();
    let mut first = HashMap::default();
    if asked.is_empty() {
        return first;
    }
    for allocation in discovery.allocations.iter().filter(|allocation| !allocation.is_baseline()) {
        if asked.contains(&allocation.addr) {
            first.entry(allocation.addr).or_insert(allocation.born);
        }
    }
    first
}

/// Sizes of blocks that are known only from their free entries, which record the requested size.
///
/// In the large pool, no free block is 1 MiB or smaller, so a gap of up to 1 MiB after a block belongs to it, and a block
/// that is never split takes its whole gap. The first 1 MiB of a wider gap may belong to the block; its size then stays
/// unknown until an allocation in the gap shows where the gap starts.
fn size_blocks(blocks: &mut [BaselineBlock], ranges: &Ranges, rules: &SizeRules) {
    for index in 0..blocks.len() {
        let next = blocks.get(index + 1).map_or(u64::MAX, |next| next.allocation.addr);
        let block = &mut blocks[index];
        if block.settled {
            continue;
        }
        let allocation = &mut block.allocation;
        let rounded = rules.round(allocation.requested);
        allocation.size = rounded;
        let range = ranges.containing(allocation.addr).filter(|range| !range.expandable && !rules.splits_always());
        let Some(range) = range.filter(|_| rules.is_large(rounded)) else {
            block.settled = true;
            continue;
        };
        let gap = next.min(range.end()) - allocation.addr;
        if gap < rounded {
            block.settled = true;
        } else if gap - rounded <= SMALL_SIZE || rules.never_splits(rounded) {
            allocation.size = gap;
            block.settled = true;
        }
    }
}
