//! What is there at some time within a part of a history, without a look at the rest of it.

use crate::analysis::grouping::Holder;
use crate::analysis::timeline::ColumnOf;
use crate::replay::{Instant, Metric, Track};

/// Instants between two lists of what is there.
const BETWEEN: u32 = 4096;

/// What counts for a metric at some time: bytes, and from when to when.
#[derive(Clone, Copy, Debug)]
struct Life {
    bytes: u64,
    born: Instant,
    gone: Instant,
    /// Index into the allocations, or spans, of the history.
    index: u32,
}

/// Everything that ever counts for a metric, in the order of births.
#[derive(Debug)]
pub(super) struct Lives {
    all: Vec<Life>,
    /// For each [`BETWEEN`] instants, the lives that began before and are still there.
    there: Vec<Vec<u32>>,
}

/// What is to be seen of a life: its columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub bytes: u64,
    /// Index into the allocations, or spans, of the history.
    pub index: u32,
    /// The first column that shows it, and the first one behind that.
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
        // Histories list them in this order anyway, which a sort notices at once.
        all.sort_by_key(|life| life.born);
        let mut there = Vec::new();
        let mut live: Vec<u32> = Vec::new();
        let mut next = 0;
        for list in 0..=track.entries() / BETWEEN {
            let instant = list * BETWEEN;
            live.retain(|&life| all[life as usize].gone > instant);
            while next < all.len() && all[next].born < instant {
                if all[next].gone > instant {
                    live.push(next as u32);
                }
                next += 1;
            }
            there.push(live.clone());
        }
        Self { all, there }
    }

    /// Calls `visit` with what any of the columns shows, in the order of births. Columns are instants, never falling.
    pub fn seen(&self, columns: &[Instant], mut visit: impl FnMut(Seen)) {
        let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { return };
        let table = ColumnOf::new(columns.iter().copied());
        let list = (first / BETWEEN).min(self.there.len().saturating_sub(1) as u32);
        let start = self.all.partition_point(|life| life.born < list * BETWEEN);
        let end = self.all.partition_point(|life| life.born <= last);
        let before = self.there.get(list as usize).into_iter().flatten().map(|&life| life as usize);
        for life in before.chain(start..end) {
            let Life { bytes, born, gone, index } = self.all[life];
            let (from, to) = (table.column(born, columns.len()), table.column(gone, columns.len()));
            if from < to {
                visit(Seen { bytes, index, from: from as u32, to: to as u32 });
            }
        }
    }
}
