//! Finds blocks that replace others while the optimizer runs.
//!
//! `p.data = p.data - lr * p.grad` allocates a new block for a parameter in every step, and frees the old one. So do moments
//! that are not computed in place. The category of the block stays the same.

use super::own_lines::OwnLines;
use super::periods::{Period, Periods};
use super::phases::{Phase, Phases};
use super::role::{Role, Roles};
use crate::model::{FrameId, StackId};
use crate::replay::{History, Instant, Track};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The block that a new block of the optimizer replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced<'h> {
    /// This block.
    One(u32),
    /// One of these: there are equally many new blocks, and which one replaces which is unknown.
    OneOf(&'h [u32]),
    /// Unknown: the numbers of freed and new blocks differ.
    Unclear,
}

/// The replacement of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// Its index in the history.
    pub(super) index: u32,
    /// The line of code that allocates it.
    pub(super) line: Option<FrameId>,
    /// The optimizer period in which it is allocated.
    pub(super) period: u32,
}

#[derive(Clone, Copy)]
enum Claim {
    One(u32),
    Pool(u32),
    Unclear,
}

/// The replacements of one device.
#[derive(Default)]
pub(super) struct Replacements {
    claims: HashMap<u32, Claim, RandomState>,
    after: HashMap<u32, Replacement, RandomState>,
    pools: Vec<Vec<u32>>,
    /// Period and size, if the optimizer computes with this size after the last replacement.
    computes_on: HashSet<(u32, u64), RandomState>,
}

impl Replacements {
    /// Examines every period of the optimizer.
    pub(super) fn of(
        track: Track<'_>,
        phases: &Phases,
        periods: &Periods,
        roles: &Roles,
        lines: &mut OwnLines<'_>,
    ) -> Self {
        let mut replacements = Self::default();
        let mut next = 0;
        while let Some((number, period)) = periods.from(Phase::Optimizer, next) {
            next = number + 1;
            let work = Work { track, phases, roles, period };
            let sizes = work.sizes_that_go();
            if !sizes.is_empty() {
                replacements.settle(&work, number as u32, sizes, lines);
            }
        }
        replacements
    }

    fn settle(&mut self, work: &Work<'_>, number: u32, sizes: HashSet<u64, RandomState>, lines: &mut OwnLines<'_>) {
        let mut open: BTreeMap<u64, Open> = sizes.into_iter().map(|size| (size, Open::default())).collect();
        for entry in work.period.start..work.period.end {
            let Some((index, event)) = work.event(entry) else { continue };
            let Some(allocation) = work.track.allocation(index as usize) else { continue };
            let Some(open) = open.get_mut(&allocation.requested) else { continue };
            match event {
                Event::Comes => {
                    let line = lines.of(work.stack(entry));
                    open.new.push(New { index, line });
                    open.last_made = index;
                }
                Event::Goes if work.is_old(index) || self.claims.contains_key(&index) => {
                    // The same statement allocates the new block and frees the old one.
                    let line = if work.phases.frees_tell {
                        lines.of(work.stack(entry))
                    } else {
                        lines.of(work.track.stack_of(index as usize))
                    };
                    let place = open.new.iter().rposition(|new| line.is_some() && new.line == line);
                    match place {
                        Some(place) => {
                            let new = open.new.remove(place);
                            self.link(index, new, number, Claim::One(index));
                            open.last_replacement = open.last_replacement.max(new.index);
                        }
                        None => open.gone.push(index),
                    }
                }
                Event::Goes => open.new.retain(|new| new.index != index),
            }
        }
        for (size, open) in open {
            self.share_out(work, number, size, open, lines);
        }
    }

    /// Matches blocks freed at a separate line to new blocks that stay: by the lines that allocated them, or else all
    /// together.
    fn share_out(&mut self, work: &Work<'_>, number: u32, size: u64, mut open: Open, lines: &mut OwnLines<'_>) {
        let mut last_replacement = open.last_replacement;
        let mut by_line: HashMap<FrameId, (Vec<u32>, Vec<New>), RandomState> = HashMap::default();
        for &gone in &open.gone {
            if let Some(line) = lines.of(work.track.stack_of(gone as usize)) {
                by_line.entry(line).or_default().0.push(gone);
            }
        }
        for &new in &open.new {
            if let Some(pair) = new.line.and_then(|line| by_line.get_mut(&line)) {
                pair.1.push(new);
            }
        }
        for (gone, new) in by_line.into_values().filter(|(gone, new)| gone.len() == new.len()) {
            for (gone, new) in gone.into_iter().zip(new) {
                self.link(gone, new, number, Claim::One(gone));
                last_replacement = last_replacement.max(new.index);
            }
        }
        open.gone.retain(|gone| !self.after.contains_key(gone));
        open.new.retain(|new| !self.claims.contains_key(&new.index));
        if !open.gone.is_empty() {
            let same = open.gone.len() == open.new.len();
            let pool = self.pools.len() as u32;
            for (place, &new) in open.new.iter().enumerate() {
                match open.gone.get(place).filter(|_| same) {
                    Some(&gone) => {
                        let claim = if open.gone.len() == 1 { Claim::One(gone) } else { Claim::Pool(pool) };
                        self.link(gone, new, number, claim);
                    }
                    None => {
                        self.claims.insert(new.index, Claim::Unclear);
                    }
                }
                last_replacement = last_replacement.max(new.index);
            }
            if same {
                self.pools.push(open.gone);
            }
        }
        if last_replacement > 0 && open.last_made > last_replacement {
            self.computes_on.insert((number, size));
        }
    }

    fn link(&mut self, gone: u32, new: New, period: u32, claim: Claim) {
        self.after.insert(gone, Replacement { index: new.index, line: new.line, period });
        self.claims.insert(new.index, claim);
    }

    /// The block that an allocation replaces.
    pub(super) fn replaced(&self, allocation: usize) -> Option<Replaced<'_>> {
        Some(match *self.claims.get(&(allocation as u32))? {
            Claim::One(index) => Replaced::One(index),
            Claim::Pool(pool) => Replaced::OneOf(self.pools.get(pool as usize)?),
            Claim::Unclear => Replaced::Unclear,
        })
    }

    /// The final replacement of a block in the period that frees it: with two `p.data = ...` in a step, the second one.
    pub(super) fn replacement(&self, allocation: u32) -> Option<Replacement> {
        let mut replacement = *self.after.get(&allocation)?;
        while let Some(&next) = self.after.get(&replacement.index).filter(|next| next.period == replacement.period) {
            replacement = next;
        }
        Some(replacement)
    }

    /// When the last replacement of a block is freed; without a replacement, when the block itself is.
    pub(super) fn ends(&self, history: &History, allocation: u32, freed: Instant) -> Instant {
        let (mut last, mut freed) = (allocation, freed);
        while let Some(replacement) = self.after.get(&last) {
            last = replacement.index;
            freed = history.allocations.get(last as usize).map_or(freed, |allocation| allocation.freed);
        }
        freed
    }

    /// Whether the optimizer continues to compute with blocks of a size after the last replacement of that size.
    pub(super) fn computes_on(&self, period: u32, size: u64) -> bool {
        self.computes_on.contains(&(period, size))
    }
}

/// A block allocated in the period.
#[derive(Clone, Copy)]
struct New {
    index: u32,
    line: Option<FrameId>,
}

/// The unmatched blocks of one size while a period is read.
#[derive(Default)]
struct Open {
    /// Freed old blocks without a replacement yet.
    gone: Vec<u32>,
    /// New blocks that are live and do not replace another block yet.
    new: Vec<New>,
    last_made: u32,
    last_replacement: u32,
}

enum Event {
    Comes,
    Goes,
}

/// One period of the optimizer.
struct Work<'a> {
    track: Track<'a>,
    phases: &'a Phases,
    roles: &'a Roles,
    period: Period,
}

impl Work<'_> {
    fn stack(&self, entry: u32) -> StackId {
        self.track.stack(entry)
    }

    /// The allocation that an entry allocates or frees.
    fn event(&self, entry: u32) -> Option<(u32, Event)> {
        let index = *self.track.history.links.get(entry as usize)?;
        let allocation = self.track.history.allocations.get(index as usize)?;
        match entry + 1 {
            instant if allocation.born == instant => Some((index, Event::Comes)),
            instant if allocation.freed == instant => Some((index, Event::Goes)),
            _ => None,
        }
    }

    /// Whether a block is from before the period, and neither an activation nor a gradient.
    fn is_old(&self, index: u32) -> bool {
        let born =
            self.track.history.allocations.get(index as usize).map_or(Instant::MAX, |allocation| allocation.born);
        born <= self.period.start && (born == 0 || matches!(self.phases.at(born), Phase::Optimizer | Phase::Other))
    }

    /// Sizes of old blocks that the optimizer frees.
    fn sizes_that_go(&self) -> HashSet<u64, RandomState> {
        let goes = |entry: u32| {
            // Reading the stack first avoids looking at the block of every gradient.
            if self.phases.frees_tell && self.roles.role(self.stack(entry)) == Role::ZeroGrad {
                return None;
            }
            let (index, event) = self.event(entry)?;
            let goes = matches!(event, Event::Goes) && self.is_old(index);
            goes.then(|| self.track.history.allocations.get(index as usize).map(|block| block.requested))?
        };
        (self.period.start..self.period.end).filter_map(goes).collect()
    }
}
