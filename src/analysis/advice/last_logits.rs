//! The model computes the logits of all tokens of a prompt, of which the program reads only those of the last one.
//!
//! **Sign:** the largest block of a call is its output, at least four times as large as any other; the program's next block is a
//! whole number of times smaller, and nothing else of a comparable size is made while the output lives. No backward pass follows.
//!
//! **Fix:** compute the last layer for the last token: `logits_to_keep=1` in transformers.
//!
//! **Figures** are simulated with an output of the size that is read.

use super::model_calls::{ModelCall, born_in};
use super::rules::Evidence;
use super::stacks::{calls_transformers, may_be_workspace};
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Role};
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;

/// The output is at least N times as large as what else the call makes: a hidden state is as large as others.
const TIMES_OTHERS: u64 = 4;
/// Least number of tokens of the prompt.
const LEAST_TOKENS: u64 = 16;
/// Least size of the logits of a token, in bytes: a mean or a loss is smaller.
const LEAST_READ: u64 = 2048;
/// How many entries before a call may be those of its inputs and targets.
const LOOKED_AT: u32 = 512;
/// Outputs are reported from 1/N of the peak on.
const PART_OF_PEAK: u64 = 20;

/// The logits of one call.
struct Logits {
    /// The output and its casts.
    blocks: Vec<(u32, Allocation)>,
    largest: u64,
    read: u64,
}

/// One finding for each line that calls the model.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let mut of_line: IndexMap<_, Vec<Logits>> = IndexMap::new();
    for call in calls.all.iter().filter(|call| !call.is_trained(device)) {
        if let Some(logits) = Logits::of(device, call).filter(|logits| logits.largest >= peak / PART_OF_PEAK) {
            of_line.entry(call.line).or_default().push(logits);
        }
    }
    let found = of_line.into_iter().filter_map(|(line, all)| {
        let most = all.iter().max_by_key(|logits| logits.largest)?;
        let stack = |index: u32| device.track.stack_of(index as usize);
        let of_transformers =
            most.blocks.first().is_some_and(|&(index, _)| calls_transformers(device, stack(index), line));
        let resized = all.iter().flat_map(|logits| logits.blocks.iter().map(|&(index, _)| (index, logits.read)));
        Some(Finding {
            kind: RuleKind::LastLogits,
            line: Some(line),
            evidence: format!(
                "each call makes {} of logits for all tokens, and the program reads {} of them",
                Bytes(most.largest),
                Bytes(most.read)
            ),
            cost: None,
            fixes: vec![
                Fix::new(
                    "compute the logits of the last token alone",
                    ["model(..., logits_to_keep=1)  # in a model of your own: lm_head(hidden[:, -1:])"],
                    Lifetimes { resized: resized.collect(), ..Lifetimes::default() },
                )
                .by(of_transformers.then_some(Rewrite::Argument("logits_to_keep=1"))),
            ],
        })
    });
    found.collect()
}

impl Logits {
    fn of(device: &Device<'_>, call: &ModelCall) -> Option<Self> {
        let is_other = |&(index, made): &(u32, Allocation)| {
            device.categories().get(index as usize).category == Category::KvCache
                || may_be_workspace(device, index, &made)
        };
        let made: Vec<(u32, Allocation)> =
            born_in(device, call.start, call.end).filter(|block| !is_other(block)).collect();
        let &(_, output) = made.iter().rfind(|(_, made)| made.freed > call.end && made.freed != NEVER)?;
        // The output may be cast to float32.
        let is_output = |other: u64| [other, other * 2].contains(&output.requested) || other == output.requested * 2;
        let (blocks, others): (Vec<_>, Vec<_>) = made.iter().partition(|(_, made)| is_output(made.requested));
        let is_smaller =
            |(_, other): &(u32, Allocation)| other.requested.saturating_mul(TIMES_OTHERS) <= output.requested;
        let next = born_in(device, call.end, output.freed)
            .find(|&(index, _)| device.roles().role(device.track.stack_of(index as usize)) == Role::Plain);
        let read = next?.1.requested;
        let twice = output.requested.checked_mul(2)?;
        let is_of_token = read >= LEAST_READ && twice.is_multiple_of(read) && twice / read >= 2 * LEAST_TOKENS;
        // Indices or losses of all tokens, such as of an argmax: as many as tokens of an input or targets.
        let mut before = born_in(device, call.start.saturating_sub(LOOKED_AT), output.freed);
        let of_tokens = |(index, made): (u32, Allocation)| {
            let is_plain = device.roles().role(device.track.stack_of(index as usize)) == Role::Plain;
            is_plain && made.born < output.born && made.freed > call.end && [read, read * 2].contains(&made.requested)
        };
        if before.any(of_tokens) {
            return None;
        }
        let is_read_once = born_in(device, call.end, output.freed).all(|block| is_smaller(&block));
        (is_of_token && is_read_once && others.iter().all(is_smaller)).then_some(Self {
            blocks,
            largest: output.requested,
            read,
        })
    }
}
