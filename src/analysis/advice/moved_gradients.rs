//! Gradients that `Module.to` moves to the device together with the weights, although neither backward nor an optimizer follows.
//!
//! **Sign:** `Module.to` allocates a second block of the same size right after that of each weight, from another line of `_apply`, and
//! frees it before the next backward pass or optimizer step.
//!
//! **Fix:** set the gradients to None before the model is moved.
//!
//! **Figures** are simulated without these blocks.

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, RuleKind};
use crate::facts::training::Phase;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::HashSet;

struct Moved {
    index: u32,
    made: Allocation,
    stack: StackId,
    /// The line of `_apply`.
    line: FrameId,
}

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let applies = Marked::of(device, |path, name, _| path == "torch/nn/modules/module.py" && name == "_apply");
    if !applies.any() {
        return Vec::new();
    }
    let by_move = device.allocations_by(|stack| device.roles().moves_module(stack));
    let moved = by_move
        .filter_map(|(index, made, stack)| Some(Moved { index, made: *made, stack, line: applies.frame(stack)? }));
    let moved: Vec<Moved> = moved.collect();
    let number = |frame: FrameId| device.snapshot().stacks.frame(frame).map_or(0, |frame| frame.line);
    let is_gradient = |before: Option<&Moved>, it: &Moved| {
        before.is_some_and(|weight| weight.made.requested == it.made.requested && number(weight.line) < number(it.line))
    };
    let before = || std::iter::once(None).chain(moved.iter().map(Some));
    // Buffers are moved from a line of their own, too, but not in turn with weights.
    let mut weights: HashSet<FrameId> = HashSet::new();
    weights.extend(before().zip(&moved).filter(|(before, it)| !is_gradient(*before, it)).map(|(_, it)| it.line));

    let spans = &device.phases().spans;
    let is_needed = |made: &Allocation| {
        let from = spans.partition_point(|span| span.end <= made.born);
        let during = spans.get(from..).unwrap_or_default().iter().take_while(|span| span.start < made.freed);
        during.into_iter().any(|span| matches!(span.phase, Phase::Backward | Phase::Optimizer))
    };
    let mut of_line: IndexMap<FrameId, Vec<&Moved>> = IndexMap::new();
    for it in moved.iter().filter(|it| !weights.contains(&it.line) && !is_needed(&it.made)) {
        if let Some(line) = device.sites().site_frame(it.stack) {
            of_line.entry(line).or_default().push(it);
        }
    }
    let finding = |(line, gradients): (FrameId, Vec<&Moved>)| {
        let bytes = gradients.iter().map(|it| it.made.size).fold(0, u64::saturating_add);
        Finding {
            kind: RuleKind::GradsKept,
            line: Some(line),
            evidence: format!(
                "this line moves gradients to the device with the weights, {} in all, and no backward pass or optimizer step follows before \
                 they are freed",
                Bytes(bytes)
            ),
            cost: None,
            fixes: vec![Fix::new(
                "set the gradients to None before the model is moved here",
                ["optimizer.zero_grad(set_to_none=True)  # before model.to(...), which also moves gradients"],
                Lifetimes { removed: gradients.iter().map(|it| it.index).collect(), ..Lifetimes::default() },
            )],
        }
    };
    of_line.into_iter().map(finding).collect()
}
