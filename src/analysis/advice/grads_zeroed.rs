//! `zero_grad(set_to_none=False)`, or a loop over `grad.zero_()`, fills gradients with zeros instead of freeing them, with the
//! same effect: each backward pass computes all of them again and adds them to the existing ones, although an optimizer steps in
//! between. Captured graphs need this, and programs with private pools are left out.

use super::frozen;
use super::gradients_anew::{Drops, is_zeroed};
use super::kept_over_steps::backward_line;
use super::rules::Evidence;
use super::variables::frame_of_function;
use super::{Finding, Fix, Rewrite, RuleKind, SCALAR};
use crate::facts::training::Category;
use crate::model::DEFAULT_POOL;
use crate::model::bytes::Bytes;
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;

/// One finding, if gradients are never freed although an optimizer steps between the backward passes that add to them.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let passes = calls.passes();
    // Captured graphs need gradients at fixed addresses.
    let has_pools = device.track.segments().iter().any(|segment| segment.pool.is_some_and(|pool| pool != DEFAULT_POOL));
    let Some(first) = calls.all.iter().find(|call| call.backward.is_some()) else { return Vec::new() };
    let Some(end) = passes.last().map(|pass| pass.end) else { return Vec::new() };
    if has_pools || !is_zeroed(device, &passes) {
        return Vec::new();
    }
    let is_kept = |(_, block): &(u32, &Allocation)| block.freed >= end && passes[0].contains(&block.born);
    let gradients = device.allocations_of(Category::Gradient).filter(is_kept);
    let gradients: Vec<(u32, Allocation)> = gradients.map(|(index, block)| (index, *block)).collect();
    // Where those of other weights are freed in each step, no optimizer has these.
    let is_freed = |(_, block): (u32, &Allocation)| {
        block.requested > SCALAR && passes[0].contains(&block.born) && passes[0].end < block.freed && block.freed < end
    };
    if gradients.is_empty() || device.allocations_of(Category::Gradient).any(is_freed) {
        return Vec::new();
    }
    let steps = calls.all.iter().filter(|call| call.backward.is_some()).map(|call| call.start);
    let drops = Drops { evaluations: Vec::new(), steps: steps.collect() };
    let mut freed = drops.freed(device, calls, &gradients);
    // Backward must compute each one again in its own block, unlike the buckets of a distributed program.
    if freed.len() < gradients.len() * 2 || frozen::has_unused_gradients(device) {
        return Vec::new();
    }
    freed.sort_unstable();
    let bytes = gradients.iter().map(|(_, gradient)| gradient.size).fold(0, u64::saturating_add);
    let line = backward_line(device, first);
    let forward = line.and_then(|line| frame_of_function(device, device.track.stack(first.start), line));
    let forward = forward.and_then(|frame| device.snapshot().stacks.frame(frame)).map(|frame| frame.line);
    vec![Finding {
        kind: RuleKind::ZeroGradLate,
        line,
        evidence: format!(
            "{} of gradients are never freed, so they stay alive during every forward pass",
            Bytes(bytes)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                "free the gradients before the forward pass instead of filling them with zeros",
                ["optimizer.zero_grad(set_to_none=True)  # before the model is called"],
                Lifetimes { freed, ..Lifetimes::default() },
            )
            .by(Rewrite::SetToNone { forward }),
        ],
    }]
}
