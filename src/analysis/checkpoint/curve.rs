//! Allocated bytes of a history with some of its calls checkpointed.

use super::overlay::Point;
use crate::replay::{History, Instant, Metric, NEVER, Track};
use crate::simulation::changes::Chosen;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Highest {
    pub bytes: i64,
    pub instant: Instant,
}

pub(super) struct AllocatedCurve {
    allocated: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CurveChange {
    /// This many bytes are freed.
    Drop(i64),
    /// A call is recomputed: after the frees at the instant, before its blocks are allocated again.
    Rerun(usize),
    /// This many bytes are allocated again, or would be freed from now on anyway.
    Return(i64),
}

impl AllocatedCurve {
    pub(super) fn of(track: Track<'_>) -> Self {
        let history = track.history;
        let mut allocated = Vec::with_capacity(history.entries() as usize + 1);
        allocated.push(history.start.get(Metric::Allocated));
        track.walk(|_, counters| allocated.push(counters.get(Metric::Allocated)));
        Self { allocated }
    }

    pub(super) fn peak(&self, chosen: &Chosen, history: &History) -> Highest {
        let mut peak = Highest { bytes: i64::MIN, instant: 0 };
        self.walk(chosen, history, |range, shift, rerun| {
            if let Some(bytes) = rerun {
                let bytes = self.allocated[range.start as usize] + shift + bytes;
                if bytes > peak.bytes {
                    peak = Highest { bytes, instant: range.start };
                }
                return;
            }
            let slice = &self.allocated[range.start as usize..range.end as usize];
            // Most periods are not the highest: find the value first, and its place only then.
            let highest = slice.iter().copied().max().unwrap_or(i64::MIN);
            if highest.saturating_add(shift) > peak.bytes {
                let place = slice.iter().position(|&bytes| bytes == highest).unwrap_or(0);
                peak = Highest { bytes: highest + shift, instant: range.start + place as u32 };
            }
        });
        peak
    }

    /// Calls `visit` with each instant from `from` on and the bytes allocated at it, with these calls checkpointed.
    pub(super) fn points(
        &self,
        chosen: &Chosen,
        history: &History,
        from: Instant,
        visit: &mut dyn FnMut(Instant, Point),
    ) {
        self.walk(chosen, history, |period, shift, rerun| {
            let level = |at: Instant| self.allocated[at as usize] + shift;
            match rerun {
                Some(bytes) if period.start >= from => {
                    visit(period.start, Point::Spike(level(period.start) + bytes));
                }
                Some(_) => {}
                None => (period.start.max(from)..period.end).for_each(|at| visit(at, Point::Level(level(at)))),
            }
        });
    }

    /// Calls `visit` with each period of instants and its shift, and at each instant at which a call is recomputed,
    /// with the most that the call has allocated by then.
    fn walk(
        &self,
        chosen: &Chosen,
        history: &History,
        mut visit: impl FnMut(std::ops::Range<Instant>, i64, Option<i64>),
    ) {
        let mut changes: Vec<(Instant, CurveChange)> = Vec::new();
        let mut reruns = Vec::new();
        for (call, recompute) in chosen.calls.iter().enumerate() {
            if recompute.resume != NEVER {
                changes.push((recompute.resume, CurveChange::Rerun(call)));
            }
            // Most blocks come back when their call is recomputed: one change for all of them.
            let mut returned = 0;
            for gap in &recompute.gaps {
                // At its first instant, the operator that releases it also has its own new blocks.
                if gap.from < gap.to {
                    let bytes = gap.bytes as i64;
                    changes.push((gap.from + 1, CurveChange::Drop(bytes)));
                    if gap.to == recompute.resume {
                        returned += bytes;
                    } else {
                        changes.push((gap.to, CurveChange::Return(bytes)));
                    }
                }
            }
            if returned != 0 {
                changes.push((recompute.resume, CurveChange::Return(returned)));
            }
            for input in &recompute.inputs {
                changes.push((input.from, CurveChange::Return(input.bytes as i64)));
                changes.push((input.to, CurveChange::Drop(input.bytes as i64)));
            }
            reruns.push(recompute.rerun_peak_bytes as i64);
        }
        let first = chosen.calls.iter().map(|recompute| recompute.resume).min();
        let requested = |like: u32| history.allocations.get(like as usize).map_or(0, |allocation| allocation.requested);
        let workspace_bytes: u64 = chosen.workspaces.iter().map(|workspace| requested(workspace.like)).sum();
        changes.extend(
            first.filter(|&first| first != NEVER).map(|first| (first, CurveChange::Drop(-(workspace_bytes as i64)))),
        );
        changes.sort_unstable();
        let end = self.allocated.len() as Instant;
        let (mut from, mut shift) = (0, 0);
        for (at, change) in changes {
            if at > from {
                visit(from..at.min(end), shift, None);
                from = at.min(end);
            }
            match change {
                CurveChange::Rerun(call) => visit(at..at + 1, shift, Some(reruns[call])),
                CurveChange::Drop(bytes) => shift -= bytes,
                CurveChange::Return(bytes) => shift += bytes,
            }
        }
        visit(from..end, shift, None);
    }
}
