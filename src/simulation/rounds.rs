//! Skips iterations of a loop that repeat what was simulated before.

use super::program::{Program, StepKind};
use super::repetition::Repetition;
use crate::allocator::AllocatorState;
use crate::simulation::player::Player;

/// The state of a simulation at the start of an earlier iteration.
#[derive(Clone, Debug)]
struct Earlier {
    state: AllocatorState,
    owners: Vec<u32>,
    /// Steps that were done then.
    done: usize,
    /// Number of the first allocation made afterward.
    next: u32,
}

/// The data with which a simulation detects that it repeats.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// The step at which the next round starts; `None` if nothing repeats anymore.
    next: Option<usize>,
    owners: Vec<u32>,
    earlier: Option<Earlier>,
}

impl Rounds {
    /// Before the first step.
    pub fn of(program: &Program) -> Self {
        Self { next: program.repetition.as_ref().map(|repetition| repetition.start), ..Self::default() }
    }

    /// Whether a round starts after this many steps.
    #[inline]
    pub fn begin_at(&self, done: usize) -> bool {
        self.next == Some(done)
    }

    /// Records the owner of a block.
    #[inline]
    pub fn own(&mut self, row: u32, allocation: u32) {
        let row = row as usize;
        if row >= self.owners.len() {
            self.owners.resize(row + 1, u32::MAX);
        }
        self.owners[row] = allocation;
    }
}

impl Player {
    /// Called at the start of an iteration: if the allocator has the same state as at the start of an earlier one, skips as
    /// many repetitions as possible, up to `end`. If `only_quiet`, repetitions with segment events are simulated.
    pub(super) fn skip_rounds(&mut self, program: &Program, end: usize, only_quiet: bool) {
        let Some(repetition) = &program.repetition else { return };
        let state = self.allocator.state();
        // A comparison costs as much as simulating this many steps: it may take at most half of the time.
        let stride = (state.block_count() / repetition.period + 1) * repetition.period;
        let next = self.done + stride;
        self.rounds.next = (next < repetition.end).then_some(next);
        let owners: Vec<u32> = state.in_use().iter().map(|&row| self.rounds.owners[row as usize]).collect();
        if let Some(earlier) = self.rounds.earlier.take() {
            if earlier.is_repeated(repetition, &state, &owners, self.done) {
                if !only_quiet || earlier.state.stats().has_same_segments(state.stats()) {
                    self.repeat(&earlier, repetition, &state, end);
                }
                self.rounds.next = None;
                return;
            }
            self.rounds.earlier = Some(earlier);
        }
        // Each stored state is twice as far from the start as the previous one, so repetitions of any length are found.
        let far = |done: usize| done - repetition.start;
        if self.rounds.earlier.as_ref().is_none_or(|earlier| far(self.done) >= 2 * far(earlier.done)) {
            let made = program.steps[self.done..].iter().find(|step| step.kind == StepKind::Alloc);
            let next = made.map_or(u32::MAX, |step| step.allocation);
            self.rounds.earlier = Some(Earlier { state, owners, done: self.done, next });
        }
    }

    fn repeat(&mut self, earlier: &Earlier, repetition: &Repetition, state: &AllocatorState, end: usize) {
        let circle = self.done - earlier.done;
        let times = end.min(repetition.end).saturating_sub(self.done) / circle;
        self.done += times * circle;
        self.allocator.count_again(earlier.state.stats(), times as u64);
        // Blocks that stay live now belong to the last round.
        let higher = (times * (circle / repetition.period)) as u32 * repetition.made;
        let moved: Vec<_> = state.in_use().iter().map(|&row| self.rounds.owners[row as usize]).collect();
        let moved = moved.into_iter().filter(|&owner| owner >= earlier.next);
        let moved: Vec<_> =
            moved.map(|owner| (owner, self.blocks.get_mut(owner as usize).and_then(Option::take))).collect();
        for (owner, block) in moved {
            if let Some(slot) = self.blocks.get_mut(owner as usize + higher as usize) {
                *slot = block;
            }
        }
    }
}

impl Earlier {
    /// Whether everything from here on repeats what came after a state: the allocator's state is equal, and each block
    /// belongs to the allocation that represents the same one this many rounds later, or to one that outlives all rounds.
    fn is_repeated(&self, repetition: &Repetition, state: &AllocatorState, owners: &[u32], done: usize) -> bool {
        let higher = ((done - self.done) / repetition.period) as u64 * u64::from(repetition.made);
        let is_same = |(&then, &now): (&u32, &u32)| {
            if now >= self.next && higher > 0 {
                u64::from(then) + higher == u64::from(now)
            } else {
                then == now && repetition.outlives(now)
            }
        };
        self.state == *state && self.owners.iter().zip(owners).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::allocator::SegmentEvent;
    use crate::input::ReadOptions;
    use crate::input::alloc_conf::{Rest, parse};
    use crate::replay::Track;
    use crate::simulation::player::{Observer, Setup};

    #[derive(Default)]
    struct Listener(Vec<(u32, SegmentEvent)>);

    impl Observer for Listener {
        fn segment(&mut self, entry: u32, event: SegmentEvent) {
            self.0.push((entry, event));
        }
    }

    #[test]
    fn rounds_that_are_skipped_are_as_good_as_played() {
        let path = "fixtures/snapshots/big_1m/snapshot.pickle.zst";
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
        let program = Program::of(Track::new(&recording.snapshot, &recording.histories[0])).unwrap();
        let mib = |mib: u64| Some(mib << 20);
        // With 4600 MiB, memory is released in every round; with 4400 MiB, the program fails.
        for (conf, capacity) in [
            ("", None),
            ("expandable_segments:True", mib(4330)),
            ("max_split_size_mb:32", None),
            ("max_split_size_mb:32", mib(4600)),
            ("max_split_size_mb:32", mib(4400)),
        ] {
            let setup = Setup::new(&parse(conf, Rest::AfterLast).unwrap(), capacity, 0);
            let [mut skipping, mut playing] = [(); 2].map(|()| Player::new(&program, &setup));
            playing.rounds = Rounds::default();
            skipping.run(&program, &setup, &mut ());
            playing.run(&program, &setup, &mut ());
            assert_eq!(skipping.outcome, playing.outcome, "{conf} on {capacity:?}");
            assert_eq!(skipping.allocator.stats(), playing.allocator.stats(), "{conf} on {capacity:?}");
            assert_eq!(skipping.allocator.state(), playing.allocator.state(), "{conf} on {capacity:?}");
            assert_eq!(skipping.allocator.limits(), playing.allocator.limits(), "{conf} on {capacity:?}");
            let fails = playing.outcome.fails_at.is_some();
            assert!(fails || 10 * skipping.applied < playing.applied, "{conf}: {} steps", skipping.applied);
        }
    }

    #[test]
    fn listeners_hear_of_every_segment() {
        let path = "fixtures/snapshots/big_1m/snapshot.pickle.zst";
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
        let track = Track::new(&recording.snapshot, &recording.histories[0]);
        let program = Program::of(track).unwrap();
        let setup = Setup::new(&parse("max_split_size_mb:32", Rest::AfterLast).unwrap(), None, 0);
        let gives_back = Setup::new(&parse("max_split_size_mb:32", Rest::AfterLast).unwrap(), Some(4600 << 20), 0);
        for (setup, is_quiet) in [(setup, true), (gives_back, false), (Setup::as_recorded(track, &program), true)] {
            let [mut skipping, mut playing] = [(); 2].map(|()| (Player::new(&program, &setup), Listener::default()));
            playing.0.rounds = Rounds::default();
            for (player, listener) in [&mut skipping, &mut playing] {
                player.run(&program, &setup, listener);
            }
            assert_eq!(skipping.1.0, playing.1.0, "{setup:?}");
            assert_eq!(skipping.0.outcome, playing.0.outcome, "{setup:?}");
            assert_eq!(skipping.0.allocator.state(), playing.0.allocator.state(), "{setup:?}");
            assert_eq!(10 * skipping.0.applied < playing.0.applied, is_quiet, "{} steps", skipping.0.applied);
        }
    }
}
