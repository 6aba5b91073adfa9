//! **An optimizer of the user's own** has several temporaries of a parameter's size live at once, where in-place operators need
//! one. The fix is in-place operators, or an optimizer of `torch.optim` with `fused=True`.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Phases, Role};
use crate::model::bytes::Bytes;
use crate::model::{StackId, StrId};
use crate::replay::{Allocation, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::BTreeMap;

/// In-place operators may also need fewer than this many at once.
const LEAST_AT_ONCE: usize = 2;
/// Smaller temporaries are not worth reporting.
const SMALL: u64 = 1 << 20;

/// One finding for each function that updates parameters.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let (phases, roles, sites) = (device.phases(), device.roles(), device.sites());
    let mut of_function: BTreeMap<(StrId, StrId), Vec<u32>> = BTreeMap::new();
    let is_of_update = |stack: StackId| roles.role(stack) == Role::Optimizer || roles.is_plain_step(stack);
    for (index, allocation, stack) in device.allocations_by(is_of_update) {
        let is_scratch = allocation.born > 0
            && allocation.freed != NEVER
            && allocation.requested >= SMALL
            && phases.at(allocation.born) == Phase::Optimizer
            && phases.at(allocation.freed) == Phase::Optimizer
            // States that every update computes anew live until the next one, as they would if they were updated in place.
            && !reaches_model(phases, allocation);
        if !is_scratch {
            continue;
        }
        // The innermost line of Python is in the user's code: no function of PyTorch allocates the block.
        let innermost = device.snapshot().stacks.frame_ids(stack).iter().find(|&&frame| sites.kind(frame).is_python());
        let Some(&line) = innermost.filter(|&&frame| sites.is_own(frame)) else { continue };
        if let Some(frame) = device.snapshot().stacks.frame(line) {
            of_function.entry((frame.filename, frame.name)).or_default().push(index);
        }
    }
    if of_function.is_empty() {
        return Vec::new();
    }
    // A method that needs vectors of all parameters, such as conjugate gradients, keeps several of them for good reason: they are
    // larger than any gradient.
    let largest = device.allocations_of(Category::Gradient).map(|(_, made)| made.requested).max();
    let is_of_parameter =
        |&index: &u32| largest.is_none_or(|largest| device.history().allocations[index as usize].requested <= largest);
    let of_parameters = of_function.into_values().map(|blocks| blocks.into_iter().filter(is_of_parameter).collect());
    of_parameters.filter_map(|blocks: Vec<u32>| finding(device, &blocks)).collect()
}

/// Whether a block lives until the next forward or backward pass.
fn reaches_model(phases: &Phases, allocation: &Allocation) -> bool {
    let next = phases.spans.partition_point(|span| span.end < allocation.born);
    let during = phases.spans[next..].iter().take_while(|span| span.start < allocation.freed);
    during.map(|span| span.phase).any(|phase| matches!(phase, Phase::Forward | Phase::Backward))
}

fn finding(device: &Device<'_>, blocks: &[u32]) -> Option<Finding> {
    let block = |index: u32| device.history().allocations[index as usize];
    // One of them is live at a time.
    let mut kept: Option<Allocation> = None;
    let mut removed = Vec::new();
    for &index in blocks {
        let now = block(index);
        if kept.is_some_and(|kept| kept.freed > now.born) {
            removed.push(index);
        } else {
            kept = Some(now);
        }
    }
    let peak = device.history().maxima[Metric::Allocated as usize].instant;
    let at_peak: Vec<u32> = blocks.iter().copied().filter(|&index| block(index).allocated_at(peak)).collect();
    let bytes = at_peak.iter().fold(0u64, |sum, &index| sum.saturating_add(block(index).size));
    let last = at_peak.last().filter(|_| at_peak.len() >= LEAST_AT_ONCE)?;
    Some(Finding {
        kind: RuleKind::Temporary,
        line: device.sites().site_frame(device.track.stack_of(*last as usize)),
        evidence: format!("{} temporary tensors of the update are live at the peak: {}", at_peak.len(), Bytes(bytes)),
        cost: None,
        fixes: vec![Fix::new(
            "compute the update in place, or use a torch.optim optimizer with fused=True",
            ["p.addcdiv_(m, v.sqrt().add_(eps), value=-lr)"],
            Lifetimes { removed, ..Lifetimes::default() },
        )],
    })
}
