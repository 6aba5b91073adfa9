//! Forward passes of a recording.

use crate::analysis::training::{Call, Phase, Phases};
use crate::model::Snapshot;
use crate::replay::History;
use std::ops::Range;

/// The forward passes that a backward follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes {
    /// Entries of each pass, from its first forward entry to the first entry of its backward.
    pub(super) entries: Vec<Range<u32>>,
}

impl Passes {
    pub(super) fn of(phases: &Phases) -> Self {
        let mut entries: Vec<Range<u32>> = Vec::new();
        let mut start = None;
        for span in &phases.spans {
            match span.phase {
                Phase::Forward => start = start.or(Some(span.start)),
                Phase::Backward => entries.extend(start.take().map(|start| start..span.start)),
                _ => {}
            }
        }
        Self { entries }
    }

    /// The entry at which the pass after the one around or before an instant begins.
    pub(super) fn end_of_step(&self, instant: u32, entries: u32) -> u32 {
        let next = self.entries.partition_point(|pass| pass.start < instant);
        self.entries.get(next).map_or(entries, |pass| pass.start)
    }

    /// Calls of one function, in order, by pass.
    pub(super) fn split<'c>(&self, calls: impl IntoIterator<Item = &'c Call>) -> Vec<Vec<&'c Call>> {
        let mut passes = vec![Vec::new(); self.entries.len()];
        let mut over = 0;
        for call in calls {
            let pass = self.entries.partition_point(|pass| pass.end <= call.start);
            // What a call of the same function calls is part of it.
            if call.start >= over
                && let Some(calls) = passes.get_mut(pass)
                && self.entries[pass].start <= call.start
            {
                calls.push(call);
                over = call.end;
            }
        }
        passes
    }

    /// The mean time of a pass and of the calls within it, in microseconds, where the file has times.
    pub(super) fn mean_us(&self, snapshot: &Snapshot, history: &History, calls: &[Vec<&Call>]) -> Option<(i64, i64)> {
        let times = snapshot.entries.times().get(history.rows.clone())?;
        let passes = self.entries.len() as i64;
        if !snapshot.notes.has_times || passes == 0 {
            return None;
        }
        // What happens at an entry lasts until the next one.
        let last = times.len().checked_sub(1)?;
        let lasted =
            |start: u32, end: u32| times[last.min(end as usize)].saturating_sub(times[last.min(start as usize)]);
        let passed = self.entries.iter().fold(0i64, |sum, pass| sum.saturating_add(lasted(pass.start, pass.end)));
        let called = calls.iter().flatten().fold(0i64, |sum, call| sum.saturating_add(lasted(call.start, call.end)));
        Some((passed / passes, called / passes))
    }
}
