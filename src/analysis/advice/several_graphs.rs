//! The losses of several micro-batches are summed, and backward runs once for the sum: until then, the graphs of all micro-batches
//! are live at once.
//!
//! **Sign:** at least three calls of the model from one line, each with a loss of its own and a graph of the same size, that one
//! backward pass frees. No gradient flows from one graph to another: steps of a recurrent model, or views of a contrastive loss,
//! need all of their graphs.
//!
//! **Fix:** call `backward()` for the loss of each micro-batch; gradients add up, too.
//!
//! **Figures** are simulated with graphs that end with their losses, except for the last one, and with gradients that exist from
//! the first loss on.

use super::model_calls::{ModelCall, born_in};
use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::{Category, Role};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Instant};
use crate::simulation::changes::Lifetimes;
use std::collections::HashSet;
use std::ops::Range;

/// Least number of graphs of a pass: two may be those of a pair, which one loss compares.
const LEAST_GRAPHS: usize = 3;
/// Graphs of micro-batches differ by at most 1/N of the largest.
const PART_DIFFERENT: u64 = 50;

/// The calls whose graphs one backward pass frees, and these graphs.
struct Round<'c> {
    calls: &'c [ModelCall],
    pass: Range<Instant>,
    graphs: Vec<Vec<(u32, Allocation)>>,
}

/// One finding for all steps.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let of_passes: Vec<&[ModelCall]> = calls.all.split_inclusive(|call| call.backward.is_some()).collect();
    let rounds: Vec<Round<'_>> = of_passes.iter().filter_map(|calls| Round::of(device, calls)).collect();
    let passes = calls.all.iter().filter(|call| call.backward.is_some()).count();
    let Some(first) = rounds.first().filter(|_| rounds.len() * 2 > passes) else { return Vec::new() };
    let losses = Marked::of(device, |path, name, kind| {
        kind == FrameKind::Torch
            && path == "torch/nn/functional.py"
            && (name.ends_with("cross_entropy") || name.ends_with("_loss"))
    });
    let samples = Marked::of(device, |path, _, _| path.starts_with("torch/distributions/"));
    let sizes = [Category::Parameter, Category::Gradient].map(|category| device.allocations_of(category));
    let of_weights: HashSet<u64> = sizes.into_iter().flatten().map(|(_, made)| made.requested).collect();
    if !rounds.iter().all(|round| round.is_sum(device, &losses, &samples) && round.is_independent(device, &of_weights))
    {
        return Vec::new();
    }
    let mut lives = Lifetimes::default();
    for round in &rounds {
        let done = |graph: &[(u32, Allocation)]| graph.iter().map(|(_, made)| made.born).max().unwrap_or(0);
        for graph in &round.graphs[..round.graphs.len() - 1] {
            lives.freed.extend(graph.iter().map(|&(index, _)| (index, done(graph))));
        }
        let gradients = device.allocations_of(Category::Gradient);
        let of_pass = gradients.filter(|(_, made)| round.pass.contains(&made.born) && made.freed > round.pass.end);
        lives.made.extend(of_pass.map(|(index, _)| (index, done(&round.graphs[0]))));
    }
    let most = rounds.iter().flat_map(|round| &round.graphs).map(|graph| bytes(graph)).max().unwrap_or(0);
    vec![Finding {
        kind: RuleKind::SeveralGraphs,
        line: first.line(device),
        evidence: format!(
            "the graphs of {} micro-batches, {} each, are live at once: backward runs once for the sum of their losses",
            first.calls.len(),
            Bytes(most)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "call backward for the loss of each micro-batch instead of once for their sum",
            ["loss.backward()  # in the loop, instead of total = total + loss"],
            lives,
        )],
    }]
}

fn bytes(graph: &[(u32, Allocation)]) -> u64 {
    graph.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add)
}

impl<'c> Round<'c> {
    fn of(device: &Device<'_>, calls: &'c [ModelCall]) -> Option<Self> {
        let pass = calls.last()?.backward.clone()?;
        if calls.len() < LEAST_GRAPHS || calls.iter().any(|call| call.place != calls[0].place) {
            return None;
        }
        let graph = |call: &ModelCall| -> Vec<(u32, Allocation)> {
            let made = born_in(device, call.start, call.until.min(pass.start));
            made.filter(|(_, made)| pass.start < made.freed && made.freed <= pass.end).collect()
        };
        let graphs: Vec<Vec<(u32, Allocation)>> = calls.iter().map(graph).collect();
        let sizes = || graphs.iter().map(|graph| bytes(graph));
        let (least, most) = (sizes().min()?, sizes().max()?);
        (least > 0 && most - least <= most / PART_DIFFERENT).then_some(Self { calls, pass, graphs })
    }

    /// Whether each call has a loss of its own, and none is of a drawn sample.
    fn is_sum(&self, device: &Device<'_>, losses: &Marked, samples: &Marked) -> bool {
        let stack = |index: u32| device.track.stack_of(index as usize);
        let blocks = |call: &ModelCall| born_in(device, call.start, call.until.min(self.pass.start));
        let has_loss = |call: &ModelCall| blocks(call).any(|(index, _)| losses.has(stack(index)));
        let is_sampled = |call: &ModelCall| blocks(call).any(|(index, _)| samples.has(stack(index)));
        self.calls.iter().all(|call| has_loss(call) && !is_sampled(call))
    }

    /// Whether no gradient is computed in one graph for another: it would stay live from the end of the later one to the earlier one.
    fn is_independent(&self, device: &Device<'_>, of_weights: &HashSet<u64>) -> bool {
        self.graphs.windows(2).all(|pair| {
            let earlier = pair[0].iter().map(|(_, made)| made.freed).min().unwrap_or(0);
            let later = pair[1].iter().map(|(_, made)| made.freed).max().unwrap_or(0);
            let flows = |made: &Allocation| {
                made.requested > SCALAR
                    && made.freed > earlier
                    && made.freed <= self.pass.end
                    && !of_weights.contains(&made.requested)
            };
            !born_in(device, self.pass.start, later).any(|(_, made)| flows(&made))
        })
    }

    /// The line of the sum: the last one that makes a number behind each call.
    fn line(&self, device: &Device<'_>) -> Option<FrameId> {
        let numbers = |call: &ModelCall| -> Vec<FrameId> {
            let behind = born_in(device, call.end, call.until.min(self.pass.start));
            let stacks = behind.filter(|(_, made)| made.requested <= SCALAR).map(|(index, _)| index);
            let stacks = stacks.map(|index| device.track.stack_of(index as usize));
            let plain = stacks.filter(|&stack| device.roles().role(stack) == Role::Plain);
            plain
                .filter_map(|stack| device.sites().site_frame(stack).filter(|&line| device.sites().is_own(line)))
                .collect()
        };
        let (first, last) = (self.calls.first()?, self.calls.last()?);
        let of_first = numbers(first);
        numbers(last).into_iter().rfind(|line| of_first.contains(line)).or(Some(last.line))
    }
}
