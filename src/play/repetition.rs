//! Loops of a program.
//!
//! Training repeats the same requests. Once the allocator has the same state at the start of an iteration as at the
//! start of an earlier one, everything that follows repeats, and need not be simulated.

use super::program::{Step, StepKind};
use std::ops::Range;

/// The number of steps compared at two places of a program to decide whether a round may start at both.
const WINDOW: usize = 64;
/// Places with equal windows that are tried.
const MOST_TRIED: usize = 256;
/// With fewer iterations, skipping saves no time.
const FEWEST_ROUNDS: usize = 4;

/// A part of a program with the same requests in every iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The first step of the first round.
    pub start: usize,
    /// The step after the last round; a part of a round may be before it.
    pub end: usize,
    /// Number of steps in a round.
    pub period: usize,
    /// Allocations per iteration: the number of each allocation increases by this much from one iteration to the next.
    pub made: u32,
    /// The step at which the last free of each allocation is requested; `u32::MAX` if there is none.
    freed_at: Vec<u32>,
}

/// Steps, to be compared without the fields that differ between iterations.
struct Shapes<'s> {
    steps: &'s [Step],
    /// The difference between the allocation number of each step and that of the latest allocation.
    distances: Vec<u32>,
}

impl<'s> Shapes<'s> {
    fn of(steps: &'s [Step]) -> Self {
        let mut last = 0u32;
        let distance = |step: &Step| {
            let distance = match step.kind {
                // No two refused requests are equal: their results are recorded one by one.
                StepKind::Refused => step.entry,
                StepKind::EmptyCache | StepKind::ReleasePool => 0,
                _ => step.allocation.wrapping_sub(last),
            };
            if step.kind == StepKind::Alloc {
                last = step.allocation;
            }
            distance
        };
        Self { steps, distances: steps.iter().map(distance).collect() }
    }

    /// Whether each step of a range equals the one `period` steps behind it.
    fn recur(&self, first: Range<usize>, period: usize) -> impl DoubleEndedIterator<Item = bool> {
        let second = first.start + period..first.end + period;
        let steps = self.steps[first.clone()].iter().zip(&self.steps[second.clone()]);
        let distances = self.distances[first].iter().zip(&self.distances[second]);
        let what = |step: &Step| (step.kind, step.pool, step.bytes);
        steps.zip(distances).map(move |((one, other), (near, far))| near == far && what(one) == what(other))
    }
}

impl Repetition {
    /// The loop that contains the middle of the program, if there is one.
    pub fn of(steps: &[Step], allocations: usize) -> Option<Self> {
        let shapes = Shapes::of(steps);
        let middle = steps.len() / 2;
        let last = steps.len().checked_sub(WINDOW).filter(|&last| last >= middle)?;
        let is_window = |period: &usize| shapes.recur(middle..middle + WINDOW, *period).all(|is_equal| is_equal);
        let periods = (1..last - middle).filter(is_window);
        for period in periods.take(MOST_TRIED) {
            let ahead = shapes.recur(middle..steps.len() - period, period).take_while(|&is_equal| is_equal).count();
            // Layers also repeat, but less often than the program does.
            let back = shapes.recur(0..middle, period).rev().take_while(|&is_equal| is_equal).count();
            let (start, end) = (middle - back, middle + ahead + period);
            if end - start >= steps.len() / 2 && (end - start) / period >= FEWEST_ROUNDS {
                let rounds = steps[start..start + period].iter().zip(&steps[start + period..]);
                let mut allocations_of = rounds.filter(|(step, _)| step.kind == StepKind::Alloc);
                let made = allocations_of.next().map_or(0, |(one, next)| next.allocation.wrapping_sub(one.allocation));
                return Some(Self { start, end, period, made, freed_at: freed_at(steps, allocations) });
            }
        }
        None
    }

    /// Whether an allocation stays until the last round is over.
    pub fn outlives(&self, allocation: u32) -> bool {
        self.freed_at.get(allocation as usize).is_some_and(|&step| step as usize >= self.end)
    }
}

fn freed_at(steps: &[Step], allocations: usize) -> Vec<u32> {
    let mut freed_at = vec![u32::MAX; allocations];
    for (index, step) in (0u32..).zip(steps) {
        if matches!(step.kind, StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree)
            && let Some(freed) = freed_at.get_mut(step.allocation as usize)
        {
            *freed = index;
        }
    }
    freed_at
}
