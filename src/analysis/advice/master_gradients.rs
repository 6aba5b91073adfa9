//! The program copies gradients for its optimizer, such as to float32, and keeps the copies through the next forward and backward pass,
//! until the same line replaces them.
//!
//! **Sign:** blocks of the sizes of optimizer states that plain code makes between a backward pass and an optimizer step; the line that
//! makes them frees each in the next step, after the next backward pass.
//!
//! **Fix:** set these gradients to `None` right after `optimizer.step()`.
//!
//! **Figures** are simulated with copies that end with the optimizer step.

use super::held::most_at_once;
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, PhaseSpan, Role};
use crate::model::FrameId;
use crate::replay::{Allocation, History, Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::HashSet;

/// Least number of copies that a line makes for one step of the optimizer.
const LEAST_COPIES: usize = 4;
/// Copies are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 50;

/// One finding for each line.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let of_phase = |phase: Phase| device.phases().spans.iter().filter(move |span| span.phase == phase);
    let (passes, steps): (Vec<&PhaseSpan>, Vec<&PhaseSpan>) =
        (of_phase(Phase::Backward).collect(), of_phase(Phase::Optimizer).collect());
    let states: HashSet<u64> =
        device.allocations_of(Category::OptimizerState).map(|(_, made)| made.requested).collect();
    let mut of_line: IndexMap<FrameId, Vec<(u32, Allocation, Instant)>> = IndexMap::new();
    for (index, made) in (0..).zip(device.history().allocations.iter().copied()) {
        if made.requested <= SCALAR || made.freed == NEVER || !states.contains(&made.requested) {
            continue;
        }
        let Some(step) = steps.get(steps.partition_point(|step| step.end < made.born)) else { continue };
        let next = passes.partition_point(|pass| pass.start < made.born);
        let is_unread = passes.get(next).is_some_and(|pass| step.end <= pass.start && pass.end <= made.freed)
            && passes.get(next + 1).is_none_or(|pass| made.freed <= pass.start);
        let is_after_pass = next > 0 && passes[next - 1].end <= made.born;
        if let Some(line) = replaced_at(device, index, &made).filter(|_| is_unread && is_after_pass) {
            of_line.entry(line).or_default().push((index, made, step.end));
        }
    }
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let found = of_line.into_iter().filter_map(|(line, copies)| {
        let most = most_at_once(copies.iter().map(|(_, made, _)| made));
        // A single block of such a size is an input, as large as a weight by chance.
        let is_of_step = copies.chunk_by(|one, next| one.2 == next.2).any(|copies| copies.len() >= LEAST_COPIES);
        (is_of_step && most.0 >= peak / NOTABLE_PART).then(|| Finding {
            kind: RuleKind::ZeroGradLate,
            line: Some(line),
            evidence: format!(
                "{most} of gradients that are copied here stay alive through the next forward and backward pass, until this line \
                 replaces them"
            ),
            cost: None,
            fixes: vec![Fix::new(
                "set the copied gradients to None after the optimizer step",
                ["optimizer.zero_grad(set_to_none=True)  # right after optimizer.step()"],
                Lifetimes { freed: copies.iter().map(|&(index, _, end)| (index, end)).collect(), ..Lifetimes::default() },
            )],
        })
    });
    found.collect()
}

/// The line of the program that makes a block and frees it, both in plain code.
fn replaced_at(device: &Device<'_>, index: u32, made: &Allocation) -> Option<FrameId> {
    let (by, freed) = (device.track.stack_of(index as usize), device.track.stack(History::entry_before(made.freed)?));
    let is_plain = device.roles().role(by) == Role::Plain && device.roles().role(freed) == Role::Plain;
    let line = device.sites().site_frame(by).filter(|&line| device.sites().is_own(line) && is_plain)?;
    (device.sites().site_frame(freed) == Some(line)).then_some(line)
}
