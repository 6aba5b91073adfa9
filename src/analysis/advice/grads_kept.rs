//! Gradients that live on through an evaluation, which has no use for them.

use super::kept_over_steps::backward_line;
use super::model_calls::{ModelCall, ModelCalls};
use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::{Category, Role};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::play::changes::Lives;
use crate::replay::{Allocation, History, NEVER};
use std::collections::HashSet;

/// One finding for all evaluations of a recording.
pub(super) fn find(device: &Device<'_>, calls: &ModelCalls) -> Vec<Finding> {
    let trained: Vec<bool> = calls.all.iter().map(|call| call.is_trained(device)).collect();
    let steps = trained.iter().filter(|trained| **trained).count();
    let training: HashSet<_> =
        calls.all.iter().zip(&trained).filter(|(_, trained)| **trained).map(|(call, _)| call.place).collect();
    // Calls one after another that no backward pass goes through, from lines that do not train.
    let is_other = |call: &ModelCall| !training.contains(&call.place);
    let evaluations: Vec<&[ModelCall]> = calls.all.chunk_by(|one, other| is_other(one) == is_other(other)).collect();
    let evaluations: Vec<&[ModelCall]> = evaluations.into_iter().filter(|run| is_other(&run[0])).collect();
    // What runs in every step is a part of it, such as a teacher.
    if steps == 0 || evaluations.len() * 2 > steps {
        return Vec::new();
    }
    let mut gradients: Vec<(u32, Allocation)> = (0u32..)
        .zip(device.history().allocations.iter().copied())
        .filter(|&(index, _)| device.categories().get(index as usize).category == Category::Gradient)
        .collect();
    let mut lives = Lives::default();
    let (mut most, mut line) = (0, None);
    for evaluation in evaluations {
        let (start, end) = (evaluation[0].start, evaluation[evaluation.len() - 1].end);
        let is_through = |(_, gradient): &(u32, Allocation)| gradient.born <= start && gradient.freed >= end;
        let (through, others): (Vec<_>, Vec<_>) = gradients.iter().copied().partition(is_through);
        let bytes = through.iter().map(|(_, gradient)| gradient.size).fold(0, u64::saturating_add);
        if through.is_empty() {
            continue;
        }
        if bytes > most {
            most = bytes;
            let before = calls.all.iter().rev().find(|call| call.start < start && call.backward.is_some());
            let freed = through.iter().map(|(_, gradient)| gradient.freed).find(|&freed| freed != NEVER);
            line = freed.and_then(|freed| zero_grad_line(device, freed)).or_else(|| backward_line(device, before?));
        }
        lives.freed.extend(through.iter().map(|&(index, _)| (index, start)));
        gradients = others;
    }
    if lives.is_empty() {
        return Vec::new();
    }
    lives.freed.sort_unstable();
    vec![Finding {
        story: Story::GradsKept,
        line,
        cure: "free the gradients before the evaluation".to_owned(),
        evidence: format!("{} of gradients stay alive during the evaluation, which does not use them", Bytes(most)),
        cost: None,
        code: vec!["optimizer.zero_grad(set_to_none=True)  # after the last training step".to_owned()],
        remedy: Remedy::Lives(lives),
    }]
}

fn zero_grad_line(device: &Device<'_>, freed: u32) -> Option<FrameId> {
    let stack = device.track.stack(History::entry_before(freed)?);
    let is_it = device.phases().frees_tell && device.roles().role(stack) == Role::ZeroGrad;
    device.sites().site_frame(stack).filter(|_| is_it)
}
