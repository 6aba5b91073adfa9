//! Finds when gradients are freed, and which blocks later backward passes turn into gradients.
//!
//! Backward computes each gradient into a new block. If the parameter already has a gradient, backward adds the block
//! to it and frees the block; otherwise the block becomes the gradient.

use super::model_calls::ModelCalls;
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::StackId;
use crate::replay::{Allocation, History, Instant, NEVER};
use std::collections::HashMap;
use std::ops::Range;

/// The instants at which a program frees its gradients, each list in order of time.
pub(super) struct Drops {
    /// The instants before each evaluation.
    pub evaluations: Vec<Instant>,
    /// The instants before each forward pass of the training: `zero_grad(set_to_none=True)` instead of `set_to_none=False`.
    pub steps: Vec<Instant>,
}

/// The blocks of a backward pass by stack and requested bytes, in order.
type Blocks = HashMap<(StackId, u64), Vec<u32>>;

impl Drops {
    /// The blocks that are freed at another instant, each with that instant.
    pub fn freed(
        &self,
        device: &Device<'_>,
        calls: &ModelCalls,
        gradients: &[(u32, Allocation)],
    ) -> Vec<(u32, Instant)> {
        let passes = calls.passes();
        let blocks: Vec<Blocks> = passes.iter().map(|pass| blocks_of(device, pass)).collect();
        let mut all: Vec<Instant> = self.evaluations.iter().chain(&self.steps).copied().collect();
        all.sort_unstable();
        let end = passes.last().map_or(NEVER, |pass| pass.end);
        let mut freed = Vec::new();
        for &(index, gradient) in gradients {
            let made_by = passes
                .iter()
                .position(|pass| History::entry_before(gradient.born).is_some_and(|it| pass.contains(&it)));
            let drops = match made_by {
                Some(pass) if gradient.freed >= end && is_zeroed(device, &passes[pass..]) => &all,
                _ => &self.evaluations,
            };
            let next = |instant: Instant| drops.get(drops.partition_point(|&drop| drop < instant)).copied();
            let next = |instant: Instant| next(instant).filter(|&drop| drop < gradient.freed);
            let Some(mut drop) = next(gradient.born) else { continue };
            freed.push((index, drop));
            let Some(made_by) = made_by else { continue };
            let alike = (device.track.stack_of(index as usize), gradient.requested);
            let Some(like_it) = blocks[made_by].get(&alike) else { continue };
            let Some(place) = like_it.iter().position(|&block| block == index) else { continue };
            for (pass, blocks) in passes.iter().zip(&blocks).skip(made_by + 1) {
                // Between two drops, the second pass adds to the gradients of the first.
                if pass.start < drop || pass.start >= gradient.freed {
                    continue;
                }
                let Some(anew) = blocks.get(&alike).filter(|anew| anew.len() == like_it.len()) else { continue };
                let next = next(pass.end);
                freed.push((anew[place], next.unwrap_or_else(|| gradient.freed.min(device.history().entries()))));
                let Some(next) = next else { break };
                drop = next;
            }
        }
        freed
    }
}

/// Whether an optimizer step lies between the first two of these backward passes, so that the second does not accumulate.
pub(super) fn is_zeroed(device: &Device<'_>, passes: &[Range<Instant>]) -> bool {
    let [first, second, ..] = passes else { return false };
    let spans = &device.phases().spans;
    let between = spans.iter().skip_while(|span| span.end <= first.end).take_while(|span| span.start < second.start);
    between.into_iter().any(|span| span.phase == Phase::Optimizer)
}

fn blocks_of(device: &Device<'_>, entries: &Range<Instant>) -> Blocks {
    let allocations = &device.history().allocations;
    let from = device.history().born_after(entries.start);
    let mut blocks = Blocks::new();
    for (index, block) in (from..).zip(&allocations[from..]).take_while(|(_, block)| block.born <= entries.end) {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        blocks.entry((device.track.stack_of(index as usize), block.requested)).or_default().push(index);
    }
    blocks
}
