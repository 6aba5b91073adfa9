//! **An activation function** could work in place: `x = F.relu(x)`. If the line that calls it releases the input as soon as the
//! result exists, neither backward nor a variable needs the input. The fix is `inplace=True`.

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, History, Metric};
use crate::simulation::changes::Lifetimes;
use std::collections::HashSet;

/// Functions of `torch.nn.functional` that allocate nothing when called with `inplace=True`.
const IN_PLACE: [&str; 11] =
    ["relu", "relu6", "leaky_relu", "elu", "celu", "selu", "silu", "mish", "hardtanh", "hardswish", "hardsigmoid"];
/// An input and its result are worth reporting from 1/N of the peak on.
const NOTABLE_PART: u64 = 32;
const NAMED: usize = 4;
/// Number of blocks that are examined to find the input: the most recent ones.
const LOOKED_AT: usize = 64;

/// One finding for all of them, at the line whose input and result are both live at the peak.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let activations = Marked::of(device, |path, name, _| path == "torch/nn/functional.py" && IN_PLACE.contains(&name));
    if !activations.any() {
        return Vec::new();
    }
    let history = device.history();
    let peak = history.maxima[Metric::Allocated as usize];
    let least = (u64::try_from(peak.bytes).unwrap_or(0) / NOTABLE_PART).max(1);
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for (result, made) in (0u32..).zip(&history.allocations) {
        if made.born == 0 || made.size < least || !activations.has(device.track.stack_of(result as usize)) {
            continue;
        }
        let Some(input) = input(device, result, made) else { continue };
        // Nobody applies an activation function to the result of another: that line frees an earlier value of a variable.
        if !activations.has(device.track.stack_of(input as usize)) {
            pairs.push((input, result));
        }
    }
    let block = |index: u32| history.allocations[index as usize];
    let is_at_peak = |&&(input, result): &&(u32, u32)| {
        block(input).allocated_at(peak.instant) && block(result).allocated_at(peak.instant)
    };
    let Some(&(_, named)) = pairs.iter().filter(is_at_peak).max_by_key(|&&(_, result)| block(result).size) else {
        return Vec::new();
    };
    let line = |result: u32| device.sites().site_frame(device.track.stack_of(result as usize));
    let lines: HashSet<Option<FrameId>> = pairs.iter().map(|&(_, result)| line(result)).collect();
    let others = lines.iter().flatten().filter(|&&frame| Some(frame) != line(named));
    let mut others: Vec<String> = others.map(|&frame| device.sites().label(frame)).collect();
    others.sort();
    let elsewhere = match &others[..] {
        [] => String::new(),
        few if few.len() <= NAMED => format!("; the savings include the same change at {}", few.join(", ")),
        many => format!("; the savings include the same change at {} other lines", many.len()),
    };
    let function = activations.frame(device.track.stack_of(named as usize));
    let function = function.and_then(|frame| device.snapshot().stacks.frame(frame));
    let function = function.map_or("", |frame| device.snapshot().strings.get(frame.name));
    vec![Finding {
        kind: RuleKind::Temporary,
        line: line(named),
        evidence: format!(
            "the input and the result of {function}, {} each, are both live at the peak; nothing needs the input afterwards{elsewhere}",
            Bytes(block(named).size)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                format!("call {function} with inplace=True"),
                [format!("x = F.{function}(x, inplace=True)  # a module takes inplace=True when it is created")],
                Lifetimes {
                    removed: pairs.iter().map(|&(_, result)| result).collect(),
                    freed: pairs
                        .iter()
                        .map(|&(input, result)| (input, block(result).freed.saturating_sub(1)))
                        .collect(),
                    ..Lifetimes::default()
                },
            )
            .by(others.is_empty().then(|| Rewrite::InPlace { function: function.to_owned() })),
        ],
    }]
}

/// The input of an activation function: the newest large block that is live, if it is as large as the result and the
/// line that calls the function releases it before anything else is allocated.
fn input(device: &Device<'_>, result: u32, made: &Allocation) -> Option<u32> {
    let (history, stacks) = (device.history(), &device.snapshot().stacks);
    let earlier = (0..result).rev().take(LOOKED_AT).map(|index| (index, history.allocations[index as usize]));
    let mut alive = earlier.filter(|(_, earlier)| earlier.freed > made.born);
    let (input, gone) = alive.find(|(_, earlier)| earlier.size >= made.size / 2)?;
    let next = history.allocations.get(result as usize + 1).map_or(history.entries(), |next| next.born);
    let frames = |stack| stacks.frame_ids(stack).iter().copied();
    let of_result = device.track.stack_of(result as usize);
    let is_candidate = gone.born > 0 && gone.requested == made.requested && gone.freed <= next;
    let entry = History::entry_before(gone.freed).filter(|&entry| is_candidate && entry < history.entries())?;
    let by = frames(device.track.stack(entry)).find(|&frame| device.sites().kind(frame).is_python())?;
    frames(of_result).any(|frame| frame == by).then_some(input)
}
