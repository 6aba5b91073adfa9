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
    pub period: usize,
    /// Allocations per iteration: the number of each allocation increases by this much from one iteration to the next.
    pub made: u32,
    /// For each allocation, whether it is freed before the end of the last round.
    ends_within: Vec<bool>,
}

/// Whether a step and one a period later differ in no more than the number of their allocation, which must be `made` higher.
fn is_repeated(step: &Step, later: &Step, made: u32) -> bool {
    (step.kind, step.pool, step.bytes) == (later.kind, later.pool, later.bytes)
        && match step.kind {
            // Each refused request is recorded with a result of its own.
            StepKind::Refused => false,
            StepKind::EmptyCache | StepKind::ReleasePool => true,
            _ => later.allocation.wrapping_sub(step.allocation) == made,
        }
}

impl Repetition {
    /// The loop that contains the middle of the program, if there is one.
    pub fn of(steps: &[Step], allocations: usize) -> Option<Self> {
        let middle = steps.len() / 2;
        let last = steps.len().checked_sub(WINDOW).filter(|&last| last >= middle)?;
        let is_numbered =
            |step: &Step| !matches!(step.kind, StepKind::Refused | StepKind::EmptyCache | StepKind::ReleasePool);
        let first = middle + steps[middle..middle + WINDOW].iter().position(is_numbered)?;
        let made_in = |period: usize| steps[first + period].allocation.wrapping_sub(steps[first].allocation);
        let recur = |from: Range<usize>, period: usize| {
            let later = &steps[from.start + period..from.end + period];
            let made = made_in(period);
            steps[from].iter().zip(later).map(move |(step, later)| is_repeated(step, later, made))
        };
        let is_window = |period: &usize| recur(middle..middle + WINDOW, *period).all(|is_equal| is_equal);
        let periods = (1..last - middle).filter(is_window);
        for period in periods.take(MOST_TRIED) {
            let ahead = recur(middle..steps.len() - period, period).take_while(|&is_equal| is_equal).count();
            // Layers also repeat, but less often than the program does.
            let back = recur(0..middle, period).rev().take_while(|&is_equal| is_equal).count();
            let (start, end) = (middle - back, middle + ahead + period);
            if end - start >= steps.len() / 2 && (end - start) / period >= FEWEST_ROUNDS {
                let ends_within = ends_within(steps, end, allocations);
                return Some(Self { start, end, period, made: made_in(period), ends_within });
            }
        }
        None
    }

    /// Whether an allocation stays until the last round is over.
    pub fn outlives(&self, allocation: u32) -> bool {
        self.ends_within.get(allocation as usize) == Some(&false)
    }
}

/// For each allocation, whether its last free is requested before step `end`.
fn ends_within(steps: &[Step], end: usize, allocations: usize) -> Vec<bool> {
    let mut ends_within = vec![false; allocations];
    for (index, step) in steps.iter().enumerate() {
        if matches!(step.kind, StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree)
            && let Some(ends_within) = ends_within.get_mut(step.allocation as usize)
        {
            *ends_within = index < end;
        }
    }
    ends_within
}
