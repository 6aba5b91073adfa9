//! Low-rank adaptation (LoRA) is a special case: the base weights are trained although low-rank weights adapt them. It is
//! recognized by pairs of weights, `rank x in` and `out x rank`, right after a weight of `out x in`. Their sizes multiply to its
//! size times the rank squared, as only projections of grouped keys and values also do. The fix freezes the base weights before
//! the optimizer is created.

use super::frozen::frozen;
use super::model_calls::ModelCalls;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};

const LEAST_PAIRS: usize = 4;
/// Ranks that are recognized. The two vectors of a norm look like rank 2 after a weight that is four times as high as wide.
const RANKS: std::ops::RangeInclusive<u64> = 4..=256;
/// A low-rank weight has at most this fraction (1/N) of the bytes of the weight that it adapts.
const SMALLER: u64 = 4;

/// Weights for which low-rank weights are trained.
pub(super) fn find(device: &Device<'_>, calls: &ModelCalls) -> Option<Finding> {
    let category = |index: u32| device.categories().get(index as usize).category;
    let all = || (0u32..).zip(&device.history().allocations);
    let parameters: Vec<(u32, Allocation)> =
        device.allocations_of(Category::Parameter).map(|(index, made)| (index, *made)).collect();
    let mut pairs: BTreeMap<(u64, usize), Vec<[u64; 3]>> = BTreeMap::new();
    for place in 0..parameters.len() {
        let size = |ahead: usize| parameters.get(place + ahead).map_or(0, |(_, made)| made.requested);
        // The bias of a weight may be allocated between the two.
        let is_biased = size(1) > 0 && size(0) % size(1) == 0;
        for ahead in if is_biased { 1..=2 } else { 1..=1 } {
            let (one, other) = (size(ahead), size(ahead + 1));
            if let Some(rank) = rank(size(0), one, other) {
                pairs.entry((rank, ahead)).or_default().push([size(0), one, other]);
            }
        }
    }
    let count = |sizes: &mut dyn Iterator<Item = u64>| {
        let mut counts: HashMap<u64, usize, RandomState> = HashMap::default();
        sizes.for_each(|size| *counts.entry(size).or_default() += 1);
        counts
    };
    let sizes = count(&mut parameters.iter().map(|(_, made)| made.requested));
    // Vectors of norms and biases have sizes that other parameters also have.
    let is_of_pairs_alone = |pairs: &Vec<[u64; 3]>| {
        let of_pairs = count(&mut pairs.iter().flat_map(|&[_, one, other]| [one, other]));
        of_pairs.iter().all(|(size, count)| sizes.get(size) == Some(count))
    };
    let is_found = |pairs: &Vec<[u64; 3]>| {
        pairs.len() >= LEAST_PAIRS
            && is_of_pairs_alone(pairs)
            && (!may_be_grouped(pairs) || are_applied_in_turn(device, pairs))
    };
    let pairs = pairs.into_values().filter(is_found).max_by_key(Vec::len)?;
    let low_rank: HashSet<u64> = pairs.iter().flat_map(|&[_, one, other]| [one, other]).collect();
    let weights: HashSet<u64> = pairs.iter().map(|&[weight, ..]| weight).collect();
    // Blocks that are allocated for weights that should be frozen: their gradients, their states, and temporaries of
    // the optimizer.
    let is_for_others = |&(index, made): &(u32, &Allocation)| {
        let is_of_step = device.phases().at(made.born) == Phase::Optimizer
            && device.roles().role(device.track.stack_of(index as usize)) == Role::Optimizer
            && category(index) == Category::Temporary;
        !low_rank.contains(&made.requested)
            && (matches!(category(index), Category::Gradient | Category::OptimizerState)
                || is_of_step && sizes.contains_key(&made.requested))
    };
    let removed: Vec<(u32, &Allocation)> = all().filter(is_for_others).collect();
    let is_trained =
        removed.iter().any(|(index, made)| category(*index) == Category::Gradient && weights.contains(&made.requested));
    if !is_trained {
        return None;
    }
    let peak = device.history().maxima[Metric::Allocated as usize].instant;
    let bytes = removed
        .iter()
        .filter(|(_, made)| made.allocated_at(peak))
        .map(|(_, made)| made.size)
        .fold(0, u64::saturating_add);
    let state = removed.iter().find(|(index, _)| category(*index) == Category::OptimizerState);
    let line = state.and_then(|&(index, _)| device.sites().site_frame(device.track.stack_of(index as usize)));
    let line = line.filter(|&line| device.sites().is_own(line))?;
    Some(Finding {
        kind: RuleKind::OptimizerStatesOfFrozen,
        line: Some(line),
        evidence: format!(
            "{} pairs of low-rank weights are trained together with the weights that they adapt; the gradients and optimizer state of the \
             adapted weights, and the temporary tensors of their updates, hold {} at the peak",
            pairs.len(),
            Bytes(bytes)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "before you create the optimizer that steps here, freeze the base weights that the low-rank weights adapt",
            [
                "for name, weight in model.named_parameters():",
                "    weight.requires_grad_(\"lora_\" in name)  # train only the low-rank weights",
            ],
            frozen(device, calls, removed.iter().map(|&(index, _)| index).collect(), |_| true),
        )],
    })
}

/// Whether the pairs may be projections of grouped keys and values, which follow the projection of the queries and have one size.
fn may_be_grouped(pairs: &[[u64; 3]]) -> bool {
    pairs.iter().all(|[_, one, other]| one == other)
}

/// Whether forward multiplies by the two weights of such pairs one after the other, as adapters do: from tensors as wide as the
/// rank, the same line makes tensors as wide as the output of the adapted weight.
fn are_applied_in_turn(device: &Device<'_>, pairs: &[[u64; 3]]) -> bool {
    let blocks = &device.history().allocations;
    let line = |index: usize| {
        let frames = device.snapshot().stacks.frame_ids(device.track.stack_of(index));
        frames.iter().find(|&&frame| device.sites().kind(frame).is_python())
    };
    let is_in_turn = |index: usize| {
        let narrow = blocks[index].requested;
        pairs.iter().any(|&[weight, one, other]| {
            let is_wide = |wide: u64| u128::from(wide) * u128::from(one) == u128::from(narrow) * u128::from(weight);
            // Autocast casts the second weight in between.
            let next = (index + 1..blocks.len()).take(2).find(|&next| blocks[next].requested != other / 2);
            next.is_some_and(|next| {
                is_wide(blocks[next].requested) && line(next).is_some() && line(next) == line(index)
            })
        })
    };
    let forward = (0..blocks.len()).filter(|&index| device.phases().at(blocks[index].born) == Phase::Forward);
    forward.filter(|&index| is_in_turn(index)).take(LEAST_PAIRS).count() == LEAST_PAIRS
}

/// The rank of two weights that adapt a third, from the bytes of all three; `None` if they do not.
fn rank(weight: u64, one: u64, other: u64) -> Option<u64> {
    if weight == 0 || one.min(other) == 0 || one.max(other) > weight / SMALLER {
        return None;
    }
    let product = u128::from(one) * u128::from(other);
    [4u128, 2].into_iter().find_map(|element| {
        let whole = u128::from(weight) * element;
        let square = u64::try_from(product / whole).ok().filter(|_| product.is_multiple_of(whole))?;
        let rank = square.isqrt();
        (rank * rank == square && RANKS.contains(&rank)).then_some(rank)
    })
}
