//! The mask of `scaled_dot_product_attention` is expanded to all heads and sequences, and copied: the values of one matrix are
//! stored once for each of them.
//!
//! **Sign:** holders show the block that attention saves as its mask, or attention stores a number for each row of a matrix of
//! that size while the block is live; the function that made it had made a block before that is a whole number of times smaller,
//! and that it held no longer than it ran.
//!
//! **Fix:** pass the small mask, or a view of it made by `expand`, without `contiguous()`.
//!
//! **Figures** are simulated with a mask of the small size.

use super::super::kept_over_steps::{is_freed_by_backward, notable};
use super::super::model_calls::born_in;
use super::super::rules::Evidence;
use super::super::{Finding, Fix, Rewrite, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::held::HeldAs;
use crate::model::bytes::Bytes;
use crate::model::holders::HolderKind;
use crate::model::{FrameId, StackId};
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Least number of copies of the small mask.
const LEAST_COPIES: u64 = 4;
/// Least number of tokens for which the matrix of all pairs is told from others.
const LEAST_TOKENS: u64 = 128;
/// Least number of layers that attend with one mask.
const LEAST_LAYERS: usize = 2;
/// How many rows attention works on together.
const ROWS_TOGETHER: u64 = 32;
/// Bytes of an element of float32.
const FLOAT: u64 = 4;
/// Bytes of an element of float16 and bfloat16.
const HALF: u64 = 2;
/// How many allocations before the mask are searched for the small one.
const LOOKED_AT: usize = 16;

/// One finding for each line that makes such a mask.
pub(in super::super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let least = notable(device);
    let is_saved = |index: usize| {
        let held = device.held()?;
        let HeldAs::Held(storage) = held.get(index) else { return None };
        Some(held.holders(storage).any(|holder| {
            holder.kind == HolderKind::Saved
                && holder.node.starts_with("ScaledDotProduct")
                && (holder.node.ends_with(".attn_bias") || holder.node.ends_with(".attn_mask"))
        }))
    };
    // The same line makes the masks of steps that no walk has seen.
    let mut small: IndexMap<FrameId, HashMap<u64, u64>> = IndexMap::new();
    for (index, made) in device.history().allocations.iter().enumerate() {
        let saved = is_saved(index);
        if saved == Some(false) || (saved.is_none() && made.requested < least) {
            continue;
        }
        let line = device.sites().site_frame(device.track.stack_of(index)).filter(|&line| device.sites().is_own(line));
        let Some((line, size)) = line.zip(size_before(device, index)) else { continue };
        if saved.is_some() || has_rows_of_attention(device, index, made, size) {
            small.entry(line).or_default().insert(made.requested, size);
        }
    }
    small.into_iter().map(|(line, sizes)| finding(device, line, &sizes)).collect()
}

/// Whether the layers that run while the mask is live attend over as many tokens and heads as the mask has: the kernels store the
/// logarithm of the sum of each row until backward, in float32 and for a multiple of 32 rows.
fn has_rows_of_attention(device: &Device<'_>, index: usize, mask: &Allocation, small: u64) -> bool {
    let copies = mask.requested / small;
    // With a matrix for each sequence, the small mask may also be a sum of embeddings.
    let is_of_mask = |rows: u64, element: u64| {
        let tokens = (small / element).isqrt();
        tokens >= LEAST_TOKENS
            && tokens * tokens * element == small
            && rows == copies * tokens.next_multiple_of(ROWS_TOGETHER) * FLOAT
    };
    if !is_freed_by_backward(device, mask) {
        return false;
    }
    let is_of_layer = |made: &Allocation| {
        let is_of_mask = [FLOAT, HALF].iter().any(|&element| is_of_mask(made.requested, element));
        is_of_mask && made.freed < mask.freed && is_freed_by_backward(device, made)
    };
    let stack = device.track.stack_of(index);
    let mut layers: HashMap<StackId, usize> = HashMap::new();
    for (index, made) in born_in(device, mask.born, mask.freed) {
        let other = device.track.stack_of(index as usize);
        if other == stack {
            return false; // Each layer makes one.
        }
        *layers.entry(other).or_default() += usize::from(is_of_layer(&made));
    }
    layers.into_values().max().unwrap_or(0) >= LEAST_LAYERS
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
            "attention keeps a mask of {} for backward: {} times the block of {} that is made right before it; if all heads and \
             sequences have the same mask, these are copies",
            Bytes(mask),
            mask / small.max(1),
            Bytes(small)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                "pass the mask of one head and sequence, which attention broadcasts",
                ["return mask.expand(batch, heads, n, n)  # a view: without .contiguous(), .repeat() or .clone()"],
                Lifetimes { resized, ..Lifetimes::default() },
            )
            .by(Rewrite::ExpandWithoutCopy),
        ],
    }
}
