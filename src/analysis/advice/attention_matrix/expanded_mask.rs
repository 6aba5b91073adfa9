//! The mask of `scaled_dot_product_attention` is expanded to all heads and sequences, and copied: the values of one matrix are
//! stored once for each of them.
//!
//! **Sign:** holders show the block that attention saves as its mask; the function that made it had made a block before that is
//! a whole number of times smaller, and that it held no longer than it ran.
//!
//! **Fix:** pass the small mask, or a view of it made by `expand`, without `contiguous()`.
//!
//! **Figures** are simulated with a mask of the small size.

use super::super::rules::Evidence;
use super::super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::held::HeldAs;
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::model::holders::HolderKind;
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Least number of copies of the small mask.
const LEAST_COPIES: u64 = 4;
/// How many allocations before the mask are searched for the small one.
const LOOKED_AT: usize = 16;

/// One finding for each line that makes such a mask.
pub(in super::super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let Some(held) = device.held() else { return Vec::new() };
    let is_mask = |index: usize| {
        let HeldAs::Held(storage) = held.get(index) else { return false };
        held.holders(storage).any(|holder| {
            holder.kind == HolderKind::Saved
                && holder.node.starts_with("ScaledDotProduct")
                && (holder.node.ends_with(".attn_bias") || holder.node.ends_with(".attn_mask"))
        })
    };
    // Walks have seen the masks of some steps: the same line makes those of the others.
    let mut small: IndexMap<FrameId, HashMap<u64, u64>> = IndexMap::new();
    for index in (0..device.history().allocations.len()).filter(|&index| is_mask(index)) {
        let line = device.sites().site_frame(device.track.stack_of(index)).filter(|&line| device.sites().is_own(line));
        if let (Some(line), Some(size)) = (line, size_before(device, index)) {
            small.entry(line).or_default().insert(device.history().allocations[index].requested, size);
        }
    }
    small.into_iter().map(|(line, sizes)| finding(device, line, &sizes)).collect()
}

/// The size of the block of which a mask is copies: another one of its function, freed before anything else runs.
fn size_before(device: &Device<'_>, index: usize) -> Option<u64> {
    let all = &device.history().allocations;
    let mask = all[index];
    let function = |index: usize| {
        let line = device.sites().site_frame(device.track.stack_of(index))?;
        device.snapshot().stacks.frame(line).map(|frame| (frame.filename, frame.name))
    };
    let is_small = |&other: &usize| {
        let made: &Allocation = &all[other];
        made.requested > SCALAR
            && mask.requested.is_multiple_of(made.requested)
            && mask.requested / made.requested >= LEAST_COPIES
            && mask.born < made.freed
            && all.get(index + 1).is_none_or(|next| made.freed <= next.born)
            && function(other) == function(index)
    };
    let small = (index.saturating_sub(LOOKED_AT)..index).rev().find(is_small)?;
    Some(all[small].requested)
}

fn finding(device: &Device<'_>, line: FrameId, sizes: &HashMap<u64, u64>) -> Finding {
    let of_line = device.allocations_by(|stack| device.sites().site_frame(stack) == Some(line));
    let resized = of_line.filter_map(|(index, made, _)| Some((index, *sizes.get(&made.requested)?))).collect();
    let (&mask, &small) = sizes.iter().max().unwrap_or((&0, &0));
    Finding {
        kind: RuleKind::AttentionMatrix,
        line: Some(line),
        evidence: format!(
            "attention keeps a mask of {} for backward: {} times the mask of {} that is made before it",
            Bytes(mask),
            mask / small.max(1),
            Bytes(small)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "pass the mask of one head and sequence, which attention broadcasts",
            ["return mask.expand(batch, heads, n, n)  # a view: without .contiguous(), .repeat() or .clone()"],
            Lifetimes { resized, ..Lifetimes::default() },
        )],
    }
}
