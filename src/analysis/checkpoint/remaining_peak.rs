//! What is in the way of a lower peak.

use super::curve::NewPeak;
use crate::facts::grouping::attribution::Row;
use crate::facts::time::moment::Moment;
use crate::facts::training::Phase;
use crate::play::changes::recompute::Recompute;
use crate::replay::{History, Instant};
use std::collections::HashSet;

/// The highest point that is left.
#[derive(Clone, Debug, PartialEq)]
pub struct RemainingPeak {
    /// Where it is in the recorded history.
    pub moment: Moment,
    /// The phase.
    pub phase: Phase,
    /// Whether a call runs again there.
    pub rerun: bool,
    /// What is allocated by then by the call that runs again.
    pub rerun_bytes: u64,
    /// Workspaces of the engine's thread, which it needs to run calls again.
    pub workspace_bytes: u64,
    /// What else is there, by site.
    pub rows: Vec<Row>,
}

/// The blocks at a new peak by their allocation, with the sizes they were recorded with. Those of a call that runs again
/// right there are not among them.
pub(super) fn blocks_left(history: &History, recomputes: &[&Recompute], peak: &NewPeak) -> Vec<(usize, u64)> {
    let instant = peak.instant;
    let mut gone: HashSet<u32> = HashSet::new();
    for (call, recompute) in recomputes.iter().enumerate() {
        // What runs again right here is not back yet.
        let is_rerun = peak.rerun == Some(call);
        let is_gone = |from: Instant, to: Instant| from < instant && (instant < to || (is_rerun && instant == to));
        gone.extend(recompute.gaps.iter().filter(|gap| is_gone(gap.from, gap.to)).map(|gap| gap.allocation));
    }
    let inputs = recomputes.iter().flat_map(|recompute| &recompute.inputs);
    let waiting = inputs.filter(|input| input.from <= instant && instant < input.to);
    let waiting = waiting.map(|input| (input.allocation as usize, input.bytes));
    let there = history.allocations.iter().enumerate().filter(|(_, allocation)| allocation.allocated_at(instant));
    let left = there.filter(|(index, _)| !gone.contains(&(*index as u32)));
    left.map(|(index, allocation)| (index, allocation.size)).chain(waiting).collect()
}
