//! A backward pass goes through two models, of which an optimizer has one: the other one, such as the reference of DPO or a teacher,
//! is called with gradients enabled.
//!
//! **Sign:** each backward pass covers two calls; the gradients of one of them stay from the first step on, while each step frees
//! those of the other, and no gradient flows from one to the other.
//!
//! **Fix:** call that model under `torch.no_grad()`.
//!
//! **Figures** are simulated with blocks of that call that end when the module that makes them has returned, and without what
//! backward computes for it.

use super::model_calls::{ModelCall, born_in};
use super::rules::Evidence;
use super::without_backward::{callers, lives};
use super::{Finding, Fix, Rewrite, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::model::holders::HolderKind;
use crate::replay::{Allocation, Instant, NEVER};
use std::ops::Range;

/// Least number of steps after which a gradient that was never freed has no optimizer.
const LEAST_STEPS: usize = 2;

/// Calls that one backward pass covers.
struct Round<'c> {
    calls: &'c [ModelCall],
    pass: Range<Instant>,
}

type Block = (u32, Allocation);

/// At most one finding.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let of_passes = calls.all.split_inclusive(|call| call.backward.is_some());
    let rounds: Vec<Round<'_>> =
        of_passes.filter_map(|calls| Some(Round { calls, pass: calls.last()?.backward.clone()? })).collect();
    let Some(first) = rounds.first().filter(|_| rounds.len() >= LEAST_STEPS) else { return Vec::new() };
    if rounds.iter().any(|round| round.calls.len() != 2) {
        return Vec::new();
    }
    let Some((place, unused)) = first.unused(device, &rounds) else { return Vec::new() };
    let frozen: Vec<&ModelCall> = rounds.iter().map(|round| &round.calls[place]).collect();
    let mut lives = lives(device, calls, &frozen);
    // What follows the loss is not of this call, though no other one lies in between.
    let is_of_call =
        |born: Instant| frozen.iter().zip(&rounds).any(|(call, round)| call.start < born && born <= round.pass.start);
    lives.freed.retain(|&(index, _)| device.track.allocation(index as usize).is_some_and(|made| is_of_call(made.born)));
    for round in &rounds {
        let work = round.work(device, &round.calls[place]);
        let of_work = born_in(device, work.start, work.end).filter(|(_, made)| made.freed <= work.end);
        lives.removed.extend(of_work.map(|(index, _)| index));
    }
    lives.removed.extend(unused.iter().map(|&(index, _)| index));
    lives.removed.sort_unstable();
    lives.removed.dedup();
    // What a function has computed from the output lives as long as before.
    lives.at_least = true;
    let bytes = unused.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    let subject = match name(device, &unused) {
        Some(name) => format!("no optimizer updates {name}"),
        None => "no optimizer updates one of two models".to_owned(),
    };
    vec![Finding {
        kind: RuleKind::OptimizerStatesOfFrozen,
        line: Some(first.line(device, place)),
        evidence: format!(
            "{subject}: {} of its gradients stay from the first step on, and it keeps a graph in each step",
            Bytes(bytes)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                "call the model that is not trained under torch.no_grad()",
                ["with torch.no_grad():  # around this call; and model.requires_grad_(False)"],
                lives,
            )
            .by(Rewrite::NoGrad),
        ],
    }]
}

/// The variable that holds the model of these gradients, if the recording says so.
fn name<'d>(device: &'d Device<'_>, gradients: &[Block]) -> Option<&'d str> {
    let held = device.held()?;
    let mut holders = gradients.iter().flat_map(|&(index, _)| held.all_of(index as usize));
    holders.find(|holder| holder.kind == HolderKind::Gradient && !holder.library).map(|holder| holder.variable.as_str())
}

impl Round<'_> {
    /// The place of the call whose gradients stay, with these.
    fn unused(&self, device: &Device<'_>, rounds: &[Self]) -> Option<(usize, Vec<Block>)> {
        let (next, last) = (rounds.get(1)?.pass.start, rounds.last()?.pass.end);
        let is_gradient = |&(index, made): &Block| {
            made.requested > SCALAR
                && made.freed > self.pass.end
                && device.categories().get(index as usize).category == Category::Gradient
        };
        let all: Vec<Block> = born_in(device, self.pass.start, self.pass.end).filter(is_gradient).collect();
        let (unused, used): (Vec<Block>, Vec<Block>) = all.iter().partition(|(_, made)| made.freed > last);
        let (first, end) = (unused.first()?.1.born, unused.last()?.1.born);
        // The pass goes through the later call first.
        let is_of_later = used.first()?.1.born > end;
        let is_separate = is_of_later || used.last()?.1.born < first;
        let is_cleared = used.iter().all(|(_, made)| made.freed != NEVER && made.freed <= next);
        let place = usize::from(is_of_later);
        // A model may be trained through another one that is not.
        let is_needed = is_of_later && self.flows(device, &all, end);
        (is_separate && is_cleared && !is_needed).then_some((place, unused))
    }

    /// When backward goes through a call.
    fn work(&self, device: &Device<'_>, call: &ModelCall) -> Range<Instant> {
        let is_freed = |made: &Allocation| self.pass.start < made.freed && made.freed <= self.pass.end;
        let freed =
            || born_in(device, call.start, call.end).map(|(_, made)| made).filter(is_freed).map(|made| made.freed);
        freed().min().unwrap_or(0)..freed().max().unwrap_or(0)
    }

    /// Whether the graph of the later call, whose last gradient is made at an instant, computes a gradient for the earlier one.
    fn flows(&self, device: &Device<'_>, gradients: &[Block], end: Instant) -> bool {
        let start = self.work(device, &self.calls[1]).start;
        let first = gradients.iter().map(|(_, made)| made.born).find(|&born| born > end).unwrap_or(NEVER);
        let is_gradient = |index: u32| gradients.iter().any(|&(gradient, _)| gradient == index);
        born_in(device, start, end).any(|(index, made)| {
            made.requested > SCALAR && (first..=self.pass.end).contains(&made.freed) && !is_gradient(index)
        })
    }

    /// The line of the program that leads to one of the two calls alone.
    fn line(&self, device: &Device<'_>, place: usize) -> FrameId {
        let other = callers(device, &self.calls[1 - place]);
        let is_alone = |frame: &&FrameId| device.sites().is_own(**frame) && !other.contains(frame);
        callers(device, &self.calls[place]).iter().find(is_alone).copied().unwrap_or(self.calls[place].line)
    }
}
