//! What could be changed about a program, and how much trouble each change is.

use crate::analysis::checkpoint::HeldByCalls;
use crate::analysis::edit::{Edit, Optimizer};

/// Functions that are checkpointed alone, and together with each other.
const FUNCTIONS: usize = 8;
const TOGETHER: usize = 4;
/// Beyond every so many-th call hardly anything changes.
const MOST_EVERY: usize = 16;
/// Ranks that share what an optimizer works on: a machine's.
const RANKS: u32 = 8;

/// What could be changed.
#[derive(Debug)]
pub(super) struct Moves {
    /// Functions worth checkpointing, those that hold most first.
    pub functions: Vec<HeldByCalls>,
    /// Everything else.
    pub others: Vec<Edit>,
}

impl Moves {
    /// All there is for a program with such functions.
    pub fn all(functions: Vec<HeldByCalls>) -> Self {
        let others = vec![
            Edit::Optimizer(Optimizer::Adam8bit),
            Edit::OffloadOptimizer,
            Edit::ShardOptimizer { ranks: RANKS, keeps_gradients: false },
            Edit::ShardGradients { ranks: RANKS },
        ];
        Self { others, ..Self::checkpoints(functions) }
    }

    /// Checkpointing alone.
    pub fn checkpoints(functions: Vec<HeldByCalls>) -> Self {
        Self { functions: worthwhile(functions), others: Vec::new() }
    }

    /// Sets of the other changes: none, then those that are the least trouble.
    pub fn sets(&self) -> Vec<Vec<Edit>> {
        let mut sets = vec![Vec::new()];
        for (index, edit) in self.others.iter().enumerate() {
            sets.push(vec![edit.clone()]);
            sets.extend(self.others[index + 1..].iter().map(|other| vec![edit.clone(), other.clone()]));
        }
        sets.sort_by_key(|set| set.iter().map(trouble).sum::<u32>());
        sets
    }

    /// Pairs of functions that are checkpointed together.
    pub fn pairs(&self) -> Vec<[&HeldByCalls; 2]> {
        let most = &self.functions[..self.functions.len().min(TOGETHER)];
        let behind = |index: usize| most[index + 1..].iter();
        most.iter().enumerate().flat_map(|(index, one)| behind(index).map(move |other| [one, other])).collect()
    }
}

/// Functions that no other one beats by holding more and running again in less time.
fn worthwhile(mut functions: Vec<HeldByCalls>) -> Vec<HeldByCalls> {
    let mut least = i64::MAX;
    // Each holds less than those before it.
    functions.retain(|function| {
        let Some(time) = function.recompute_us else { return true };
        let is_quicker = time < least;
        least = least.min(time);
        is_quicker
    });
    functions.truncate(FUNCTIONS);
    functions
}

/// Each second, third... call of a function, as far as that makes a difference.
pub(super) fn sparser(function: &HeldByCalls) -> impl Iterator<Item = usize> + use<> {
    let calls = function.calls;
    let differs = move |every: &usize| calls.div_ceil(*every) < calls.div_ceil(every - 1);
    (2..=calls.min(MOST_EVERY)).filter(differs)
}

/// Some of the calls of a function checkpointed.
pub(super) fn checkpoint(function: &HeldByCalls, every: usize) -> Edit {
    Edit::Checkpoint { site: function.label.clone(), every }
}

/// How much trouble a change is, to put plans in order: a line, an optimizer with other rounding, copies to the host in
/// every step, other machines.
pub(super) fn trouble(edit: &Edit) -> u32 {
    match edit {
        Edit::Checkpoint { .. } | Edit::ChunkLoss { .. } => 2,
        Edit::Optimizer(_) => 3,
        Edit::OffloadActivations => 4,
        Edit::OffloadOptimizer => 5,
        Edit::ShardOptimizer { .. } => 6,
        Edit::ShardGradients { .. } => 7,
        // Another batch, or another program: neither is tried.
        Edit::Accumulate { .. } | Edit::Inference => 8,
    }
}

/// Mean time in microseconds that checkpointed calls take when they run again, for each forward pass. `None` where the file
/// has no times.
pub(super) fn recompute_us(function: &HeldByCalls, every: usize) -> Option<i64> {
    let (all, some) = (function.calls.max(1) as i64, function.calls.div_ceil(every.max(1)) as i64);
    Some(function.recompute_us?.saturating_mul(some) / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::checkpoint::CodeChange;

    fn function(label: &str, bytes: u64, calls: usize, recompute_us: Option<i64>) -> HeldByCalls {
        HeldByCalls { label: label.to_owned(), calls, bytes, recompute_us, change: CodeChange::Wrap(None) }
    }

    #[test]
    fn functions_that_hold_less_and_take_longer_are_left_out() {
        let all = [("block", 90, 50), ("attention", 60, 20), ("norm", 50, 30), ("mlp", 40, 10)];
        let all = all.map(|(label, bytes, time)| function(label, bytes, 4, Some(time)));
        let labels: Vec<String> = worthwhile(all.to_vec()).into_iter().map(|function| function.label).collect();
        assert_eq!(labels, ["block", "attention", "mlp"]);
        let untimed = [function("a", 2, 4, None), function("b", 1, 4, None)];
        assert_eq!(worthwhile(untimed.to_vec()).len(), 2);
    }

    #[test]
    fn fewer_calls_take_less_time() {
        let function = function("block", 90, 5, Some(50));
        // Every second is three of five calls, every third or fourth two, every fifth one.
        assert_eq!(sparser(&function).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!([1, 2, 3, 5].map(|every| recompute_us(&function, every)), [Some(50), Some(30), Some(20), Some(10)]);
    }

    #[test]
    fn sets_come_in_order_of_trouble() {
        let sets = Moves::all(Vec::new()).sets();
        assert_eq!(sets.len(), 1 + 4 + 6);
        assert_eq!(sets[..2], [vec![], vec![Edit::Optimizer(Optimizer::Adam8bit)]]);
        let trouble: Vec<u32> = sets.iter().map(|set| set.iter().map(trouble).sum()).collect();
        assert!(trouble.is_sorted());
    }
}
