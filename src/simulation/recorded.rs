//! The difference between the recording and a simulation with the recorded settings.

use super::program::Program;
use crate::allocator::SegmentEvent;
use crate::model::Action;
use crate::replay::{Instant, Metric, Track};
use crate::simulation::player::{Observer, Outcome, Player, Setup};
use std::collections::BTreeMap;

/// The difference between a simulation and the recording that it should repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Simulated minus recorded maxima, in the order of [`Metric::ALL`].
    pub maxima: [i64; 4],
    /// Segments allocated in the simulation, and in the recording.
    pub device_allocs: (u64, u64),
    /// Segments freed in the simulation, and in the recording.
    pub device_frees: (u64, u64),
    /// Segments allocated and freed before the first one that differs in action, address or size.
    pub equal_segments: u64,
    /// The first entry at which they differ.
    pub first: Option<u32>,
    /// Whether regular segments have another address order than the recorded ones. Among free blocks of one size, the
    /// allocator uses the one with the lowest address, so only the order matters.
    pub other_order: bool,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        self.first.is_none() && self.maxima == [0; 4]
    }

    pub fn keeps_order(&self) -> bool {
        self.is_none() && !self.other_order
    }

    /// The largest difference between two maxima, in bytes.
    pub fn bytes(&self) -> u64 {
        self.maxima.iter().map(|bytes| bytes.unsigned_abs()).max().unwrap_or(0)
    }
}

struct Follower {
    recorded: Vec<(u32, SegmentEvent)>,
    /// The simulated address of each regular segment by its recorded one.
    placed: BTreeMap<u64, u64>,
    same_addresses: bool,
    /// Whether the simulation ends as soon as segments are in another order.
    stops: bool,
    difference: Difference,
}

impl Follower {
    /// Notes the address of a segment; returns whether it is the recorded one.
    fn is_recorded(&mut self, recorded: SegmentEvent, simulated: SegmentEvent) -> bool {
        if (recorded.action, recorded.size) != (simulated.action, simulated.size) {
            return false;
        }
        if self.same_addresses {
            return recorded.addr == simulated.addr;
        }
        match simulated.action {
            Action::SegmentAlloc => {
                let below =
                    self.placed.range(..recorded.addr).next_back().is_none_or(|(_, &addr)| addr < simulated.addr);
                let above = self.placed.range(recorded.addr..).next().is_none_or(|(_, &addr)| simulated.addr < addr);
                self.difference.other_order |= !(below && above);
                self.placed.insert(recorded.addr, simulated.addr);
                true
            }
            Action::SegmentFree => self.placed.remove(&recorded.addr).is_none_or(|addr| addr == simulated.addr),
            _ => true,
        }
    }
}

impl Observer for Follower {
    fn segment(&mut self, entry: u32, event: SegmentEvent) {
        let is_made = matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
        let counts = if is_made { &mut self.difference.device_allocs } else { &mut self.difference.device_frees };
        counts.0 += 1;
        if self.difference.first.is_none() {
            match self.recorded.get(self.difference.equal_segments as usize).copied() {
                Some((_, recorded)) if self.is_recorded(recorded, event) => self.difference.equal_segments += 1,
                Some((at, _)) => self.difference.first = Some(at.min(entry)),
                None => self.difference.first = Some(entry),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.stops && (self.difference.first.is_some() || self.difference.other_order)
    }
}

/// Simulates a program and compares the result with the recording.
pub fn compare(track: Track<'_>, program: &Program, setup: &Setup) -> (Outcome, Difference) {
    follow(track, program, setup, false)
}

/// Whether a simulation has the segments and maxima of the recording, in their order. It ends at the first difference.
pub(super) fn keeps_order(track: Track<'_>, program: &Program, setup: &Setup) -> bool {
    follow(track, program, setup, true).1.keeps_order()
}

fn follow(track: Track<'_>, program: &Program, setup: &Setup, stops: bool) -> (Outcome, Difference) {
    let (snapshot, history) = (track.snapshot, track.history);
    let mut follower = Follower {
        recorded: Vec::new(),
        placed: BTreeMap::new(),
        same_addresses: setup.recorded_addresses,
        stops,
        difference: Difference::default(),
    };
    let end = program.until.unwrap_or(history.entries());
    for (entry, recorded) in (0..end).zip(snapshot.entries.rows(history.rows.clone())) {
        let counts = match recorded.action {
            Action::SegmentAlloc | Action::SegmentMap => &mut follower.difference.device_allocs,
            Action::SegmentFree | Action::SegmentUnmap => &mut follower.difference.device_frees,
            _ => continue,
        };
        counts.1 += 1;
        let event = SegmentEvent { action: recorded.action, addr: recorded.addr, size: recorded.size };
        follower.recorded.push((entry, event));
    }
    let mut player = Player::new(program, setup);
    player.run(program, setup, &mut follower);
    let Follower { recorded, mut difference, .. } = follower;
    if difference.first.is_none() {
        difference.first = recorded.get(difference.equal_segments as usize).map(|&(entry, _)| entry);
    }
    let outcome = player.outcome;
    let maxima = maxima(track, program.until);
    let simulated = [outcome.max_allocated, outcome.max_active, outcome.max_requested, outcome.max_reserved];
    for (metric, simulated) in Metric::ALL.into_iter().zip(simulated) {
        difference.maxima[metric as usize] = (simulated as i64).wrapping_sub(maxima[metric as usize]);
    }
    (outcome, difference)
}

/// The recorded maxima up to an instant, in the order of [`Metric::ALL`].
pub(super) fn maxima(track: Track<'_>, until: Option<Instant>) -> [i64; 4] {
    let Some(until) = until else { return track.history.maxima.map(|maximum| maximum.bytes) };
    let mut maxima = Metric::ALL.map(|metric| track.history.start.get(metric));
    track.walk_to(until, |_, counters| {
        for (maximum, metric) in maxima.iter_mut().zip(Metric::ALL) {
            *maximum = (*maximum).max(counters.get(metric));
        }
    });
    maxima
}
