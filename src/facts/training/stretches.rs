//! Phases as the life of a block sees them: stretches of one phase, and what comes after each.

use super::phases::{Phase, Phases};
use crate::model::Action;
use crate::replay::{Instant, Track};

/// Consecutive entries of one phase, whether recorded or inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) phase: Phase,
    /// First entry.
    pub(super) start: u32,
    /// The entry behind the last one.
    pub(super) end: u32,
}

impl Stretch {
    /// Whether a block freed at an instant is gone before the stretch ends.
    pub(super) fn outlived_by(self, freed: Instant) -> bool {
        freed > self.end
    }

    /// Whether a block freed at an instant, and made before, is there when the stretch begins.
    pub(super) fn begins_before(self, freed: Instant) -> bool {
        freed > self.start
    }
}

/// All stretches of a device.
pub(super) struct Stretches {
    all: Vec<Stretch>,
    /// For each phase, in the order of [`Phase::ALL`], the next stretch of it from each stretch on.
    from: [Vec<u32>; Phase::ALL.len()],
    /// Failed requests.
    ooms: Vec<u32>,
    entries: u32,
}

impl Stretches {
    pub(super) fn of(track: Track<'_>, phases: &Phases) -> Self {
        let history = track.history;
        let mut all: Vec<Stretch> = Vec::new();
        for span in &phases.spans {
            match all.last_mut().filter(|last| last.phase == span.phase) {
                Some(last) => last.end = span.end,
                None => all.push(Stretch { phase: span.phase, start: span.start, end: span.end }),
            }
        }
        let from = Phase::ALL.map(|phase| {
            let mut next = all.len() as u32;
            let mut from = vec![next; all.len() + 1];
            for (index, stretch) in all.iter().enumerate().rev() {
                if stretch.phase == phase {
                    next = index as u32;
                }
                from[index] = next;
            }
            from
        });
        let actions = track.actions();
        let ooms = (0..).zip(actions).filter(|&(_, &action)| action == Action::Oom).map(|(entry, _)| entry).collect();
        Self { all, from, ooms, entries: history.entries() }
    }

    pub(super) fn get(&self, index: usize) -> Option<Stretch> {
        self.all.get(index).copied()
    }

    /// The first stretch of a phase behind the stretch with an index, with its own index.
    pub(super) fn next(&self, phase: Phase, after: usize) -> Option<(usize, Stretch)> {
        self.from(phase, after + 1)
    }

    /// The first stretch of a phase from an index on.
    pub(super) fn from(&self, phase: Phase, index: usize) -> Option<(usize, Stretch)> {
        let place = Phase::ALL.iter().position(|&known| known == phase)?;
        let next = *self.from[place].get(index)? as usize;
        Some((next, self.get(next)?))
    }

    /// The first failed request at or after an entry and before another.
    pub(super) fn oom_between(&self, from: u32, to: u32) -> Option<u32> {
        let next = *self.ooms.get(self.ooms.partition_point(|&entry| entry < from))?;
        (next < to).then_some(next)
    }

    /// Whether the recording ends in a stretch.
    pub(super) fn is_last(&self, stretch: Stretch) -> bool {
        stretch.end == self.entries
    }
}

/// Finds the stretch of entries that are asked for in order.
pub(super) struct Cursor<'s> {
    stretches: &'s Stretches,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(stretches: &'s Stretches) -> Self {
        Self { stretches, at: 0 }
    }

    /// The stretch of an entry, with its index.
    pub(super) fn find(&mut self, entry: u32) -> Option<(usize, Stretch)> {
        while self.stretches.get(self.at)?.end <= entry {
            self.at += 1;
        }
        Some((self.at, self.stretches.get(self.at)?))
    }
}
