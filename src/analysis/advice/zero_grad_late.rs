//! Gradients of the previous step stay live through the forward pass, since `zero_grad` comes after it. Nothing reads them
//! between the optimizer step and the next backward pass.
//!
//! **Sign:** gradients that `zero_grad`, or equivalent code, frees between a forward pass and its backward pass.
//!
//! **Fix:** call `zero_grad()` before the forward pass, or right after `optimizer.step()`.
//!
//! **Figures** are simulated with gradients that end before the forward pass.

use super::rules::Evidence;
use super::variables::frame_of_function;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{Action, StackId};
use crate::replay::Instant;
use crate::simulation::changes::Lifetimes;

/// Findings for gradients that are freed after the start of a forward pass, if that pass starts after the optimizer
/// step and has a backward pass.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let (track, roles, phases) = (device.track, device.roles(), device.phases());
    if !phases.frees_tell {
        return Vec::new();
    }
    let mut lives = Lifetimes::default();
    // The bytes freed at once, what frees them, and what the forward pass starts with.
    let mut largest: (u64, StackId, StackId) = (0, StackId::EMPTY, StackId::EMPTY);
    // State since the last entry of a backward pass or of an optimizer.
    let mut forward: Option<Instant> = None;
    let mut dropped: Vec<u32> = Vec::new();
    let mut by = StackId::EMPTY;
    let (actions, stacks) = (track.actions(), track.stacks());
    for span in &phases.spans {
        for entry in span.start..span.end {
            // Without a forward pass before them, other entries do not matter.
            if forward.is_none() && span.phase != Phase::Forward {
                break;
            }
            let (action, stack) = (actions[entry as usize], stacks[entry as usize]);
            if action == Action::FreeRequested
                && let Some(&link) = track.history.links.get(entry as usize).filter(|_| forward.is_some())
                && drops(device, link, stack)
            {
                dropped.push(link);
                by = stack;
                continue;
            }
            match span.phase {
                Phase::Forward if action == Action::Alloc => {
                    let role = roles.role(stack);
                    // Another pass follows the frees: they were for an evaluation, or for an independent part of the
                    // program.
                    if !dropped.is_empty() && role == Role::Module {
                        (forward, dropped) = (Some(entry), Vec::new());
                    }
                    if role != Role::ZeroGrad {
                        forward.get_or_insert(entry);
                    }
                }
                Phase::Backward | Phase::Optimizer if roles.role(stack) != Role::ZeroGrad => {
                    let blocks = dropped.iter().filter_map(|&index| track.allocation(index as usize));
                    let bytes = blocks.map(|block| block.size).fold(0, u64::saturating_add);
                    if bytes > largest.0 {
                        largest = (bytes, by, forward.map_or(StackId::EMPTY, |entry| stacks[entry as usize]));
                    }
                    if let Some(forward) = forward.take() {
                        lives.freed.extend(dropped.drain(..).map(|index| (index, forward)));
                    }
                }
                _ => {}
            }
        }
    }
    let (bytes, stack, forward) = largest;
    if lives.is_empty() {
        return Vec::new();
    }
    let line = device.sites().site_frame(stack);
    let forward = line.and_then(|line| frame_of_function(device, forward, line));
    let forward = forward.and_then(|frame| device.snapshot().stacks.frame(frame));
    vec![Finding {
        kind: RuleKind::ZeroGradLate,
        line,
        evidence: format!(
            "{} of gradients from the previous step stay alive during the forward pass, because zero_grad comes after it",
            Bytes(bytes)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                "move zero_grad before the forward pass",
                ["optimizer.zero_grad(set_to_none=True)  # before the model is called"],
                lives,
            )
            .by(forward.map(|frame| Rewrite::MoveZeroGrad { before: frame.line })),
        ],
    }]
}

/// Whether gradients are freed: by `zero_grad`, or by equivalent code.
fn drops(device: &Device<'_>, allocation: u32, stack: StackId) -> bool {
    match device.roles().role(stack) {
        Role::ZeroGrad => true,
        Role::Plain => device.categories().get(allocation as usize).category == Category::Gradient,
        _ => false,
    }
}
