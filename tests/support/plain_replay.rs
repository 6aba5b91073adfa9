//! A second replay of complete recordings without expandable segments. It knows the allocator's rules and not memviz's code, and
//! gives up at the first entry that breaks a rule.

use memviz::model::{Action, AllocatorSettings, Snapshot};
use std::collections::BTreeMap;

const MIB: u128 = 1 << 20;

struct Block {
    size: u128,
    requested: u128,
    /// Whether its free is pending.
    is_freed: bool,
}

/// A segment by its address, and its blocks by theirs.
struct Segment {
    size: u128,
    blocks: BTreeMap<u128, Block>,
}

/// Allocated, active, requested and reserved bytes before the first entry of a device and after each; `None` if an entry breaks
/// a rule.
pub fn counters(snapshot: &Snapshot, device: i32) -> Option<Vec<[u128; 4]>> {
    let rows = snapshot.trace(device)?.rows.clone();
    let mut segments: BTreeMap<u128, Segment> = BTreeMap::new();
    let mut all = vec![[0; 4]];
    let mut last = i64::MIN;
    for entry in snapshot.entries.rows(rows) {
        let (addr, size) = (u128::from(entry.addr), u128::from(entry.size));
        if entry.time_us < last {
            return None;
        }
        last = entry.time_us;
        match entry.action {
            Action::SegmentAlloc => {
                let before = segments.range(..addr + size).next_back();
                let is_free = before.is_none_or(|(&start, before)| start + before.size <= addr);
                (is_free && size > 0 && addr + size < 1 << 64).then_some(())?;
                segments.insert(addr, Segment { size, blocks: BTreeMap::new() });
            }
            Action::SegmentFree => {
                let freed = segments.remove(&addr)?;
                (freed.size == size && freed.blocks.is_empty()).then_some(())?;
            }
            Action::Alloc => {
                let (&start, segment) = segments.range_mut(..=addr).next_back()?;
                let gap_start = segment.blocks.range(..=addr).next_back().map_or(start, |(at, block)| at + block.size);
                let gap_end = segment.blocks.range(addr..).next().map_or(start + segment.size, |(at, _)| *at);
                (gap_start == addr && gap_end > addr).then_some(())?;
                let size = block_size(&snapshot.settings, entry.size.into(), gap_end - addr)?;
                segment.blocks.insert(addr, Block { size, requested: entry.size.into(), is_freed: false });
            }
            Action::FreeRequested | Action::FreeCompleted => {
                let (_, segment) = segments.range_mut(..=addr).next_back()?;
                let block = segment.blocks.get_mut(&addr)?;
                let is_pending = entry.action == Action::FreeCompleted;
                (block.requested == size && block.is_freed == is_pending).then_some(())?;
                block.is_freed = true;
                if is_pending {
                    segment.blocks.remove(&addr);
                }
            }
            Action::SegmentMap | Action::SegmentUnmap => return None,
            _ => {}
        }
        all.push(sums(&segments));
    }
    Some(all)
}

fn sums(segments: &BTreeMap<u128, Segment>) -> [u128; 4] {
    let mut sums = [0; 4];
    for segment in segments.values() {
        sums[3] += segment.size;
        for block in segment.blocks.values() {
            sums[0] += if block.is_freed { 0 } else { block.size };
            sums[1] += block.size;
            sums[2] += block.requested;
        }
    }
    sums
}

/// The size of the block for a request at the start of free memory; `None` if it does not fit.
fn block_size(settings: &AllocatorSettings, requested: u128, free: u128) -> Option<u128> {
    let size = rounded(settings, requested);
    let left = free.checked_sub(size)?;
    let is_split = if size <= MIB {
        left >= 512
    } else {
        left > MIB && settings.max_split_size.is_none_or(|most| size < most.into())
    };
    Some(if is_split { size } else { free })
}

/// A multiple of 512 bytes, or the next part of a power of two.
fn rounded(settings: &AllocatorSettings, requested: u128) -> u128 {
    let requested = requested.max(1);
    let power = requested.ilog2();
    let divisions = u128::from(settings.roundup_power2_divisions[power.saturating_sub(20).min(15) as usize]);
    let step = if divisions < 2 || requested <= 512 * divisions { 512 } else { (1 << power) / divisions };
    requested.next_multiple_of(step)
}
