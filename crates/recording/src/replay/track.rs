//! One device of a recording: its entries and their history.

use super::allocation::{Allocation, Instant, NEVER};
use super::counters::{Counters, Maximum, Metric};
use super::history::History;
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, DeviceId, EntryContext, Segment, Snapshot, StackId};

/// The entries of one device and their history. Entries are counted within the device's trace, from 0.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    pub snapshot: &'a Snapshot,
    /// The history of the device's entries.
    pub history: &'a History,
}

impl<'a> Track<'a> {
    /// The device of a history, which must belong to the recording.
    pub fn new(snapshot: &'a Snapshot, history: &'a History) -> Self {
        Self { snapshot, history }
    }

    pub fn device(self) -> DeviceId {
        self.history.device
    }

    pub fn entries(self) -> u32 {
        self.history.entries()
    }

    pub fn actions(self) -> &'a [Action] {
        self.column(self.snapshot.entries.actions())
    }

    pub fn sizes(self) -> &'a [u64] {
        self.column(self.snapshot.entries.sizes())
    }

    /// The time of each entry, in microseconds; its number in a recording without times.
    pub fn times(self) -> &'a [i64] {
        self.column(self.snapshot.entries.times())
    }

    pub fn stacks(self) -> &'a [StackId] {
        self.column(self.snapshot.entries.stacks())
    }

    /// Whether the only entries are markers of earlier snapshots: nothing was allocated or freed since the first of them.
    pub fn has_only_markers(self) -> bool {
        self.entries() > 0 && self.actions().iter().all(|&action| action == Action::Snapshot)
    }

    fn column<T>(self, all: &'a [T]) -> &'a [T] {
        all.get(self.history.rows.clone()).unwrap_or(&[])
    }

    /// Whether entries have times: PyTorch before 2.3 writes none.
    pub fn has_times(self) -> bool {
        self.snapshot.notes.has_times
    }

    /// The row of an entry in the columns of the whole recording.
    pub fn row(self, entry: u32) -> usize {
        self.history.rows.start + entry as usize
    }

    pub fn entry(self, entry: u32) -> Option<TraceEntry> {
        self.snapshot.entries.get(self.row(entry))
    }

    pub fn action(self, entry: u32) -> Option<Action> {
        self.snapshot.entries.actions().get(self.row(entry)).copied()
    }

    /// The stack of an entry; past the end, the empty stack.
    pub fn stack(self, entry: u32) -> StackId {
        self.snapshot.entries.stack(self.row(entry))
    }

    pub fn context(self, entry: u32) -> EntryContext {
        self.snapshot.contexts.get(self.snapshot.entries.context(self.row(entry)))
    }

    /// The stack of the allocation with this index: that of its alloc entry, or of its block in the final segments if it is
    /// older than the trace.
    pub fn stack_of(self, allocation: usize) -> StackId {
        match self.history.born_row(allocation) {
            Some(row) => self.snapshot.entries.stack(row),
            None => self.history.baseline.get(allocation).map_or(StackId::EMPTY, |origin| origin.stack),
        }
    }

    /// The entries that allocate, each with the index of its allocation and its stack.
    #[doc(hidden)]
    pub fn births(self) -> impl Iterator<Item = (u32, u32, StackId)> {
        let entries = self.actions().iter().zip(&self.history.links).zip(self.stacks());
        let births = (0u32..).zip(entries).filter(|(_, ((action, _), _))| **action == Action::Alloc);
        births.map(|(entry, ((_, &link), &stack))| (entry, link, stack))
    }

    /// Every allocation with its index and its stack, as from [`Track::stack_of`].
    #[doc(hidden)]
    pub fn allocations(self) -> impl Iterator<Item = (u32, &'a Allocation, StackId)> {
        let (stacks, baseline) = (self.stacks(), &self.history.baseline);
        (0u32..).zip(&self.history.allocations).map(move |(index, allocation)| {
            let stack = match History::entry_before(allocation.born) {
                Some(entry) => stacks.get(entry as usize).copied(),
                None => baseline.get(index as usize).map(|origin| origin.stack),
            };
            (index, allocation, stack.unwrap_or(StackId::EMPTY))
        })
    }

    /// The allocation with this index; `None` past the end.
    pub fn allocation(self, index: usize) -> Option<&'a Allocation> {
        self.history.allocations.get(index)
    }

    pub fn segments(self) -> &'a [Segment] {
        self.snapshot.segments_of(self.history.device)
    }

    /// Number of entries of each action, in the order of [`Action::ALL`].
    pub fn action_counts(self) -> [u64; Action::ALL.len()] {
        let mut counts = [0; Action::ALL.len()];
        for &action in self.actions() {
            counts[action as usize] += 1;
        }
        counts
    }

    /// Number of entries of one action; faster than counting all actions.
    #[doc(hidden)]
    pub fn count_of(self, action: Action) -> u64 {
        action.count_in(self.actions()) as u64
    }

    pub fn counters_at(self, instant: Instant) -> Counters {
        let history = self.history;
        // The peak is requested most often, and this saves a walk over all entries.
        if let Some(at_maxima) = &history.at_maxima
            && let Some(metric) = history.maxima.iter().position(|maximum| maximum.instant == instant)
        {
            return at_maxima[metric];
        }
        let mut counters = history.start;
        self.walk_to(instant, |_, now| counters = *now);
        counters
    }

    /// Calls `visit` with the counters after each entry, in order.
    pub fn walk(self, visit: impl FnMut(Instant, &Counters)) {
        self.walk_to(NEVER, visit);
    }

    /// Like [`Track::walk`], up to an instant.
    pub fn walk_to(self, last: Instant, visit: impl FnMut(Instant, &Counters)) {
        self.walk_between(0, self.history.start, last, visit);
    }

    /// Like [`Track::walk_to`], from after an instant on, given the counters there.
    #[doc(hidden)]
    pub fn walk_between(
        self,
        first: Instant,
        mut counters: Counters,
        last: Instant,
        mut visit: impl FnMut(Instant, &Counters),
    ) {
        let history = self.history;
        // Only two narrow columns are read for every entry: this loop is limited by memory bandwidth.
        let entries = first as usize..(last as usize).min(history.links.len());
        let (actions, sizes) = (self.actions(), self.sizes());
        let (Some(some), Some(links)) = (actions.get(entries.clone()), history.links.get(entries)) else { return };
        let applied =
            if first == 0 { 0 } else { history.corrections.partition_point(|(instant, _)| *instant <= first) };
        let mut corrections = history.corrections[applied..].iter().peekable();
        for (index, (&action, &link)) in (first..).zip(some.iter().zip(links)) {
            let now = index + 1;
            counters.apply(action, history.allocations.get(link as usize), now, || sizes[index as usize]);
            while let Some((_, bytes)) = corrections.next_if(|(instant, _)| *instant <= now) {
                counters.correct(*bytes);
            }
            visit(now, &counters);
        }
    }

    /// Each counter's maximum within the instants `from..=to`, in the order of [`Metric::ALL`], and the counters at the
    /// last of them.
    pub fn maxima(self, from: Instant, to: Instant) -> ([Maximum; 4], Counters) {
        let start = self.history.start;
        let mut maxima = Metric::ALL.map(|metric| Maximum { bytes: start.get(metric), instant: 0 });
        let mut end = start;
        self.walk_to(to, |instant, counters| {
            for (maximum, metric) in maxima.iter_mut().zip(Metric::ALL) {
                let bytes = counters.get(metric);
                if instant == from || (instant > from && bytes > maximum.bytes) {
                    *maximum = Maximum { bytes, instant };
                }
            }
            end = *counters;
        });
        (maxima, end)
    }

    /// The first instant within `from..=to` at which a metric is highest, and its value.
    pub fn highest(self, metric: Metric, from: Instant, to: Instant) -> Maximum {
        self.maxima(from, to).0[metric as usize]
    }
}
