//! By default, an optimizer computes the update of all parameters at once (`foreach=True`), with temporary tensors for all of
//! them.
//!
//! **Sign:** functions `_multi_tensor_NAME` of `torch.optim` allocate a list of blocks, one for each parameter, that is live at
//! the peak. Functions for a single tensor allocate one block at a time; fused kernels allocate none.
//!
//! **Fix:** `fused=True` where the optimizer has it, otherwise `foreach=False`.
//!
//! **Figures** are simulated without the temporaries, or with those of one parameter at a time.

use super::rules::Evidence;
use super::stacks::Marked;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::BTreeMap;

/// Optimizers of `torch.optim` that have a fused implementation for CUDA; that of `Adagrad` runs on the CPU only.
const FUSED: [&str; 3] = ["_multi_tensor_adam", "_multi_tensor_adamw", "_multi_tensor_sgd"];
/// How many temporaries the single-tensor function (`_single_tensor_NAME`) holds at once for one parameter: the least, and the most,
/// with weight decay and other options, and with one that a variable still holds for the previous parameter.
const AT_ONCE: [(&str, [u64; 2]); 9] = [
    ("adadelta", [2, 3]),
    ("adafactor", [2, 5]),
    ("adagrad", [1, 2]),
    ("adamax", [1, 2]),
    ("asgd", [1, 2]),
    ("nadam", [2, 3]),
    ("radam", [3, 5]),
    ("rmsprop", [1, 2]),
    ("rprop", [2, 3]),
];
/// The same for other optimizers.
const OF_OTHERS: [u64; 2] = [1, 6];
/// Smaller amounts are not worth reporting.
const SMALL: u64 = 8 << 20;

/// One finding for each line that calls `step` of such an optimizer.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let marked = Marked::of(device, |path, name, kind| {
        kind == FrameKind::Torch && path.starts_with("torch/optim/") && name.starts_with("_multi_tensor_")
    });
    if !marked.any() {
        return Vec::new();
    }
    let snapshot = device.snapshot();
    let mut of_stack: BTreeMap<StackId, Vec<u32>> = BTreeMap::new();
    for (index, allocation, stack) in device.allocations_by(|stack| marked.has(stack)) {
        // Momentum buffers are allocated there in the first step, and stay live as long as the optimizer.
        let is_state = || device.categories().get(index as usize).category == Category::OptimizerState;
        if allocation.freed != NEVER && allocation.born > 0 && !is_state() {
            of_stack.entry(stack).or_default().push(index);
        }
    }
    let mut of_line: BTreeMap<Option<FrameId>, Scratch> = BTreeMap::new();
    for (stack, blocks) in of_stack {
        let frame = marked.frame(stack).and_then(|frame| snapshot.stacks.frame(frame));
        let scratch = of_line.entry(device.sites().site_frame(stack)).or_default();
        scratch.blocks.extend(blocks);
        scratch.stack = stack;
        scratch.is_fusable = frame.is_some_and(|frame| FUSED.contains(&snapshot.strings.get(frame.name)));
    }
    for scratch in of_line.values_mut() {
        scratch.blocks.sort_unstable();
    }
    of_line.into_iter().filter_map(|(line, scratch)| finding(device, line, &scratch)).collect()
}

#[derive(Default)]
struct Scratch {
    blocks: Vec<u32>,
    stack: StackId,
    is_fusable: bool,
}

fn finding(device: &Device<'_>, line: Option<FrameId>, scratch: &Scratch) -> Option<Finding> {
    let (history, snapshot) = (device.history(), device.snapshot());
    let block = |index: &u32| history.allocations[*index as usize];
    let peak = history.maxima[Metric::Allocated as usize].instant;
    if !scratch.blocks.iter().map(block).any(|block| block.allocated_at(peak)) {
        return None;
    }
    let most = most_at_once(scratch.blocks.iter().map(block));
    if most < SMALL {
        return None;
    }
    let name = snapshot.stacks.frames(scratch.stack).find_map(|frame| {
        let name = snapshot.strings.get(frame.name);
        name.strip_prefix("_multi_tensor_")
    })?;
    let code =
        |option: &str| [format!("optimizer = torch.optim.{}(parameters, ..., {option}){}", class(name), also(name))];
    let pass = |argument| Rewrite::Optimizer { class: class(name).to_owned(), argument };
    let (cost, fix) = if scratch.is_fusable {
        let lives = Lifetimes { removed: scratch.blocks.clone(), ..Lifetimes::default() };
        (
            None,
            Fix::new("pass fused=True to the optimizer that steps here", code("fused=True"), lives)
                .by(pass("fused=True")),
        )
    } else {
        let [least, most] = AT_ONCE.iter().find(|(other, _)| *other == name).map_or(OF_OTHERS, |(_, at_once)| *at_once);
        let lives = |at_once| one_parameter_at_a_time(device, &scratch.blocks, at_once);
        let change = "pass foreach=False to the optimizer that steps here";
        let unknown =
            "the recording does not show how many temporary tensors the for-loop implementation holds at once";
        let cost = Some("the optimizer then launches a kernel for each parameter instead of one for many".to_owned());
        (cost, Fix::up_to(change, code("foreach=False"), lives(most), lives(least), unknown).by(pass("foreach=False")))
    };
    Some(Finding {
        kind: RuleKind::ForeachTemporaries,
        line,
        evidence: format!(
            "torch.optim's _multi_tensor_{name} allocates {} of temporary tensors at once, one for each parameter",
            Bytes(most)
        ),
        cost,
        fixes: vec![fix],
    })
}

/// The temporaries if each parameter has this many of its own size, freed before those of the next parameter.
fn one_parameter_at_a_time(device: &Device<'_>, blocks: &[u32], at_once: u64) -> Lifetimes {
    let block = |index: u32| device.history().allocations[index as usize];
    let step = |index: u32| device.phases().span(block(index).born.saturating_sub(1)).map(|span| span.start);
    let mut lives = Lifetimes::default();
    for of_step in blocks.chunk_by(|&one, &other| step(one) == step(other)) {
        let sizes: Vec<u64> = of_step.iter().map(|&index| block(index).requested).collect();
        // Each operator allocates a block for each parameter.
        let repeats = |count: &usize| {
            sizes.len().is_multiple_of(*count) && sizes.iter().zip(&sizes[*count..]).all(|(one, other)| one == other)
        };
        let parameters = (1..=sizes.len()).find(repeats).unwrap_or(sizes.len());
        let (first, others) = of_step.split_at(parameters);
        lives.removed.extend(others);
        lives.resized.extend(first.iter().zip(&sizes).map(|(&index, size)| (index, size.saturating_mul(at_once))));
        let pairs = first.windows(2).map(|pair| (pair[0], block(pair[1]).born - 1));
        lives.freed.extend(pairs.filter(|&(index, at)| at < block(index).freed));
    }
    lives
}

/// Another class with the same foreach implementation: stacks do not show which of the two the program uses.
fn also(name: &str) -> &str {
    if name == "adam" { "  # or AdamW" } else { "" }
}

/// The class of `torch.optim` whose foreach implementation has this name.
fn class(name: &str) -> &str {
    match name {
        "adam" => "Adam",
        "adamw" => "AdamW",
        "sgd" => "SGD",
        "adagrad" => "Adagrad",
        "adadelta" => "Adadelta",
        "adafactor" => "Adafactor",
        "adamax" => "Adamax",
        "asgd" => "ASGD",
        "nadam" => "NAdam",
        "radam" => "RAdam",
        "rmsprop" => "RMSprop",
        "rprop" => "Rprop",
        other => other,
    }
}

/// The most bytes of these blocks that are live at once; the blocks are in order of allocation.
fn most_at_once(blocks: impl Iterator<Item = crate::replay::Allocation>) -> u64 {
    let mut changes: Vec<(u32, bool, u64)> = Vec::new();
    for block in blocks {
        changes.push((block.born, true, block.size));
        changes.push((block.freed, false, block.size));
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, is_made, bytes) in changes {
        now = if is_made { now.saturating_add(bytes) } else { now.saturating_sub(bytes) };
        most = most.max(now);
    }
    most
}
