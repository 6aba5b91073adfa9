//! Private pools that do not split segments: `MemPool(no_split=True)`.
//!
//! No file names them. From PyTorch 2.15 on, entries name their pools, and then it shows: a pool splits if a block starts inside a
//! segment. It does not if a request got a new segment although the rest of another one had room, or if a final block is larger
//! than a split would leave it. If neither happens, only one of two figures can be right.

use crate::allocator::{SMALL_BUFFER, SizeRules};
use crate::model::{Action, Block, BlockState, DEFAULT_POOL, DeviceTrace, PoolId, Segment, Snapshot};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};

/// What a recording shows about a private pool.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    splits: bool,
    gives_whole_segments: bool,
    /// Whether a block would be smaller if the pool splits segments.
    matters: bool,
}

/// What a recording shows about its private pools.
#[derive(Debug, Default)]
pub(super) struct WholePools(HashMap<PoolId, Shown, RandomState>);

/// A segment of a private pool, and the ends of its blocks by their starts.
struct Pieces {
    size: u64,
    blocks: BTreeMap<u64, u64>,
}

/// The segments of one pool and stream, for small or for large requests.
type Class = BTreeMap<u64, Pieces>;

impl WholePools {
    pub fn of(snapshot: &Snapshot, trace: &DeviceTrace, rules: &SizeRules) -> Self {
        let mut pools = Self::default();
        if snapshot.contexts.iter().all(|context| context.pool.is_none_or(|pool| pool == DEFAULT_POOL)) {
            return pools;
        }
        let mut classes: HashMap<(PoolId, u64), [Class; 2], RandomState> = HashMap::default();
        // The segment that the entry before has allocated: its class is that of the request for which it was.
        let mut new = None;
        for entry in snapshot.entries.rows(trace.rows.clone()) {
            let made = std::mem::take(&mut new).filter(|&(addr, _)| addr == entry.addr);
            let context = snapshot.contexts.get(entry.context);
            let Some(pool) = context.pool.filter(|pool| *pool != DEFAULT_POOL) else { continue };
            let of_stream = classes.entry((pool, context.stream)).or_default();
            let bytes = rules.round(entry.size);
            let class = &mut of_stream[usize::from(rules.is_large(bytes))];
            match entry.action {
                Action::SegmentAlloc => new = Some((entry.addr, entry.size)),
                Action::SegmentFree => of_stream.iter_mut().for_each(|class| {
                    class.remove(&entry.addr);
                }),
                Action::FreeCompleted => {
                    let before = class.range_mut(..=entry.addr).next_back();
                    before.map(|(_, pieces)| pieces.blocks.remove(&entry.addr));
                }
                Action::Alloc => pools.0.entry(pool).or_default().learn(entry.addr, bytes, made, class, rules),
                _ => {}
            }
        }
        for segment in snapshot.segments_of(trace.device) {
            if let Some(shown) = segment.pool.and_then(|pool| pools.0.get_mut(&pool)) {
                shown.learn_final(segment, rules);
            }
        }
        pools
    }

    /// By context: whether its pool gives whole segments; empty if none does. With `possible`, pools of which the recording does not
    /// show it do so, too.
    pub fn contexts(&self, snapshot: &Snapshot, possible: bool) -> Vec<bool> {
        let is_whole = |shown: &Shown| !shown.splits && (shown.gives_whole_segments || (possible && shown.matters));
        if !self.0.values().any(is_whole) {
            return Vec::new();
        }
        let of_pool = |pool: Option<PoolId>| pool.and_then(|pool| self.0.get(&pool)).is_some_and(is_whole);
        snapshot.contexts.iter().map(|context| of_pool(context.pool)).collect()
    }
}

impl Shown {
    /// Learns from a request, given the segment that was allocated for it, if one was.
    fn learn(&mut self, addr: u64, bytes: u64, made: Option<(u64, u64)>, class: &mut Class, rules: &SizeRules) {
        if let Some((start, size)) = made {
            self.gives_whole_segments |= class.iter().any(|(&start, pieces)| pieces.has_rest(start, bytes, rules));
            class.insert(start, Pieces { size, blocks: BTreeMap::new() });
        }
        let before = class.range_mut(..=addr).next_back();
        let Some((&start, pieces)) = before.filter(|(start, pieces)| addr - **start < pieces.size) else {
            // In an expandable segment, or in one from before the recording: whole ones start and end with pages.
            self.splits |= !addr.is_multiple_of(SMALL_BUFFER);
            self.matters |= !bytes.is_multiple_of(SMALL_BUFFER);
            return;
        };
        self.splits |= start != addr;
        self.matters |= split_size(rules, bytes, pieces.size) < pieces.size;
        pieces.blocks.insert(addr, addr.saturating_add(bytes));
    }

    fn learn_final(&mut self, segment: &Segment, rules: &SizeRules) {
        let used = || segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
        let split = |block: &Block, free| split_size(rules, rules.round(block.requested_size), free);
        if segment.is_expandable {
            self.splits |= used().any(|block| !block.address.is_multiple_of(SMALL_BUFFER));
            self.gives_whole_segments |= used().any(|block| rules.round(block.requested_size) < block.size);
        } else {
            self.splits |= segment.blocks.len() > 1;
            let is_whole = |block: &Block| block.size == segment.total_size && split(block, block.size) < block.size;
            self.gives_whole_segments |= used().any(is_whole);
        }
    }
}

impl Pieces {
    /// Whether a request of so many bytes has room beside the blocks of a segment that starts at `start`. A segment without blocks does
    /// not count: any pool would use it.
    fn has_rest(&self, start: u64, bytes: u64, rules: &SizeRules) -> bool {
        let starts = self.blocks.keys().copied().chain([start.saturating_add(self.size)]);
        let ends = std::iter::once(start).chain(self.blocks.values().copied());
        !self.blocks.is_empty() && starts.zip(ends).any(|(next, end)| rules.may_serve(bytes, next.saturating_sub(end)))
    }
}

/// The size of a block that a request gets from so many free bytes, if the pool splits segments.
fn split_size(rules: &SizeRules, rounded: u64, free: u64) -> u64 {
    if rules.is_large(rounded) && rounded <= free { rules.large_block(rounded, free) } else { rounded }
}
