//! Compares the end of the replay with the segments and blocks of the snapshot, byte for byte.

use super::allocation::{Allocation, NEVER};
use super::anomaly::{Anomalies, AnomalyKind};
use super::ranges::{Ranges, coalesce, covered};
use crate::model::{Block, BlockState, Segment};
use std::cmp::Ordering;

/// Counts every difference between the end of the replay and `segments`. Pending frees are compared only if they are known.
pub fn reconcile(
    allocations: &[Allocation],
    ranges: &Ranges,
    segments: &[Segment],
    pending_known: bool,
    anomalies: &mut Anomalies,
) {
    let replayed = coalesce(ranges.iter().map(|span| (span.addr, span.end())));
    let recorded = covered(segments);
    if replayed != recorded {
        let differ = replayed.iter().zip(&recorded).find(|(replayed, recorded)| replayed != recorded);
        anomalies.add(AnomalyKind::EndSegmentMismatch, None, differ.map_or(0, |(replayed, _)| replayed.0));
    }
    blocks(allocations, segments, pending_known, anomalies);
    for segment in segments {
        if !totals_agree(segment) {
            anomalies.add(AnomalyKind::SegmentTotalsMismatch, None, segment.address);
        }
    }
}

/// Walks both sides in address order.
fn blocks(allocations: &[Allocation], segments: &[Segment], pending_known: bool, anomalies: &mut Anomalies) {
    let mut live: Vec<&Allocation> = allocations.iter().filter(|allocation| allocation.completed == NEVER).collect();
    live.sort_by_key(|allocation| allocation.addr);
    let all = segments.iter().flat_map(|segment| &segment.blocks);
    let mut recorded: Vec<&Block> = all.filter(|block| block.state != BlockState::Inactive).collect();
    recorded.sort_by_key(|block| block.address);

    let (mut live, mut recorded) = (live.into_iter().peekable(), recorded.into_iter().peekable());
    loop {
        let order = match (live.peek(), recorded.peek()) {
            (Some(allocation), Some(block)) => allocation.addr.cmp(&block.address),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let (allocation, block) = match order {
            Ordering::Less => (live.next(), None),
            Ordering::Equal => (live.next(), recorded.next()),
            Ordering::Greater => (None, recorded.next()),
        };
        let addr = allocation.map(|allocation| allocation.addr).or(block.map(|block| block.address));
        if !matches!((allocation, block), (Some(allocation), Some(block)) if same(allocation, block, pending_known)) {
            anomalies.add(AnomalyKind::EndBlockMismatch, None, addr.unwrap_or(0));
        }
    }
}

fn same(allocation: &Allocation, block: &Block, pending_known: bool) -> bool {
    let pending = block.state == BlockState::ActivePendingFree;
    allocation.size == block.size
        && allocation.requested == block.requested_size
        && (!pending_known || (allocation.freed != NEVER) == pending)
}

/// Whether a segment's blocks cover it without gaps and sum to the totals that PyTorch recorded.
fn totals_agree(segment: &Segment) -> bool {
    let mut next = segment.address;
    let (mut allocated, mut active) = (0u64, 0u64);
    for block in &segment.blocks {
        if block.address != next {
            return false;
        }
        next = next.saturating_add(block.size);
        if block.state != BlockState::Inactive {
            active = active.saturating_add(block.size);
        }
        if block.state == BlockState::ActiveAllocated {
            allocated = allocated.saturating_add(block.size);
        }
    }
    next == segment.address.saturating_add(segment.total_size)
        && allocated == segment.allocated_size
        && active == segment.active_size
}
