//! Trace entries in columns.
//!
//! A snapshot contains up to tens of millions of entries, so an entry is a row in a few plain vectors (33 bytes), and values
//! that rarely change from one entry to the next (stream, pool, compile context, metadata) are one interned [`EntryContext`]
//! for each combination.

use super::{PoolId, StackId, StrId};
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::ops::Range;

names! {
    /// What a trace entry records. Names as in the snapshot.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Action {
        /// A block was allocated. `size` is the requested size.
        Alloc = "alloc",
        /// The program freed a block; another stream may still be using it.
        FreeRequested = "free_requested",
        /// The block became available again.
        FreeCompleted = "free_completed",
        /// A segment was obtained from the driver.
        SegmentAlloc = "segment_alloc",
        /// A segment was released to the driver.
        SegmentFree = "segment_free",
        /// A range was mapped into an expandable segment.
        SegmentMap = "segment_map",
        /// A range was unmapped from an expandable segment.
        SegmentUnmap = "segment_unmap",
        /// A snapshot was taken; `size` is the bytes active at that time.
        Snapshot = "snapshot",
        /// A request failed; the address column contains the driver's free bytes, `size` the rounded request.
        Oom = "oom",
        /// Metadata was attached to a live allocation (PyTorch 2.15).
        Annotate = "annotate",
        /// An action that this version does not know; counted by name in the snapshot's notes.
        Unknown = "unknown",
    }
}

impl Action {
    /// Every action, in the order in which reports count them.
    pub const ALL: [Self; 11] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
        Self::Annotate,
        Self::Unknown,
    ];

    #[doc(hidden)]
    pub fn count_in(self, actions: &[Self]) -> usize {
        // The sum of a portion fits in a byte, and the processor adds many bytes at once.
        let portions = actions.chunks(usize::from(u8::MAX));
        portions.map(|portion| usize::from(portion.iter().map(|&action| u8::from(action == self)).sum::<u8>())).sum()
    }
}

/// What many entries have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryContext {
    /// CUDA stream, 0 for the default one.
    pub stream: u64,
    /// Memory pool; `None` before PyTorch 2.15, which is the first to record it.
    pub pool: Option<PoolId>,
    /// `torch.compile` context; `N/A` or empty if there is none.
    pub compile_context: StrId,
    /// Text the user attached (PyTorch 2.11 and later).
    pub user_metadata: StrId,
    /// Text PyTorch attached (PyTorch 2.15, optional).
    pub internal_metadata: StrId,
    /// `forward_frames`: where forward created the autograd node that was running, as a stack of lines. Recorded in anomaly
    /// mode; otherwise empty.
    pub forward: StackId,
}

/// ID of an [`EntryContext`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(#[doc(hidden)] pub u32);

impl ContextId {
    /// Its position in [`Contexts::iter`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug, Default)]
pub struct Contexts {
    set: IndexSet<EntryContext, RandomState>,
    /// The last result: neighboring entries nearly always agree, so this saves hashing.
    last: Option<(EntryContext, ContextId)>,
}

impl Contexts {
    /// The ID of `context`, added if it is new.
    pub fn intern(&mut self, context: EntryContext) -> ContextId {
        if let Some((known, id)) = self.last
            && known == context
        {
            return id;
        }
        let id = ContextId(self.set.insert_full(context).0 as u32);
        self.last = Some((context, id));
        id
    }

    /// The context with this ID; a default one for an ID of another table.
    pub fn get(&self, id: ContextId) -> EntryContext {
        self.set.get_index(id.0 as usize).copied().unwrap_or_default()
    }

    /// Every context, in order of first use.
    pub fn iter(&self) -> impl Iterator<Item = &EntryContext> {
        self.set.iter()
    }

    pub fn len(&self) -> usize {
        self.set.len()
    }

    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

/// One entry, assembled from the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    pub action: Action,
    /// Address; for [`Action::Oom`], the bytes that the device had free.
    pub addr: u64,
    /// Bytes: the requested size for allocations and frees, the whole size for segments.
    pub size: u64,
    /// Microseconds since the epoch; the entry's index if the file has no times (PyTorch 2.0).
    pub time_us: i64,
    pub stack: StackId,
    /// Stream, pool and metadata.
    pub context: ContextId,
}

/// The context column. Most recordings have a handful of contexts, so an ID has one byte until the first larger one comes.
#[derive(Clone, Debug, Default)]
struct ContextColumn {
    narrow: Vec<u8>,
    /// All IDs, if one does not fit a byte.
    wide: Vec<ContextId>,
}

impl ContextColumn {
    fn extend(&mut self, ids: impl Iterator<Item = ContextId> + Clone) {
        if self.wide.is_empty() && ids.clone().all(|id| u8::try_from(id.0).is_ok()) {
            self.narrow.extend(ids.map(|id| id.0 as u8));
        } else {
            self.wide.extend(std::mem::take(&mut self.narrow).into_iter().map(|id| ContextId(u32::from(id))));
            self.wide.extend(ids);
        }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<ContextId> {
        match self.narrow.get(row) {
            Some(&id) => Some(ContextId(u32::from(id))),
            None => self.wide.get(row).copied(),
        }
    }
}

/// Trace entries as columns of equal length. A [`super::DeviceTrace`] is a range of rows.
#[derive(Clone, Debug, Default)]
pub struct TraceEntries {
    actions: Vec<Action>,
    addrs: Vec<u64>,
    sizes: Vec<u64>,
    times: Vec<i64>,
    stacks: Vec<StackId>,
    contexts: ContextColumn,
    /// Whether any time is below the one before it. Updated while appending, because reading the whole column
    /// again would take longer.
    times_fall: bool,
}

impl TraceEntries {
    /// Bytes of memory that one row takes at most.
    pub const ROW_BYTES: usize = 33;

    pub fn len(&self) -> usize {
        self.actions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    #[inline]
    pub fn push(&mut self, entry: TraceEntry) {
        self.actions.push(entry.action);
        self.addrs.push(entry.addr);
        self.sizes.push(entry.size);
        self.times_fall |= self.times.last().is_some_and(|&last| entry.time_us < last);
        self.times.push(entry.time_us);
        self.stacks.push(entry.stack);
        self.contexts.extend(std::iter::once(entry.context));
    }

    pub fn extend(&mut self, entries: &[TraceEntry]) {
        self.actions.extend(entries.iter().map(|entry| entry.action));
        self.addrs.extend(entries.iter().map(|entry| entry.addr));
        self.sizes.extend(entries.iter().map(|entry| entry.size));
        let last = self.times.len().saturating_sub(1);
        self.times.extend(entries.iter().map(|entry| entry.time_us));
        self.times_fall |= !self.times[last..].is_sorted();
        self.stacks.extend(entries.iter().map(|entry| entry.stack));
        self.contexts.extend(entries.iter().map(|entry| entry.context));
    }

    /// The row at this index, or `None` past the end.
    pub fn get(&self, row: usize) -> Option<TraceEntry> {
        Some(TraceEntry {
            action: *self.actions.get(row)?,
            addr: *self.addrs.get(row)?,
            size: *self.sizes.get(row)?,
            time_us: *self.times.get(row)?,
            stack: *self.stacks.get(row)?,
            context: self.contexts.get(row)?,
        })
    }

    /// The rows of `range` in order, clipped to the table.
    pub fn rows(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = TraceEntry> + '_ {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        let range = start..end;
        let words = self.addrs[range.clone()].iter().zip(&self.sizes[range.clone()]).zip(&self.times[range.clone()]);
        let contexts = range.clone().map(|row| self.context(row));
        let ids = self.stacks[range.clone()].iter().zip(contexts);
        self.actions[range].iter().zip(words).zip(ids).map(
            |((&action, ((&addr, &size), &time_us)), (&stack, context))| TraceEntry {
                action,
                addr,
                size,
                time_us,
                stack,
                context,
            },
        )
    }

    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    pub fn stacks(&self) -> &[StackId] {
        &self.stacks
    }

    /// The stack of one row; empty past the end.
    pub fn stack(&self, row: usize) -> StackId {
        self.stacks.get(row).copied().unwrap_or_default()
    }

    /// The context of one row; past the end, that of the first row.
    pub fn context(&self, row: usize) -> ContextId {
        self.contexts.get(row).unwrap_or(ContextId(0))
    }

    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The time column, in microseconds.
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Whether any time in the file is below the one before it, perhaps that of another device.
    #[doc(hidden)]
    pub fn times_fall(&self) -> bool {
        self.times_fall
    }

    /// Writes row indexes, counted from the start of `range`, into the time column: for files without times.
    pub fn number_times(&mut self, range: Range<usize>) {
        for (index, time) in self.times[range].iter_mut().enumerate() {
            *time = index as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_stay_the_same_when_one_does_not_fit_a_byte() {
        let entry = |context| TraceEntry {
            action: Action::Alloc,
            addr: 1,
            size: 2,
            time_us: 3,
            stack: StackId::EMPTY,
            context: ContextId(context),
        };
        let ids = [0, 255, 7, 256, 0, 70_000, 9];
        let mut at_once = TraceEntries::default();
        at_once.extend(&ids[..2].iter().copied().map(entry).collect::<Vec<_>>());
        at_once.extend(&ids[2..].iter().copied().map(entry).collect::<Vec<_>>());
        let mut one_by_one = TraceEntries::default();
        for id in ids {
            one_by_one.push(entry(id));
        }
        for entries in [at_once, one_by_one] {
            let expected: Vec<_> = ids.into_iter().map(entry).collect();
            assert_eq!(entries.rows(0..9).collect::<Vec<_>>(), expected);
            assert_eq!(entries.get(3), Some(entry(256)));
            assert_eq!((entries.context(6), entries.context(7)), (ContextId(9), ContextId(0)));
            assert_eq!(entries.get(7), None);
        }
    }

    #[test]
    fn a_time_below_the_one_before_it_is_noticed() {
        let entry = |time_us| TraceEntry {
            action: Action::Alloc,
            addr: 1,
            size: 2,
            time_us,
            stack: StackId::EMPTY,
            context: ContextId(0),
        };
        let falls = |batches: &[&[i64]]| {
            let (mut entries, mut one_by_one) = (TraceEntries::default(), TraceEntries::default());
            for times in batches {
                let batch: Vec<_> = times.iter().copied().map(entry).collect();
                entries.extend(&batch);
                for entry in batch {
                    one_by_one.push(entry);
                }
            }
            assert_eq!(entries.times_fall(), one_by_one.times_fall());
            entries.times_fall()
        };
        assert!(!falls(&[&[], &[-1, 0, 0], &[0, 5]]));
        assert!(falls(&[&[0, 2, 1, 3], &[4]]), "within a batch");
        assert!(falls(&[&[0, 2], &[1, 3]]), "between two");
    }

    #[test]
    fn actions_are_counted_in_any_number() {
        for count in [0, 1, 255, 256, 1000] {
            let actions = [vec![Action::Oom; count], vec![Action::Alloc; 300]].concat();
            assert_eq!((Action::Oom.count_in(&actions), Action::Snapshot.count_in(&actions)), (count, 0));
        }
    }
}
