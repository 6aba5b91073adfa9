//! What a call of a model returns and a variable holds through backward and the next forward pass, until the line runs again.
//!
//! The loss needs it, and whatever backward needs of it autograd keeps by itself. It shows as what the loss is made of by its
//! gradient, which is among the first that backward makes and has its size.

use super::model_calls::{ModelCall, ModelCalls, born_in};
use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::play::changes::Lives;
use crate::replay::{Allocation, History, Instant, Metric};

/// What is kept is worth a word from one part of the peak in so many on.
const NOTABLE_PART: u64 = 100;
/// Gradients of notable size that backward makes first.
const FIRST_GRADIENTS: usize = 2;

/// One finding for the line that holds most.
pub(super) fn find(device: &Device<'_>, calls: &ModelCalls) -> Vec<Finding> {
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let findings = calls.by_place().into_iter().filter_map(|of_line| finding(device, &of_line));
    findings.collect()
}

fn finding(device: &Device<'_>, of_line: &[&ModelCall]) -> Option<Finding> {
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let least = (peak / NOTABLE_PART).max(1);
    let mut lives = Lives::default();
    let (mut bytes, mut line) = (0, None);
    let trained: Vec<&ModelCall> = of_line.iter().copied().filter(|call| call.backward.is_some()).collect();
    for pair in trained.windows(2) {
        let (Some(backward), Some(next)) = (&pair[0].backward, &pair[1].backward) else { continue };
        for (index, made) in born_in(device, pair[0].start, pair[0].end) {
            if made.size < least || made.freed <= pair[0].until || made.freed > next.start {
                continue;
            }
            let Some(holder) = let_go_by(device, &made) else { continue };
            if !is_loss_input(device, &made, backward.start, least) {
                continue;
            }
            let at = if is_taken_by_log_softmax(device, index, &made, backward.start) {
                backward.start
            } else {
                behind_first_gradient(device, &made, backward.start)
            };
            lives.freed.push((index, at));
            if made.size > bytes {
                (bytes, line) = (made.size, Some(holder));
            }
        }
    }
    // A single time may be the end of a loop.
    if lives.freed.len() < 2 {
        return None;
    }
    Some(Finding {
        story: Story::KeptOutputs,
        line,
        cure: "delete what the model returns once the loss is taken".to_owned(),
        evidence: format!("{} of it are held through backward and the whole next forward pass", Bytes(bytes)),
        cost: None,
        code: vec!["del outputs  # before loss.backward()".to_owned()],
        remedy: Remedy::Lives(lives),
    })
}

/// The line of the user's own that lets go of a block, if plain code does: binding a variable anew.
fn let_go_by(device: &Device<'_>, made: &Allocation) -> Option<FrameId> {
    let stack = device.track.stack(History::entry_before(made.freed)?);
    let is_plain = device.roles().role(stack) == Role::Plain && stack != StackId::EMPTY;
    device.sites().site_frame(stack).filter(|&frame| is_plain && device.sites().is_own(frame))
}

/// Blocks of notable size that a backward pass makes first.
fn first_gradients<'d>(device: &'d Device<'_>, backward: Instant, least: u64) -> impl Iterator<Item = Allocation> + 'd {
    let made = born_in(device, backward, device.history().entries()).map(|(_, made)| made);
    let own = made.take_while(|made| device.phases().at(made.born) == Phase::Backward);
    own.filter(move |made| made.size >= least).take(FIRST_GRADIENTS)
}

fn is_loss_input(device: &Device<'_>, made: &Allocation, backward: Instant, least: u64) -> bool {
    first_gradients(device, backward, least).any(|gradient| gradient.requested == made.requested)
}

/// Whether the loss is taken by way of `log_softmax`, whose backward needs its result and not what it was given.
fn is_taken_by_log_softmax(device: &Device<'_>, index: u32, made: &Allocation, backward: Instant) -> bool {
    let snapshot = device.snapshot();
    let is_log_softmax = |stack: StackId| {
        snapshot.stacks.frames(stack).any(|frame| {
            let name = snapshot.strings.get(frame.name);
            matches!(name, "cross_entropy" | "log_softmax")
                && snapshot.strings.get(frame.filename).replace('\\', "/").ends_with("torch/nn/functional.py")
        })
    };
    born_in(device, made.born, backward).any(|(other, later)| {
        other != index && later.requested >= made.requested && is_log_softmax(device.track.stack_of(other as usize))
    })
}

/// The instant at which the node is done that makes the gradient of a block.
fn behind_first_gradient(device: &Device<'_>, made: &Allocation, backward: Instant) -> Instant {
    let gradient = first_gradients(device, backward, made.size).find(|gradient| gradient.requested == made.requested);
    gradient.map_or(backward, |gradient| gradient.born)
}
