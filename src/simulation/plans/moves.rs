//! The changes that a search can make to a program, and how difficult each one is.

use crate::simulation::changes::HeldByCalls;
use crate::simulation::changes::{Change, LossFigures, Optimizer};
use crate::sorting::SortRows;

const FUNCTIONS: usize = 8;
/// Larger intervals between checkpointed calls change hardly anything.
const MOST_EVERY: usize = 16;
/// Ranks that share the optimizer state: those of one machine.
const RANKS: u32 = 8;
/// Numbers of pieces in which a loss is computed.
const PIECES: [u32; 3] = [4, 8, 16];
/// A loss is not split further once its logits are less than 1/N of the peak.
const MINOR: u64 = 50;

#[derive(Debug)]
pub(super) struct Moves {
    /// Functions worth checkpointing, those that hold the most first.
    pub functions: Vec<HeldByCalls>,
    /// Everything else.
    pub others: Vec<Change>,
    /// Mean time of logits and loss in a forward pass in microseconds, if the file has times.
    loss_us: Option<i64>,
}

impl Moves {
    /// All changes for a program with these functions, this loss (if known) and this peak.
    /// 8-bit Adam replaces Adam, but no other optimizer, which would train another way.
    pub fn all(functions: Vec<HeldByCalls>, loss: Option<LossFigures>, peak: u64, is_adam: bool) -> Self {
        let others = [
            Change::OffloadActivations,
            Change::OffloadOptimizer,
            Change::ShardOptimizer { ranks: RANKS, keeps_gradients: false },
            Change::ShardGradients { ranks: RANKS },
        ];
        let pieces = loss.and_then(|loss| most_pieces(loss.logits_bytes, peak));
        let adam = is_adam.then_some(Change::Optimizer(Optimizer::Adam8bit));
        let others = pieces.map(|pieces| Change::ChunkLoss { pieces }).into_iter().chain(adam).chain(others).collect();
        Self { others, loss_us: loss.and_then(|loss| loss.forward_us), ..Self::checkpoints(functions) }
    }

    pub fn checkpoints(functions: Vec<HeldByCalls>) -> Self {
        Self { functions: worthwhile(functions), others: Vec::new(), loss_us: None }
    }

    pub fn function(&self, change: &Change) -> Option<&HeldByCalls> {
        let Change::Checkpoint { site, .. } = change else { return None };
        self.functions.iter().find(|function| function.label == *site)
    }

    /// Mean time in microseconds of recomputation because of these changes, per forward pass. `None` if the file has no
    /// times.
    pub fn time(&self, changes: &[Change]) -> Option<i64> {
        changes.iter().try_fold(0i64, |sum, change| {
            let time = match change {
                Change::Checkpoint { every, .. } => recompute_us(self.function(change)?, *every)?,
                Change::ChunkLoss { .. } => self.loss_us?,
                _ => 0,
            };
            Some(sum.saturating_add(time))
        })
    }

    /// Sets of the other changes: the empty set, then the easiest ones.
    pub fn sets(&self) -> Vec<Vec<Change>> {
        let mut sets = vec![Vec::new()];
        for (index, change) in self.others.iter().enumerate() {
            sets.push(vec![change.clone()]);
            sets.extend(self.others[index + 1..].iter().map(|other| vec![change.clone(), other.clone()]));
        }
        sets.sort_rows_by_key(|set| trouble_of(false, set));
        sets
    }
}

/// The largest number of pieces that still makes a difference to a peak.
fn most_pieces(logits: u64, peak: u64) -> Option<u32> {
    let is_minor = |pieces: &u32| logits / u64::from(*pieces) * MINOR < peak;
    let most = PIECES.iter().copied().find(is_minor).or(PIECES.last().copied());
    most.filter(|_| logits.saturating_mul(MINOR) >= peak)
}

/// Smaller numbers of pieces, the smallest first.
pub(super) fn fewer_pieces(than: u32) -> impl Iterator<Item = u32> {
    PIECES.into_iter().take_while(move |&pieces| pieces < than)
}

/// Functions for which no other one holds more and is recomputed in less time.
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

/// Every second, third... call of a function, as far as that makes a difference.
pub(super) fn sparser(function: &HeldByCalls) -> impl Iterator<Item = usize> + use<> {
    let calls = function.calls;
    let differs = move |every: &usize| calls.div_ceil(*every) < calls.div_ceil(every - 1);
    (2..=calls.min(MOST_EVERY)).filter(differs)
}

pub(super) fn checkpoint(function: &HeldByCalls, every: usize) -> Change {
    Change::Checkpoint { site: function.label.clone(), every }
}

/// The difficulty of checkpointing a function.
pub(super) const CHECKPOINT: u32 = 2;

pub(super) fn trouble_of<'c>(has_other_settings: bool, changes: impl IntoIterator<Item = &'c Change>) -> u32 {
    u32::from(has_other_settings) + changes.into_iter().map(trouble).sum::<u32>()
}

/// The difficulty of a change, by which plans are sorted: one line, a rewritten loss or an optimizer with other
/// rounding, copies to the host in every step, other machines.
fn trouble(change: &Change) -> u32 {
    match change {
        Change::Checkpoint { .. } => CHECKPOINT,
        Change::ChunkLoss { .. } | Change::Optimizer(_) => 3,
        Change::OffloadActivations | Change::OffloadOptimizer => 5,
        Change::ShardOptimizer { .. } => 6,
        Change::ShardGradients { .. } | Change::ShardParameters { .. } => 7,
        // Another batch or another program: both are not tried.
        Change::Accumulate { .. } | Change::Inference => 8,
    }
}

/// Mean time in microseconds to recompute checkpointed calls, per forward pass. `None` if the file has no times.
fn recompute_us(function: &HeldByCalls, every: usize) -> Option<i64> {
    let (all, some) = (function.calls.max(1) as i64, function.calls.div_ceil(every.max(1)) as i64);
    Some(function.recompute_us?.saturating_mul(some) / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::changes::CodeChange;

    fn function(label: &str, bytes: u64, calls: usize, recompute_us: Option<i64>) -> HeldByCalls {
        HeldByCalls {
            label: label.to_owned(),
            calls,
            bytes,
            recompute_us,
            change: CodeChange::Wrap { caller: None, others: Vec::new() },
        }
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
        let sets = Moves::all(Vec::new(), None, 100, true).sets();
        assert_eq!(sets.len(), 1 + 5 + 10);
        assert_eq!(sets[..2], [vec![], vec![Change::Optimizer(Optimizer::Adam8bit)]]);
        let trouble: Vec<u32> = sets.iter().map(|set| trouble_of(false, set)).collect();
        assert!(trouble.is_sorted());
    }

    #[test]
    fn a_loss_is_split_as_far_as_it_matters() {
        assert_eq!(
            [10, 20, 79, 80, 160, 5000].map(|logits| most_pieces(logits, 1000)),
            [None, Some(4), Some(4), Some(8), Some(16), Some(16)]
        );
        assert_eq!(fewer_pieces(16).collect::<Vec<_>>(), [4, 8]);
    }

    #[test]
    fn recomputation_takes_time() {
        let loss = LossFigures { logits_bytes: 500, forward_us: Some(7) };
        let moves = Moves::all(vec![function("block", 90, 4, Some(40))], Some(loss), 1000, true);
        let block = checkpoint(&moves.functions[0], 2);
        let time = |changes: &[Change]| moves.time(changes);
        assert_eq!(time(&[]), Some(0));
        assert_eq!(time(&[block.clone(), Change::OffloadOptimizer]), Some(20));
        assert_eq!(time(&[block, Change::ChunkLoss { pieces: 16 }]), Some(27));
    }
}
