//! Manual training in half precision keeps a float32 copy of each weight, and the optimizer updates these copies. Copies for
//! which it has no state, or, if it has none at all, whose weights have no gradients, belong to weights that are not trained. The
//! fix makes copies of trained weights only.

use super::rules::Evidence;
use super::whole_copies::line;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::simulation::changes::Lifetimes;
use std::collections::BTreeMap;

/// Least number of copies that a line makes, and of backward passes after which copies without states count as not updated.
const LEAST_COPIES: usize = 8;
const LEAST_PASSES: usize = 3;
/// Least number of sizes of copies that are recognized by weights of their size: one size may be that of other tensors by chance.
const LEAST_SIZES: usize = 3;
/// Maximum number of states that an optimizer keeps for a weight.
const MOST_STATES: usize = 3;
/// Copies that are not updated are reported if they hold at least 1/N of the peak.
const NOTABLE_PART: u64 = 20;

/// One finding for each line that makes such copies.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let passes: Vec<_> = device.phases().spans.iter().filter(|span| span.phase == Phase::Backward).collect();
    let Some(last) = passes.last().filter(|_| passes.len() >= LEAST_PASSES) else { return Vec::new() };
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut gradients: BTreeMap<u64, usize> = BTreeMap::new();
    let mut states = States::default();
    let mut of_line: BTreeMap<FrameId, Vec<u32>> = BTreeMap::new();
    for (index, made) in (0u32..).zip(&device.history().allocations) {
        let category = device.categories().get(index as usize).category;
        let is_of_pass = category == Category::Gradient || made.born > last.start;
        if made.allocated_at(last.end) && is_of_pass {
            *gradients.entry(made.requested).or_default() += 1;
        }
        if !made.allocated_at(last.start) || made.requested <= SCALAR {
            continue;
        }
        match category {
            Category::OptimizerState => states.add(made.requested),
            Category::Gradient => {}
            _ => {
                *sizes.entry(made.requested).or_default() += 1;
                if let Some(line) = line(device, index).filter(|_| made.born > 0) {
                    of_line.entry(line).or_default().push(index);
                }
            }
        }
    }
    let of_line = of_line.into_iter().filter(|(_, copies)| copies.len() >= LEAST_COPIES);
    let unused = |copies: &[u32]| {
        let of_size = by_size(device, copies);
        if states.counts.is_empty() {
            without_gradients(&of_size, &sizes, &gradients)
        } else {
            without_states(&of_size, &sizes, &states)
        }
    };
    let has_states = !states.counts.is_empty();
    of_line.filter_map(|(line, copies)| finding(device, line, copies.len(), &unused(&copies)?, has_states)).collect()
}

fn by_size(device: &Device<'_>, blocks: &[u32]) -> BTreeMap<u64, Vec<u32>> {
    let mut of_size: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for &index in blocks {
        of_size.entry(device.history().allocations[index as usize].requested).or_default().push(index);
    }
    of_size
}

/// The states of an optimizer, in the order in which they were made.
#[derive(Default)]
struct States {
    counts: BTreeMap<u64, usize>,
    /// Sizes, each with the number of consecutive blocks of it: the states of a weight are created together.
    runs: Vec<(u64, usize)>,
}

impl States {
    fn add(&mut self, size: u64) {
        *self.counts.entry(size).or_default() += 1;
        match self.runs.last_mut() {
            Some((last, count)) if *last == size => *count += 1,
            _ => self.runs.push((size, 1)),
        }
    }

    /// Number of states for each updated weight.
    fn of_each(&self) -> Option<usize> {
        (1..=MOST_STATES).rev().find(|each| self.runs.iter().all(|(_, count)| count.is_multiple_of(*each)))
    }
}

fn count(counts: &BTreeMap<u64, usize>, size: u64) -> usize {
    counts.get(&size).copied().unwrap_or(0)
}

/// The blocks of each size, in order, without so many of them.
fn beyond(of_size: &BTreeMap<u64, Vec<u32>>, used: impl Fn(u64) -> usize) -> Vec<u32> {
    let beyond = |(&size, blocks): (&u64, &Vec<u32>)| blocks[..blocks.len().saturating_sub(used(size))].to_vec();
    of_size.iter().flat_map(beyond).collect()
}

/// Copies of weights for which the optimizer has no states; `sizes` counts the blocks of each size that are not states.
fn without_states(
    of_size: &BTreeMap<u64, Vec<u32>>,
    sizes: &BTreeMap<u64, usize>,
    states: &States,
) -> Option<Vec<u32>> {
    // Each is a copy of a weight with half its size.
    let are_copies = of_size.iter().all(|(size, of_size)| size % 2 == 0 && count(sizes, size / 2) >= of_size.len());
    // All states belong to copies.
    let each = states.of_each().filter(|_| are_copies)?;
    let is_of_copies =
        |(size, count): (&u64, &usize)| of_size.get(size).is_some_and(|copies| count / each <= copies.len());
    states.counts.iter().all(is_of_copies).then(|| beyond(of_size, |size| count(&states.counts, size) / each))
}

/// The same without states: copies of weights without gradients, next to copies of weights with gradients.
fn without_gradients(
    of_size: &BTreeMap<u64, Vec<u32>>,
    sizes: &BTreeMap<u64, usize>,
    gradients: &BTreeMap<u64, usize>,
) -> Option<Vec<u32>> {
    let is_whole = of_size.iter().all(|(size, copies)| count(sizes, *size) >= copies.len() * 2);
    let is_half = || of_size.iter().all(|(size, copies)| size % 2 == 0 && count(sizes, size / 2) >= copies.len());
    let factor = if is_whole { 1 } else { 2 };
    let trained = |size: u64| count(gradients, size).max(count(gradients, size / factor));
    let is_known = of_size.len() >= LEAST_SIZES && of_size.keys().any(|&size| trained(size) > 0);
    (is_known && (is_whole || is_half())).then(|| beyond(of_size, trained))
}

fn finding(device: &Device<'_>, line: FrameId, copies: usize, unused: &[u32], has_states: bool) -> Option<Finding> {
    let block = |index: u32| device.history().allocations[index as usize];
    let clones: Vec<u32> = unused.iter().filter_map(|&index| clone_in_front(device, index)).collect();
    let bytes = unused.iter().map(|&index| block(index).size).fold(0, u64::saturating_add);
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0).unsigned_abs();
    (bytes >= (peak / NOTABLE_PART).max(1)).then(|| Finding {
        kind: RuleKind::OptimizerStatesOfFrozen,
        line: Some(line),
        evidence: format!(
            "{} of {copies} copies that this line makes, {}, {} to weights {}",
            unused.len(),
            Bytes(bytes),
            if unused.len() == 1 { "belongs" } else { "belong" },
            if has_states { "for which the optimizer has no state" } else { "without gradients" }
        ),
        cost: None,
        fixes: vec![Fix::up_to(
            "make float32 copies only of the weights that are trained",
            ["copies = [p.detach().float() for p in model.parameters() if p.requires_grad]  # freeze the other weights first"],
            Lifetimes { removed: unused.to_vec(), ..Lifetimes::default() },
            Lifetimes { removed: unused.iter().copied().chain(clones).collect(), ..Lifetimes::default() },
            "memviz infers whether a copy in the weight's own dtype precedes each of these copies",
        )],
    })
}

/// The copy in the dtype of the weight from which a float32 copy is computed, if there is one: it is freed at once.
fn clone_in_front(device: &Device<'_>, index: u32) -> Option<u32> {
    let block = |index: u32| device.track.allocation(index as usize).copied();
    let (before, copy) = (index.checked_sub(1)?, block(index)?);
    let next = block(index + 1).map_or(copy.born, |next| next.born);
    let is_clone = block(before)?.requested.checked_mul(2) == Some(copy.requested)
        && (copy.born..=next).contains(&block(before)?.freed)
        && device.track.stack_of(before as usize) == device.track.stack_of(index as usize);
    is_clone.then_some(before)
}
