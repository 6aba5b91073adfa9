//! A plan: settings and changes, and what the simulation of them shows.

use super::moves::{Moves, trouble_of};
use super::search::{Changed, Goal, Search, Tried};
use crate::simulation::changes::{Change, CodeChange};
use crate::simulation::{Outcome, Simulator};

/// Steps simulated to find the smallest device of one plan.
pub(super) const STEPS_OF_NEEDS: u64 = 4_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Allocator settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them; `None` for the recorded ones.
    pub alloc_conf: Option<String>,
    pub changes: Vec<PlannedChange>,
    /// Whether the simulated program differs from the recorded one: with changes, or without known mistakes.
    pub is_changed: bool,
    /// The result: on the given device if the plan fits, otherwise on an unlimited one.
    pub outcome: Outcome,
    /// Whether it fits the device, but would not fit with one more segment than simulated.
    pub is_tight: bool,
    /// Whether it is known where the driver places segments with these settings, or makes no difference.
    pub is_placed: bool,
    /// The size of a device on which it always works, in bytes that the allocator can use: the smallest, as far as
    /// known. `None` without a device.
    pub needs: Option<u64>,
    /// Mean time in microseconds of recomputed calls, per forward pass: 0 if there are none, `None` if the file has no
    /// times.
    pub recompute_us: Option<i64>,
    pub assumptions: Vec<String>,
    /// Why its figures may be far off; empty if no reason is known.
    pub doubts: Vec<String>,
}

impl Plan {
    pub(super) fn of(simulator: &Simulator, search: &Search<'_, '_, '_>, moves: &Moves, tried: Tried) -> Option<Self> {
        let settings = &search.settings[tried.settings];
        let Changed { program, assumptions, doubts } = search.program(&tried.changes).ok()?;
        let change = |change: &Change| {
            let code = moves.function(change).map(|function| function.change.clone());
            PlannedChange { change: change.clone(), code }
        };
        let needs =
            matches!(search.goal(), Goal::Device(_)).then(|| simulator.enough(&program, settings, STEPS_OF_NEEDS));
        Some(Self {
            alloc_conf: (tried.settings > 0).then(|| settings.alloc_conf.clone()),
            changes: tried.changes.iter().map(change).collect(),
            is_changed: search.changes_blocks() || !tried.changes.is_empty(),
            recompute_us: moves.time(&tried.changes),
            needs: needs.flatten(),
            is_tight: tried.is_tight,
            is_placed: simulator.is_placed(settings),
            outcome: tried.outcome,
            assumptions,
            doubts,
        })
    }

    /// The order of plans, the easiest first: those that may be wrong come last.
    pub(super) fn rank(&self) -> (bool, bool, u32) {
        let trouble = trouble_of(self.alloc_conf.is_some(), self.changes.iter().map(|it| &it.change));
        (self.is_tight, !self.doubts.is_empty(), trouble)
    }

    pub(super) fn bare_changes(&self) -> Vec<Change> {
        self.changes.iter().map(|it| it.change.clone()).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    pub change: Change,
    /// How to checkpoint a function; `None` for other changes.
    pub code: Option<CodeChange>,
}
