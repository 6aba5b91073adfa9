//! The smallest device on which a program works.
//!
//! This is not monotone: a program may fail on a larger device although it works on a smaller one, since memory is
//! released at other moments. But a simulation changes only if the result of a comparison with a limit changes, and
//! each simulation knows the next larger and smaller capacity at which this happens. So the search covers all
//! capacities without trying each one.

use super::program::Program;
use crate::allocator::{Limits, Placement, Threshold};
use crate::model::AllocatorSettings;
use crate::simulation::player::{Player, Setup};

/// The capacities on which a program works, as far as known, in bytes that the allocator can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacities {
    /// The lowest capacity on which it works; `None` if unknown. It may be known although `safe` is not.
    pub first: Option<u64>,
    /// The lowest capacity such that it works there and on every larger device; `None` if unknown.
    pub safe: Option<u64>,
    /// A capacity such that it works there and on every larger device: `safe` if known, else a larger one. `None` if
    /// there is none.
    pub enough: Option<u64>,
    /// Ranges between `first` and `safe` on which it fails: the lowest capacity of each, and the first one above it.
    pub holes: Vec<(u64, u64)>,
}

impl Capacities {
    /// The capacities on which a program works with each of several placements of segments.
    pub(super) fn in_all(all: impl Iterator<Item = Self>) -> Self {
        all.reduce(|one, other| one.and(&other)).unwrap_or_default()
    }

    fn and(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one.max(other));
        let safe = both(self.safe, other.safe);
        let mut all = Self { first: None, safe, enough: both(self.enough, other.enough), holes: Vec::new() };
        let Some((one, another)) = self.first.zip(other.first) else { return all };
        if safe.is_none() {
            // Holes are not known.
            all.first = Some(one).filter(|_| one == another);
            return all;
        }
        let mut failing = [&[(0, one), (0, another)], &self.holes[..], &other.holes[..]].concat();
        failing.sort_unstable();
        for (from, to) in failing {
            match all.holes.last_mut().filter(|last| from <= last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => all.holes.push((from, to)),
            }
        }
        all.first = Some(all.holes.remove(0).1);
        all
    }
}

/// A range of capacities for which a simulation is the same.
struct Period {
    works: bool,
    from: u64,
    /// The first capacity above the range; `None` if the range is unbounded.
    to: Option<u64>,
    steps: u64,
}

/// 1/N of the budget is left for the search upward.
const UPWARD_PART: u64 = 4;

/// The capacity of an unlimited device.
const ENDLESS: u64 = 1 << 50;

/// A search for the capacities on which a program works under some settings.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    pub program: &'a Program,
    pub settings: &'a AllocatorSettings,
    /// The driver's placement of segments.
    pub placement: Placement,
    /// Bytes of the device that the allocator cannot use.
    pub context: u64,
    /// Lower bound of the search: no program works below.
    pub least: u64,
    /// Whether a request that failed in the recording must succeed for the program to work; otherwise it may fail
    /// again.
    pub refusals_fail: bool,
    pub budget: u64,
}

impl Search<'_> {
    /// Searches downward from an unlimited device, and upward from a capacity on which nothing works, until all
    /// capacities are known or the budget is spent.
    pub fn run(&self) -> Capacities {
        let mut found = Capacities::default();
        // The rest must be enough for the lowest capacity.
        let mut left = self.budget - self.budget / UPWARD_PART;
        let (enough, is_safe_known) = self.downward(&mut left);
        found.enough = enough;
        let Some(enough) = enough else { return found };
        found.safe = is_safe_known.then_some(enough);
        left = left.saturating_add(self.budget / UPWARD_PART);
        let mut at = self.least;
        while at < enough && (is_safe_known || found.first.is_none()) {
            let Some(here) = self.look(at, &mut left) else {
                // Whether larger capacities work is unknown.
                found.holes.clear();
                return found;
            };
            let end = here.to.unwrap_or(enough).min(enough);
            if here.works {
                found.first = found.first.or(Some(at));
            } else if found.first.is_some() {
                match found.holes.last_mut().filter(|hole| hole.1 == at) {
                    Some(hole) => hole.1 = end,
                    None => found.holes.push((at, end)),
                }
            }
            at = end;
        }
        found.first = found.first.or(Some(enough));
        found
    }

    /// A capacity from which on the program always works, if the search finds one, and whether it is the lowest.
    fn downward(&self, left: &mut u64) -> (Option<u64>, bool) {
        let mut enough = None;
        let mut below = ENDLESS;
        loop {
            let Some(here) = self.look(below, left) else { return (enough, false) };
            if !here.works {
                return (enough, true);
            }
            // If nothing is ever compared with a limit, the simulation itself has no lowest capacity.
            enough = Some(here.from.max(self.least));
            if here.from <= self.least {
                return (enough, true);
            }
            below = here.from - 1;
        }
    }

    /// A capacity from which on the program always works: the lowest one, if the budget lasts.
    pub fn enough(&self) -> Option<u64> {
        self.downward(&mut self.budget.clone()).0
    }

    /// Like [`Search::period`], as long as the budget lasts.
    fn look(&self, capacity: u64, left: &mut u64) -> Option<Period> {
        let period = (*left > 0).then(|| self.period(capacity))?;
        *left = left.saturating_sub(period.steps);
        Some(period)
    }

    /// Simulates a device of one capacity, and returns the range of capacities with the same result in every comparison
    /// with a limit.
    fn period(&self, capacity: u64) -> Period {
        let at = |capacity: u64| Setup::new(self.settings, Some(capacity), self.context);
        let setup = Setup { placement: self.placement, ..at(capacity) };
        let mut player = Player::new(self.program, &setup);
        player.run(self.program, &setup, &mut ());
        let limits = player.allocator.limits();
        let mut from = limits.capacity.passed();
        let mut to = limits.capacity.held();
        let derived: [fn(&Limits) -> Option<Threshold>; 2] = [|limits| limits.allowed, |limits| limits.collected];
        for of in derived {
            // These limits are shares of the device: they rise with its capacity, though not by as much.
            let Some(threshold) = of(limits) else { continue };
            let limit = |capacity: u64| of(&at(capacity).limits).map_or(u64::MAX, |threshold| threshold.limit());
            from = from.max(first_where(0, capacity, |capacity| limit(capacity) >= threshold.passed()));
            if let Some(held) = threshold.held() {
                let end = first_where(capacity, 2 * ENDLESS, |capacity| limit(capacity) >= held);
                to = Some(to.map_or(end, |to| to.min(end)));
            }
        }
        let failure = if self.refusals_fail { player.outcome.failure() } else { player.outcome.fails_at };
        Period { works: failure.is_none(), from, to, steps: player.applied + self.program.set_up() }
    }
}

/// The first value from `low` on for which `is_reached`; `high` if there is none before.
fn first_where(low: u64, high: u64, is_reached: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_reached(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(first: u64, safe: Option<u64>, enough: u64, holes: &[(u64, u64)]) -> Capacities {
        Capacities { first: Some(first), safe, enough: Some(enough), holes: holes.to_vec() }
    }

    #[test]
    fn a_capacity_works_only_with_all_placements() {
        let one = capacities(10, Some(50), 50, &[(20, 30), (40, 50)]);
        let other = capacities(15, Some(45), 45, &[(25, 45)]);
        let both = capacities(15, Some(50), 50, &[(20, 50)]);
        assert_eq!(Capacities::in_all([one.clone(), other.clone()].into_iter()), both);
        assert_eq!(Capacities::in_all([other, one.clone()].into_iter()), both);
        assert_eq!(Capacities::in_all([one.clone()].into_iter()), one);
        let late = capacities(25, Some(25), 25, &[]);
        let hole = capacities(30, Some(50), 50, &[(40, 50)]);
        assert_eq!(Capacities::in_all([one, late].into_iter()), hole, "works above the end of a hole");
    }

    #[test]
    fn unknown_capacities_stay_unknown() {
        let known = capacities(10, Some(10), 10, &[]);
        let bounded = capacities(12, None, 40, &[]);
        let all = Capacities::in_all([known.clone(), bounded].into_iter());
        assert_eq!(all, Capacities { first: None, safe: None, enough: Some(40), holes: Vec::new() });
        assert_eq!(Capacities::in_all([known, Capacities::default()].into_iter()), Capacities::default());
    }
}
