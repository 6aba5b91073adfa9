//! Blocks and ranges that count for a metric, reduced to the data that grouping needs.

use crate::model::StackId;
use crate::replay::{Allocation, BaselineOrigin, History, Instant, Metric, Track};

/// A block (or, for [`Metric::Reserved`], a reserved range), reduced to the data that grouping needs.
pub(crate) struct Holder {
    /// Index into the allocations, or spans, of the history.
    pub(crate) index: usize,
    pub(crate) bytes: u64,
    pub(crate) stack: StackId,
    /// The entry that allocated it; `None` if it is from before the trace.
    pub(crate) entry: Option<u32>,
    /// Stream and pool of a block from before the trace.
    pub(super) origin: Option<BaselineOrigin>,
    pub(super) baseline: bool,
    pub(super) addr: u64,
    /// First instant at which it counts.
    pub(crate) born: Instant,
    /// First instant at which it no longer counts.
    pub(crate) gone: Instant,
}

impl Holder {
    /// Calls `visit` with everything that counts for a metric at some time and whose lifetime is `wanted`.
    pub(crate) fn visit(
        track: Track<'_>,
        metric: Metric,
        wanted: impl Fn(Instant, Instant) -> bool,
        mut visit: impl FnMut(&Self),
    ) {
        let history = track.history;
        if metric == Metric::Reserved {
            for (index, span) in history.segments.iter().enumerate().filter(|(_, span)| wanted(span.born, span.gone)) {
                visit(&Self {
                    index,
                    bytes: span.size,
                    stack: span.stack,
                    entry: History::entry_before(span.made),
                    origin: None,
                    baseline: span.made == 0,
                    addr: span.addr,
                    born: span.born,
                    gone: span.gone,
                });
            }
            return;
        }
        for (index, allocation) in history.allocations.iter().enumerate() {
            if wanted(allocation.born, gone(allocation, metric))
                && let Some(holder) = Self::of_allocation(track, metric, index)
            {
                visit(&holder);
            }
        }
    }

    #[inline]
    pub(crate) fn of_allocation(track: Track<'_>, metric: Metric, index: usize) -> Option<Self> {
        let history = track.history;
        let allocation = history.allocations.get(index)?;
        Some(Self {
            index,
            bytes: if metric == Metric::Requested { allocation.requested } else { allocation.size },
            stack: track.stack_of(index),
            entry: History::entry_before(allocation.born),
            origin: history.baseline.get(index).copied(),
            baseline: allocation.is_baseline(),
            addr: allocation.addr,
            born: allocation.born,
            gone: gone(allocation, metric),
        })
    }
}

/// First instant at which an allocation no longer counts for a metric.
#[inline]
fn gone(allocation: &Allocation, metric: Metric) -> Instant {
    if metric == Metric::Allocated { allocation.freed } else { allocation.completed }
}
