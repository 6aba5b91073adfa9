//! Phases as periods, and which period follows each.

use super::phases::{Phase, Phases};
use crate::model::Action;
use crate::replay::{Instant, Track};

/// Consecutive entries of one phase, whether recorded or inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) phase: Phase,
    /// First entry.
    pub(super) start: u32,
    /// The entry after the last one.
    pub(super) end: u32,
}

impl Period {
    /// Whether a block freed at an instant outlives the period.
    pub(super) fn outlived_by(self, freed: Instant) -> bool {
        freed > self.end
    }

    /// Whether a block allocated earlier and freed at an instant is live when the period starts.
    pub(super) fn begins_before(self, freed: Instant) -> bool {
        freed > self.start
    }
}

/// All periods of a device.
pub(super) struct Periods {
    all: Vec<Period>,
    /// For each phase, in the order of [`Phase::ALL`], the next period of that phase from each period on.
    from: [Vec<u32>; Phase::ALL.len()],
    /// Failed requests.
    ooms: Vec<u32>,
    entries: u32,
}

impl Periods {
    pub(super) fn of(track: Track<'_>, phases: &Phases) -> Self {
        let history = track.history;
        let mut all: Vec<Period> = Vec::new();
        for span in &phases.spans {
            match all.last_mut().filter(|last| last.phase == span.phase) {
                Some(last) => last.end = span.end,
                None => all.push(Period { phase: span.phase, start: span.start, end: span.end }),
            }
        }
        let from = Phase::ALL.map(|phase| {
            let mut next = all.len() as u32;
            let mut from = vec![next; all.len() + 1];
            for (index, period) in all.iter().enumerate().rev() {
                if period.phase == phase {
                    next = index as u32;
                }
                from[index] = next;
            }
            from
        });
        let actions = track.actions();
        let mut ooms = Vec::new();
        for (entry, &action) in (0..).zip(actions) {
            if action == Action::Oom {
                ooms.push(entry);
            }
        }
        Self { all, from, ooms, entries: history.entries() }
    }

    pub(super) fn get(&self, index: usize) -> Option<Period> {
        self.all.get(index).copied()
    }

    /// The first period of a phase after the period with this index, with its own index.
    pub(super) fn next(&self, phase: Phase, after: usize) -> Option<(usize, Period)> {
        self.from(phase, after + 1)
    }

    /// The first period of a phase from an index on.
    pub(super) fn from(&self, phase: Phase, index: usize) -> Option<(usize, Period)> {
        let place = Phase::ALL.iter().position(|&known| known == phase)?;
        let next = *self.from[place].get(index)? as usize;
        Some((next, self.get(next)?))
    }

    /// The first failed request at or after one entry and before another.
    pub(super) fn oom_between(&self, from: u32, to: u32) -> Option<u32> {
        let next = *self.ooms.get(self.ooms.partition_point(|&entry| entry < from))?;
        (next < to).then_some(next)
    }

    /// Whether the recording ends in a period.
    pub(super) fn is_last(&self, period: Period) -> bool {
        period.end == self.entries
    }
}

/// Finds the periods of entries that are requested in order.
pub(super) struct Cursor<'s> {
    periods: &'s Periods,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(periods: &'s Periods) -> Self {
        Self { periods, at: 0 }
    }

    /// The period of an entry, with its index.
    pub(super) fn find(&mut self, entry: u32) -> Option<(usize, Period)> {
        while self.periods.get(self.at)?.end <= entry {
            self.at += 1;
        }
        Some((self.at, self.periods.get(self.at)?))
    }
}
