//! **A copy of all gradients** in one tensor has exactly as many bytes as all gradients that are live, nothing of that size is
//! computed from it, and it is freed before the next backward pass: it probably serves a norm. The fix computes the norm from
//! those of the single gradients.
//!
//! **Figures** of all of these are simulated without the blocks that the fix leaves out, and shown only if they lower the peak of
//! allocated memory.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind, whole_copies};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric};
use crate::simulation::changes::Lifetimes;

/// A copy is reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 20;
/// A copy holds at least this many gradients: a single one may be copied for many reasons.
const LEAST_GRADIENTS: usize = 4;
/// What is computed from a copy has less than 1/N of its bytes.
const SMALL: u64 = 4;

/// One finding, for the copies that a line makes if one of them is live at the peak.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let history = device.history();
    let peak = history.maxima[Metric::Allocated as usize];
    let least = (u64::try_from(peak.bytes).unwrap_or(0) / NOTABLE_PART).max(1);
    let is_candidate = |(index, made): &(usize, &Allocation)| {
        made.allocated_at(peak.instant)
            && made.size >= least
            && made.born > 0
            && device.phases().at(made.born) != Phase::Forward
            && line(device, *index as u32).is_some()
    };
    let candidates = history.allocations.iter().enumerate().take_while(|(_, made)| made.born <= peak.instant);
    let Some((named, made)) = candidates.filter(is_candidate).max_by_key(|(_, made)| made.size) else {
        return Vec::new();
    };
    if !is_flat_copy(device, named, made) {
        return Vec::new();
    }
    let stack = device.track.stack_of(named);
    let again = device.track.allocations().filter(|&(_, other, of)| of == stack && other.requested == made.requested);
    vec![Finding {
        kind: RuleKind::Temporary,
        line: line(device, named as u32),
        evidence: format!(
            "this line allocates one tensor as large as all gradients together, {}; while it is live and before the next forward pass, the program allocates nothing as large as a quarter of it, except in the optimizer",
            Bytes(made.size)
        ),
        cost: Some("one call for each gradient instead of one for all".to_owned()),
        fixes: vec![Fix::new(
            "if this line copies all gradients to compute their norm, compute the norm of each gradient separately",
            ["norm = torch.stack([p.grad.norm() for p in parameters]).norm()  # the norm of all gradients"],
            Lifetimes {
                removed: again.map(|(index, ..)| index).collect(),
                doubt: Some("the recording does not show what the tensor is for"),
                ..Lifetimes::default()
            },
        )],
    }]
}

/// The user's line that makes a block, by itself or with `parameters_to_vector`.
fn line(device: &Device<'_>, index: u32) -> Option<FrameId> {
    whole_copies::line(device, index).or_else(|| {
        let stack = device.track.stack_of(index as usize);
        let innermost = *device.snapshot().stacks.frame_ids(stack).first()?;
        let is_flat = device.sites().installed_path(innermost) == "torch/nn/utils/convert_parameters.py";
        device.sites().site_frame(stack).filter(|_| is_flat)
    })
}

/// Whether a block holds all gradients that are live, and only small blocks are computed from it until the next pass.
fn is_flat_copy(device: &Device<'_>, index: usize, made: &Allocation) -> bool {
    let gradients = device.allocations_of(Category::Gradient);
    let live =
        gradients.map(|(_, gradient)| gradient).filter(|gradient| gradient.allocated_at(made.born.saturating_sub(1)));
    let (count, bytes) =
        live.fold((0, 0u64), |(count, bytes), gradient| (count + 1, bytes.saturating_add(gradient.requested)));
    let behind = device.history().allocations[index + 1..].iter().take_while(|other| other.born < made.freed);
    let mut of_same_pass = behind.take_while(|other| device.phases().at(other.born) != Phase::Forward);
    // The optimizer has blocks of its own, one for each parameter.
    let is_used_small = of_same_pass.all(|other| {
        other.requested < made.requested / SMALL
            || device.phases().at(other.born) == Phase::Optimizer && other.requested < made.requested
    });
    let passes = device.phases().spans.iter().filter(|span| span.phase == Phase::Backward);
    let next = passes.map(|span| span.start).find(|&start| start >= made.born);
    count >= LEAST_GRADIENTS && bytes == made.requested && is_used_small && next.is_none_or(|next| made.freed <= next)
}
