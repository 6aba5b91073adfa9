//! The requests of a recording played again, with some of its calls checkpointed.

use super::blocks::{Blocks, Handle, Pool};
use super::curve::{NewPeak, Point};
use crate::allocator::{PoolIndex, SizeRules};
use crate::facts::segments::layout::Layout;
use crate::model::{Action, HOST_DEVICE, PoolId};
use crate::play::changes::recompute::Recompute;
use crate::replay::{History, Instant, Metric, NEVER, Track};
use std::collections::{HashMap, HashSet};

/// The beginning of a history, ready to be played.
pub(super) struct Stage<'a> {
    history: &'a History,
    actions: &'a [Action],
    /// The pool of each entry.
    pools: Vec<PoolIndex>,
    /// The blocks before the first entry.
    start: Blocks,
    /// The block of each allocation that is made until the end.
    handles: Vec<Option<Handle>>,
    /// The entry behind the last one that is played.
    end: u32,
}

/// What changes at an instant, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// An allocation is dropped.
    Drop(u32),
    /// A call runs again.
    Rerun(usize),
}

impl<'a> Stage<'a> {
    /// Sets up the first `end` entries. `None` where a plain replay of them is not what was recorded: then the rules that
    /// are played are not those of this recording's allocator.
    pub(super) fn new(track: Track<'a>, end: u32) -> Option<Self> {
        let Track { snapshot, history } = track;
        if history.device <= HOST_DEVICE || !snapshot.notes.format.has_segments() {
            return None;
        }
        let rules = SizeRules::device(&snapshot.settings);
        let made = history.allocations.partition_point(|allocation| allocation.born <= end);
        let mut handles = vec![None; made];
        let layout = Layout::at(track, 0);
        let mut start = Blocks::new(rules, &layout, |index, handle| {
            if let Some(slot) = handles.get_mut(index) {
                *slot = Some(handle);
            }
        });
        let mut known: HashMap<Pool, PoolIndex> = HashMap::new();
        let pool = |entry: u32| {
            let context = track.context(entry);
            let pool = (context.stream, context.pool.filter(|&pool| pool != PoolId::default()));
            *known.entry(pool).or_insert_with(|| start.pool(pool))
        };
        let pools = (0..end.min(track.entries())).map(pool).collect();
        let stage = Self { history, actions: track.actions(), pools, start, handles, end };
        let mut recorded = history.start.get(Metric::Allocated);
        track.walk_to(end, |_, counters| recorded = recorded.max(counters.get(Metric::Allocated)));
        (stage.peak(&[], 0).bytes == recorded).then_some(stage)
    }

    /// The entry behind the last one that is played.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// The peak of what is played, with these calls checkpointed. Once one runs again there are so many bytes of
    /// workspaces more.
    pub(super) fn peak(&self, calls: &[&Recompute], workspace_bytes: u64) -> NewPeak {
        let mut peak = NewPeak { bytes: i64::MIN, ..NewPeak::default() };
        self.play(calls, workspace_bytes, |moment, player| {
            let (instant, bytes, rerun) = match moment {
                Moment::At(instant) => (instant, player.blocks.allocated() as i64, None),
                Moment::BeforeRerun(..) => return,
                Moment::Rerun(instant, call, bytes) => (instant, bytes as i64, Some(call)),
            };
            if bytes > peak.bytes {
                peak = NewPeak { bytes, instant, rerun };
            }
        });
        peak
    }

    /// Calls `visit` with each instant and what is allocated at it, with these calls checkpointed.
    pub(super) fn points(&self, calls: &[&Recompute], workspace_bytes: u64, visit: &mut dyn FnMut(Instant, Point)) {
        self.play(calls, workspace_bytes, |moment, player| match moment {
            Moment::At(instant) => visit(instant, Point::Level(player.blocks.allocated() as i64)),
            Moment::BeforeRerun(..) => {}
            Moment::Rerun(instant, _, bytes) => visit(instant, Point::Spike(bytes as i64)),
        });
    }

    /// The blocks in use at a peak, by their allocation, with the sizes they have in the play; before a call runs again,
    /// where one does.
    pub(super) fn blocks_at(&self, calls: &[&Recompute], workspace_bytes: u64, peak: &NewPeak) -> Vec<(usize, u64)> {
        let wanted = match peak.rerun {
            Some(call) => Moment::BeforeRerun(peak.instant, call),
            None => Moment::At(peak.instant),
        };
        let mut blocks = Vec::new();
        self.play(calls, workspace_bytes, |moment, player| {
            if moment == wanted {
                blocks = player.in_use();
            }
        });
        blocks
    }

    /// Plays the entries, with calls checkpointed, and calls `visit` at each [`Moment`].
    fn play(&self, calls: &[&Recompute], workspace_bytes: u64, mut visit: impl FnMut(Moment, &Player<'_, '_>)) {
        let mut changes: Vec<(Instant, Change)> = Vec::new();
        for (call, recompute) in calls.iter().enumerate().filter(|(_, recompute)| recompute.start < self.end) {
            changes.push((recompute.resume, Change::Rerun(call)));
            changes.extend(recompute.gaps.iter().map(|gap| (gap.from, Change::Drop(gap.allocation))));
            changes.extend(recompute.inputs.iter().map(|input| (input.to, Change::Drop(input.allocation))));
        }
        changes.sort_unstable();
        let mut changes = changes.into_iter().peekable();
        let waiting = calls.iter().flat_map(|recompute| &recompute.inputs).map(|input| input.allocation).collect();
        let (blocks, handles) = (self.start.clone(), self.handles.clone());
        let mut player = Player { stage: self, blocks, handles, waiting };
        let mut workspace_bytes = Some(workspace_bytes);
        visit(Moment::At(0), &player);
        for entry in 0..self.end {
            while let Some((_, change)) = changes.next_if(|&(at, _)| at <= entry) {
                match change {
                    Change::Drop(allocation) => player.drop(allocation),
                    Change::Rerun(call) => {
                        player.blocks.add(workspace_bytes.take().unwrap_or(0));
                        visit(Moment::BeforeRerun(entry, call), &player);
                        let bytes = player.rerun(calls[call]);
                        visit(Moment::Rerun(entry, call, bytes), &player);
                    }
                }
            }
            player.apply(entry);
            visit(Moment::At(entry + 1), &player);
        }
    }
}

/// A point of a play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// This instant.
    At(Instant),
    /// At an instant, before this call runs again.
    BeforeRerun(Instant, usize),
    /// At an instant, after this call has run again, and the most that was allocated meanwhile.
    Rerun(Instant, usize, u64),
}

struct Player<'s, 'a> {
    stage: &'s Stage<'a>,
    blocks: Blocks,
    /// The block of each allocation in use.
    handles: Vec<Option<Handle>>,
    /// Allocations that are not freed where they were recorded as freed, but dropped later.
    waiting: HashSet<u32>,
}

impl Player<'_, '_> {
    fn apply(&mut self, entry: u32) {
        let index = self.stage.history.links.get(entry as usize).copied().unwrap_or(u32::MAX);
        match self.stage.actions[entry as usize] {
            Action::Alloc => self.alloc(index, entry),
            Action::FreeRequested if !self.waiting.contains(&index) => self.drop(index),
            // Segments go back in runs: when the program empties the cache, and before a request fails.
            Action::SegmentFree if entry == 0 || self.stage.actions[entry as usize - 1] != Action::SegmentFree => {
                self.blocks.empty_cache();
            }
            _ => {}
        }
    }

    fn alloc(&mut self, index: u32, entry: u32) {
        let Some(allocation) = self.stage.history.allocations.get(index as usize) else { return };
        let handle = self.blocks.alloc(self.stage.pools[entry as usize], allocation.requested);
        if let Some(slot) = self.handles.get_mut(index as usize) {
            *slot = Some(handle);
        }
    }

    /// Every block in use by its allocation, with its size.
    fn in_use(&self) -> Vec<(usize, u64)> {
        let blocks = self.handles.iter().enumerate();
        blocks.filter_map(|(index, handle)| Some((index, self.blocks.size((*handle)?)))).collect()
    }

    fn take(&mut self, index: u32) -> Option<Handle> {
        self.handles.get_mut(index as usize)?.take()
    }

    fn is_freed(&self, index: u32) -> bool {
        self.stage.history.allocations.get(index as usize).is_some_and(|allocation| allocation.freed != NEVER)
    }

    fn drop(&mut self, index: u32) {
        if let Some(handle) = self.take(index) {
            self.blocks.free(handle);
        }
    }

    /// Runs a call again and keeps what was dropped; the most that is allocated meanwhile.
    fn rerun(&mut self, call: &Recompute) -> u64 {
        // What is still in use of the first run is none of the second one's business.
        let first: Vec<Option<Handle>> = call.born.clone().map(|index| self.take(index)).collect();
        let mut peak = self.blocks.allocated();
        for entry in call.start..call.stop {
            let index = self.stage.history.links.get(entry as usize).copied().unwrap_or(u32::MAX);
            match self.stage.actions[entry as usize] {
                // What is never freed was made at the first use, and is there already.
                Action::Alloc if self.is_freed(index) => self.alloc(index, entry),
                Action::FreeRequested if call.born.contains(&index) => self.drop(index),
                _ => {}
            }
            peak = peak.max(self.blocks.allocated());
        }
        for index in call.born.clone().filter(|index| call.kept.binary_search(index).is_err()) {
            self.drop(index);
        }
        for (index, handle) in call.born.clone().zip(first).filter(|(_, handle)| handle.is_some()) {
            self.handles[index as usize] = handle;
        }
        peak
    }
}
