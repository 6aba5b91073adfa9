//! Gradients of the last training step stay live through an evaluation, which does not need them.
//!
//! **Sign:** gradients that are live before the first call of an evaluation and after the last. A model that is called in most
//! steps, such as a teacher, is part of the step and no evaluation.
//!
//! **Fix:** call `optimizer.zero_grad()` before the evaluation instead of after it.
//!
//! **Figures** are simulated with gradients that end before the evaluation; the next step allocates them again.

use super::gradients_anew::Drops;
use super::kept_over_steps::backward_line;
use super::model_calls::ModelCall;
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, PlaceId, Role};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, History, Instant, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::HashMap;

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let trained: Vec<bool> = calls.all.iter().map(|call| call.is_trained(device)).collect();
    let mut training: HashMap<PlaceId, usize> = HashMap::new();
    for (call, _) in calls.all.iter().zip(&trained).filter(|(_, trained)| **trained) {
        *training.entry(call.place).or_default() += 1;
    }
    // A step may train several models, and call some of them several times.
    let steps = training.values().copied().min().unwrap_or_default();
    // Consecutive calls without a backward pass, from lines that do not train.
    let is_other = |call: &ModelCall| !training.contains_key(&call.place);
    let evaluations: Vec<&[ModelCall]> = calls.all.chunk_by(|one, other| is_other(one) == is_other(other)).collect();
    let evaluations: Vec<&[ModelCall]> = evaluations.into_iter().filter(|run| is_other(&run[0])).collect();
    // A model that is called in every step, such as a teacher, is part of the step.
    if evaluations.is_empty() || evaluations.len() * 2 > steps {
        return Vec::new();
    }
    let gradients: Vec<(u32, Allocation)> =
        device.allocations_of(Category::Gradient).map(|(index, block)| (index, *block)).collect();
    let (mut most, mut line) = (0, None);
    let mut kept: HashMap<u32, Allocation> = HashMap::new();
    for evaluation in &evaluations {
        let (start, end) = span(evaluation);
        let is_through = |(_, gradient): &&(u32, Allocation)| gradient.born <= start && gradient.freed >= end;
        let through: Vec<(u32, Allocation)> = gradients.iter().filter(is_through).copied().collect();
        let bytes = through.iter().map(|(_, gradient)| gradient.size).fold(0, u64::saturating_add);
        if bytes > most {
            most = bytes;
            let before = calls.all.iter().rev().find(|call| call.start < start && call.backward.is_some());
            let freed = through.iter().map(|(_, gradient)| gradient.freed).find(|&freed| freed != NEVER);
            // The line that frees them belongs to the next step, which the evaluation does not call.
            let allocated = before.and_then(|call| backward_line(device, call));
            line = allocated.or_else(|| zero_grad_line(device, freed?));
        }
        kept.extend(through);
    }
    if kept.is_empty() {
        return Vec::new();
    }
    let mut kept: Vec<(u32, Allocation)> = kept.into_iter().collect();
    kept.sort_unstable_by_key(|&(index, _)| index);
    let evaluations = evaluations.iter().map(|evaluation| span(evaluation).0);
    let steps = calls.all.iter().zip(&trained).filter(|(_, trained)| **trained).map(|(call, _)| call.start);
    let drops = Drops { evaluations: evaluations.collect(), steps: steps.collect() };
    let mut lives = Lifetimes { freed: drops.freed(device, calls, &kept), ..Lifetimes::default() };
    lives.freed.sort_unstable();
    vec![Finding {
        kind: RuleKind::GradsKept,
        line,
        evidence: format!("{} of gradients stay alive during the evaluation, which does not use them", Bytes(most)),
        cost: None,
        fixes: vec![Fix::new(
            "free the gradients before the evaluation",
            ["optimizer.zero_grad(set_to_none=True)  # after the last training step"],
            lives,
        )],
    }]
}

/// The instants at which the first of these calls starts and the last one ends.
fn span(calls: &[ModelCall]) -> (Instant, Instant) {
    (calls[0].start, calls[calls.len() - 1].end)
}

fn zero_grad_line(device: &Device<'_>, freed: u32) -> Option<FrameId> {
    let stack = device.track.stack(History::entry_before(freed)?);
    let is_it = device.phases().frees_tell && device.roles().role(stack) == Role::ZeroGrad;
    device.sites().site_frame(stack).filter(|_| is_it)
}
