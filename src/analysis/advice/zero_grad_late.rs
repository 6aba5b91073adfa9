//! Finds gradients of the previous step that stay live through the forward pass, since `zero_grad` comes after it.
//!
//! Backward adds to existing gradients and allocates missing ones. Nothing reads them between the optimizer step and
//! the next backward pass.

use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{Action, StackId};
use crate::play::changes::Lives;
use crate::replay::Instant;

/// Findings for gradients that are freed after a forward pass that begins after the optimizer step and has a backward
/// pass.
pub(super) fn find(device: &Device<'_>) -> Vec<Finding> {
    let (track, roles, phases) = (device.track, device.roles(), device.phases());
    if !phases.frees_tell {
        return Vec::new();
    }
    let mut lives = Lives::default();
    let mut largest: (u64, StackId) = (0, StackId::EMPTY);
    // What is known since the last entry of a backward pass or of an optimizer.
    let mut forward: Option<Instant> = None;
    let mut dropped: Vec<u32> = Vec::new();
    let mut by = StackId::EMPTY;
    for (entry, &action) in (0..).zip(track.actions()) {
        let stack = track.stack(entry);
        let link = track.history.links.get(entry as usize).copied();
        let is_zero_grad = roles.role(stack) == Role::ZeroGrad;
        let phase = phases.span(entry).map(|span| span.phase);
        match (action, phase) {
            (Action::FreeRequested, _) if forward.is_some() && link.is_some_and(|link| drops(device, link, stack)) => {
                dropped.extend(link);
                by = stack;
            }
            _ if is_zero_grad => {}
            (Action::Alloc, Some(Phase::Forward)) => {
                // Another pass behind the frees: these were for an evaluation, or for a part of the program that goes its own
                // way.
                if !dropped.is_empty() && roles.role(stack) == Role::Module {
                    (forward, dropped) = (Some(entry), Vec::new());
                }
                forward.get_or_insert(entry);
            }
            (_, Some(Phase::Backward | Phase::Optimizer)) => {
                let bytes = dropped
                    .iter()
                    .filter_map(|&index| track.allocation(index as usize))
                    .map(|it| it.size)
                    .fold(0, u64::saturating_add);
                if bytes > largest.0 {
                    largest = (bytes, by);
                }
                if let Some(forward) = forward.take() {
                    lives.freed.extend(dropped.drain(..).map(|index| (index, forward)));
                }
            }
            _ => {}
        }
    }
    let (bytes, stack) = largest;
    if lives.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        story: Story::ZeroGradLate,
        line: device.sites().site_frame(stack),
        cure: "call zero_grad before the forward pass".to_owned(),
        evidence: format!(
            "{} of gradients from the previous step stay alive during the forward pass, because zero_grad comes after it",
            Bytes(bytes)
        ),
        cost: None,
        code: vec!["optimizer.zero_grad(set_to_none=True)  # before the model is called".to_owned()],
        remedy: Remedy::Lives(lives),
    }]
}

/// Whether gradients are dropped: by `zero_grad`, or by code that does the same.
fn drops(device: &Device<'_>, allocation: u32, stack: StackId) -> bool {
    match device.roles().role(stack) {
        Role::ZeroGrad => true,
        Role::Plain => device.categories().get(allocation as usize).category == Category::Gradient,
        _ => false,
    }
}
