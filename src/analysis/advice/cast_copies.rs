//! A model is copied and the copy is cast to another dtype, while the original is used no more.
//!
//! **Sign:** `copy.deepcopy` copies the weights, a cast replaces each block of the copy by another one before the model is called,
//! and no backward pass follows: a program that trains may need both.
//!
//! **Fix:** cast the model itself.
//!
//! **Figures** are simulated with originals that end when the cast weight is made. If the program calls the original as well, only
//! the copy in the old dtype can be avoided.

use super::duplicate_model::{Way, bytes, way};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::training::{Category, Phase};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Instant};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::{HashMap, VecDeque};

/// Least number of copied blocks that are cast.
const LEAST_BLOCKS: usize = 4;

type Block = (u32, Allocation);

/// One finding for each line that casts a copy.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let (sites, roles, phases) = (device.sites(), device.roles(), device.phases());
    if phases.spans.iter().any(|span| span.phase == Phase::Backward) {
        return Vec::new();
    }
    let line_of = |index: u32| sites.site_frame(device.track.stack_of(index as usize));
    let copied = |stack| way(device, stack) == Some(Way::Model);
    let copied: Vec<Block> = device.allocations_by(copied).map(|(index, made, _)| (index, *made)).collect();
    let casts: Vec<Block> =
        device.allocations_by(|stack| roles.moves_module(stack)).map(|(index, made, _)| (index, *made)).collect();
    let mut of_line: IndexMap<FrameId, Vec<(Block, Block)>> = IndexMap::new();
    for &(index, made) in &copied {
        // The cast makes the new block right before it frees the old one.
        let after = casts.partition_point(|(_, cast)| cast.born < made.freed);
        let cast = after.checked_sub(1).map(|before| casts[before]);
        let is_cast = |cast: &Block| cast.1.born > made.born && cast.1.requested < made.requested;
        if let (Some(cast), Some(line)) = (cast.filter(is_cast), line_of(index)) {
            of_line.entry(line).or_default().push(((index, made), cast));
        }
    }
    let all = (0u32..).zip(&device.history().allocations).map(|(index, made)| (index, *made));
    let is_parameter = |index: u32| device.categories().get(index as usize).category == Category::Parameter;
    let weights: Vec<Block> = all.filter(|&(index, _)| is_parameter(index)).collect();
    let found = of_line.into_iter().filter(|(_, pairs)| pairs.len() >= LEAST_BLOCKS);
    found.filter_map(|(line, pairs)| finding(line, &pairs, &weights)).collect()
}

/// The finding for copies, each with the block that replaces it; `None` if the original is not on the device.
fn finding(line: FrameId, pairs: &[(Block, Block)], weights: &[Block]) -> Option<Finding> {
    let first = pairs.iter().map(|((_, copy), _)| copy.born).min()?;
    let mut originals: HashMap<u64, VecDeque<Block>> = HashMap::new();
    for &(index, made) in weights.iter().filter(|(_, made)| made.born < first && first < made.freed) {
        originals.entry(made.requested).or_default().push_back((index, made));
    }
    let copies: Vec<Block> = pairs.iter().map(|&(copy, _)| copy).collect();
    let mut freed: Vec<(u32, Instant)> = Vec::new();
    for ((_, copy), (_, cast)) in pairs.iter().filter(|((_, copy), _)| copy.requested > SCALAR) {
        let (index, original) = originals.get_mut(&copy.requested)?.pop_front()?;
        if cast.born < original.freed {
            freed.push((index, cast.born));
        }
    }
    let removed: Vec<u32> = copies.iter().map(|&(index, _)| index).collect();
    let least = Lifetimes { removed, ..Lifetimes::default() };
    let most = Lifetimes { freed, ..least.clone() };
    Some(Finding {
        kind: RuleKind::DuplicateModel,
        line: Some(line),
        evidence: format!(
            "{} of weights are copied here and the copy is cast to a smaller dtype, while the original stays on the device",
            Bytes(bytes(&copies))
        ),
        cost: None,
        fixes: vec![Fix::up_to(
            "cast the model itself instead of a copy",
            ["model.half()  # in place: no copy, and no float32 weights afterwards"],
            least,
            most,
            "the recording does not show whether the program calls the original later",
        )],
    })
}
