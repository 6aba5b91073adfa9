//! A history with some of its calls checkpointed.

use crate::play::changes::recompute::Recompute;
use crate::replay::{Instant, Metric, NEVER, Track};

/// The highest point of a history in which calls are checkpointed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewPeak {
    /// Bytes allocated there.
    pub bytes: i64,
    /// The instant of the recorded history at which it is reached.
    pub instant: Instant,
    /// The call, counted among those checkpointed, that runs again at that moment.
    pub rerun: Option<usize>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// So many bytes are allocated from now on.
    Level(i64),
    /// So many are for a moment: while a call runs again.
    Spike(i64),
}

/// The allocated bytes of a history at each instant.
pub(super) struct AllocatedCurve {
    allocated: Vec<i64>,
}

/// One change to a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CurveChange {
    /// So many bytes are dropped.
    Drop(i64),
    /// A call runs again: after what is dropped at the instant, before anything is back.
    Rerun(usize),
    /// So many bytes come back, or would be gone from now on anyway.
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

    /// The peak with these calls checkpointed. Once one runs again there are so many bytes of workspaces more.
    pub(super) fn peak(&self, calls: &[&Recompute], workspace_bytes: u64) -> NewPeak {
        let mut peak = NewPeak { bytes: i64::MIN, ..NewPeak::default() };
        self.walk(calls, workspace_bytes, |range, shift, rerun| {
            if let Some((call, bytes)) = rerun {
                let bytes = self.allocated[range.start as usize] + shift + bytes;
                if bytes > peak.bytes {
                    peak = NewPeak { bytes, instant: range.start, rerun: Some(call) };
                }
                return;
            }
            let slice = &self.allocated[range.start as usize..range.end as usize];
            // Most stretches are not the highest: find the value first, and its place only then.
            let highest = slice.iter().copied().max().unwrap_or(i64::MIN);
            if highest.saturating_add(shift) > peak.bytes {
                let place = slice.iter().position(|&bytes| bytes == highest).unwrap_or(0);
                peak = NewPeak { bytes: highest + shift, instant: range.start + place as u32, rerun: None };
            }
        });
        peak
    }

    /// Calls `visit` with each instant from one on and what is allocated at it, with these calls checkpointed.
    pub(super) fn points(
        &self,
        calls: &[&Recompute],
        workspace_bytes: u64,
        from: Instant,
        visit: &mut dyn FnMut(Instant, Point),
    ) {
        self.walk(calls, workspace_bytes, |stretch, shift, rerun| {
            let level = |at: Instant| self.allocated[at as usize] + shift;
            match rerun {
                Some((_, bytes)) if stretch.start >= from => {
                    visit(stretch.start, Point::Spike(level(stretch.start) + bytes));
                }
                Some(_) => {}
                None => (stretch.start.max(from)..stretch.end).for_each(|at| visit(at, Point::Level(level(at)))),
            }
        });
    }

    /// Calls `visit` with each stretch of instants and by how much it is shifted, and at the instants at which a call
    /// runs again with the most that it has allocated by then.
    fn walk(
        &self,
        calls: &[&Recompute],
        workspace_bytes: u64,
        mut visit: impl FnMut(std::ops::Range<Instant>, i64, Option<(usize, i64)>),
    ) {
        let mut changes: Vec<(Instant, CurveChange)> = Vec::new();
        let mut reruns = Vec::new();
        for (call, recompute) in calls.iter().enumerate() {
            if recompute.resume != NEVER {
                changes.push((recompute.resume, CurveChange::Rerun(call)));
            }
            for gap in &recompute.gaps {
                // At its first instant the operator that lets go of it has what it made itself, too.
                if gap.from < gap.to {
                    changes.push((gap.from + 1, CurveChange::Drop(gap.bytes as i64)));
                    changes.push((gap.to, CurveChange::Return(gap.bytes as i64)));
                }
            }
            for input in &recompute.inputs {
                changes.push((input.from, CurveChange::Return(input.bytes as i64)));
                changes.push((input.to, CurveChange::Drop(input.bytes as i64)));
            }
            reruns.push(recompute.rerun_peak_bytes as i64);
        }
        let first = calls.iter().map(|recompute| recompute.resume).min();
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
                CurveChange::Rerun(call) => visit(at..at + 1, shift, Some((call, reruns[call]))),
                CurveChange::Drop(bytes) => shift -= bytes,
                CurveChange::Return(bytes) => shift += bytes,
            }
        }
        visit(from..end, shift, None);
    }
}
