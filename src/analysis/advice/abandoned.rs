//! A step that ended before its backward pass leaves its graph live: the program skipped a batch, or an exception ended the step.
//!
//! **Sign:** at most a third of the calls of the model from a line have no backward pass and keep most of what they make, which
//! is still live when the call after the next one begins. A variable would hold it until the next call has returned.
//!
//! **Fix:** keep the text of an exception that was caught, not the exception, whose traceback keeps all local variables; keep
//! numbers, not tensors, of a batch that was skipped. A recording with holders names what keeps the graph (rule `held`).
//!
//! **Figures** are simulated with graphs that end with the last block that their step makes.

use super::kept_over_steps::{Kept, inputs, is_of_forward, notable};
use super::model_calls::{ModelCall, born_in};
use super::retained::keeps_most;
use super::rules::Evidence;
use super::stacks::may_be_workspace;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::model::bytes::Bytes;
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;

/// At most 1/N of the calls leave a graph without a backward pass: otherwise, the line evaluates or samples as well.
const PART_ABANDONED: usize = 3;

/// One finding for each line that calls a model, at most.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if device.held().is_some() || !device.phases().frees_tell {
        return Vec::new();
    }
    calls.by_place().into_iter().filter_map(|of_line| of_line_that_calls(device, &of_line)).collect()
}

fn of_line_that_calls(device: &Device<'_>, of_line: &[&ModelCall]) -> Option<Finding> {
    let mut lives = Lifetimes::default();
    let mut places = Vec::new();
    let mut most = 0;
    for (place, pair) in of_line.windows(2).enumerate().filter(|(_, pair)| !pair[0].is_trained(device)) {
        let (call, next) = (pair[0], pair[1]);
        let is_of_graph = |&(index, made): &(u32, Allocation)| {
            made.freed > next.until && is_of_forward(device, index, &made) && !may_be_workspace(device, index, &made)
        };
        let blocks = born_in(device, call.start, call.until.min(next.start)).filter(is_of_graph).collect();
        let kept = Kept { call, blocks };
        if kept.bytes() < notable(device) || !keeps_most(device, &kept) {
            continue;
        }
        let done = kept.blocks.iter().map(|(_, made)| made.born).max()?;
        lives.freed.extend(kept.blocks.iter().map(|&(index, _)| (index, done)));
        places.push(place);
        most = most.max(kept.bytes());
    }
    let (count, all) = (places.len(), of_line.len());
    if count == 0 || count * PART_ABANDONED > all {
        return None;
    }
    // What keeps the graph keeps the batch.
    let inputs = inputs(device, of_line).into_iter().filter(|(place, ..)| places.contains(place));
    lives.freed.extend(inputs.map(|(_, index, again)| (index, again)));
    lives.freed.sort_unstable();
    lives.freed.dedup_by_key(|(index, _)| *index);
    Some(Finding {
        kind: RuleKind::RetainedGraph,
        line: of_line.first().map(|call| call.line),
        evidence: format!(
            "{count} of {all} steps ended before their backward pass, and their graphs, up to {} each, stay alive: something \
             stores a tensor of the step, or the exception that ended it",
            Bytes(most)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "keep no exception, and no tensor, of a step that ended before backward",
            ["failures.append(repr(error))  # not the error: its traceback keeps all local variables"],
            lives,
        )],
    })
}
