//! Fills in what the memory events of old releases do not record, as far as it follows from other events.
//!
//! PyTorch 1.8 to 1.10 write neither addresses nor running totals. The sums of the signed sizes are the curve, except for
//! memory from before the trace: at least the blocks that the trace frees without having allocated them.

use crate::model::SourceNotes;
use crate::model::profile::{MemoryEvent, MemoryKind};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// Fills in addresses and totals of one device's events, which `order` lists chronologically.
pub fn fill(memory: &mut [MemoryEvent], order: &[u32], notes: &SourceNotes) {
    if notes.no_addresses {
        addresses(memory, order);
    }
    if notes.no_totals {
        totals(memory, order);
    }
}

/// Gives each block a number in place of its address. A free is matched to the latest active block of its size; if there is
/// none, the block is from before the trace.
fn addresses(memory: &mut [MemoryEvent], order: &[u32]) {
    let mut in_use: HashMap<u64, Vec<u64>, RandomState> = HashMap::default();
    let mut blocks = 0;
    for &index in order {
        let event = &mut memory[index as usize];
        if event.kind != MemoryKind::Change {
            continue;
        }
        let alike = in_use.entry(event.bytes.unsigned_abs()).or_default();
        let freed = if event.bytes < 0 { alike.pop() } else { None };
        event.addr = freed.unwrap_or_else(|| {
            blocks += 1;
            blocks
        });
        if event.bytes > 0 {
            alike.push(event.addr);
        }
    }
}

fn totals(memory: &mut [MemoryEvent], order: &[u32]) {
    let mut seen: HashSet<u64, RandomState> = HashSet::default();
    let mut before = 0i64;
    for event in order.iter().map(|&index| &memory[index as usize]) {
        if event.kind == MemoryKind::Change && seen.insert(event.addr) && event.bytes < 0 {
            before = before.saturating_sub(event.bytes);
        }
    }
    let mut total = before;
    for &index in order {
        let event = &mut memory[index as usize];
        if event.kind == MemoryKind::Change {
            total = total.saturating_add(event.bytes);
        }
        event.allocated = total;
    }
}
