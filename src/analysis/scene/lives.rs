//! The memory that is live at some time within a part of a history, without examining the rest of it.

use crate::analysis::timeline::ColumnOf;
use crate::facts::grouping::Holder;
use crate::replay::{Instant, Metric, Track};
use std::ops::Range;

/// At least this many lives start between two lists of live blocks.
const BETWEEN: usize = 512;

/// An allocation or span that counts for a metric at some time: its bytes, its start and its end.
#[derive(Clone, Copy, Debug)]
struct Life {
    bytes: u64,
    born: Instant,
    gone: Instant,
    /// Index into the allocations, or spans, of the history.
    index: u32,
}

/// Everything that a metric counts at any time, in the order of allocations.
#[derive(Debug)]
pub(super) struct Lives {
    all: Vec<Life>,
    lists: Vec<List>,
    /// The lives of all lists.
    there: Vec<u32>,
}

#[derive(Debug)]
struct List {
    instant: Instant,
    /// Number of lives that have started by then.
    begun: usize,
    /// Those of them that are still live, within [`Lives::there`].
    there: Range<usize>,
}

/// The visible part of a life: its columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub bytes: u64,
    /// Index into the allocations, or spans, of the history.
    pub index: u32,
    /// The first column that shows it, and the first one after it.
    pub from: u32,
    pub to: u32,
}

impl Lives {
    pub fn of(track: Track<'_>, metric: Metric) -> Self {
        let mut all = Vec::new();
        Holder::visit(
            track,
            metric,
            |born, gone| born < gone,
            |holder| {
                let Holder { bytes, born, gone, .. } = *holder;
                all.push(Life { bytes, born, gone, index: holder.index as u32 });
            },
        );
        // Histories list them in this order anyway, which the sort detects at once.
        all.sort_by_key(|life| life.born);
        let mut lists: Vec<List> = Vec::new();
        let mut there = Vec::new();
        let mut live: Vec<u32> = Vec::new();
        let (mut kept, mut begun_since) = (0, 0);
        for (begun, life) in all.iter().enumerate() {
            // A list is as long as the number of live blocks, and at least that many lives start before the next list: all
            // lists together are at most a few times as long as all lives, even if those never end.
            if begun_since >= BETWEEN.max(kept) {
                let instant = life.born;
                live.retain(|&before| all[before as usize].gone > instant);
                let start = there.len();
                there.extend_from_slice(&live);
                lists.push(List { instant, begun, there: start..there.len() });
                (kept, begun_since) = (live.len(), 0);
            }
            live.push(begun as u32);
            begun_since += 1;
        }
        Self { all, lists, there }
    }

    /// Calls `visit` with each life that any of the columns shows, in the order of allocations. Columns are instants in
    /// ascending order.
    pub fn seen(&self, columns: &[Instant], mut visit: impl FnMut(Seen)) {
        let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { return };
        let table = ColumnOf::new(columns.iter().copied());
        let list =
            self.lists.partition_point(|list| list.instant <= first).checked_sub(1).map(|last| &self.lists[last]);
        let start = list.map_or(0, |list| list.begun);
        let end = self.all.partition_point(|life| life.born <= last);
        let there = list.map_or(&[][..], |list| &self.there[list.there.clone()]);
        let before = there.iter().map(|&life| life as usize);
        for life in before.chain(start..end) {
            let Life { bytes, born, gone, index } = self.all[life];
            let (from, to) = (table.column(born, columns.len()), table.column(gone, columns.len()));
            if from < to {
                visit(Seen { bytes, index, from: from as u32, to: to as u32 });
            }
        }
    }
}
