//! A second optimizer has states for the same parameters, while a variable or a scheduler keeps the first one.
//!
//! **Sign:** holders show states of two optimizers for parameters of the same names, and those of the first are older than all of the
//! second. Without holders: two steps make states of the same sizes and as many, and no more parameters of these sizes are live than
//! one of the two has states for.
//!
//! **Fix:** delete the first optimizer, and what refers to it, before the second one is created.
//!
//! **Figures** are simulated with states that end when the second optimizer makes its own.

use super::held::{Block, blocks, bytes};
use super::model_calls::born_in;
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind, SCALAR};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::replay::Allocation;
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// One finding for the older of two optimizers.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    match device.held() {
        Some(held) => finding(&blocks(device, held)),
        None => by_sizes(device),
    }
    .into_iter()
    .collect()
}

/// The states that one step makes.
struct Made {
    blocks: Vec<(u32, Allocation)>,
    /// How many there are of each size.
    sizes: BTreeMap<u64, usize>,
}

/// Without holders: the states that an earlier step has made, if a later one makes as many of each size.
fn by_sizes(device: &Device<'_>) -> Option<Finding> {
    let mut steps: Vec<Made> = Vec::new();
    for span in device.phases().spans.iter().filter(|span| span.phase == Phase::Optimizer) {
        let is_state = |&(index, made): &(u32, Allocation)| {
            made.requested > SCALAR && device.categories().get(index as usize).category == Category::OptimizerState
        };
        let blocks: Vec<(u32, Allocation)> = born_in(device, span.start, span.end).filter(is_state).collect();
        if !blocks.is_empty() {
            let sizes = sizes(blocks.iter().map(|(_, made)| made));
            steps.push(Made { blocks, sizes });
        }
    }
    let second = steps.pop()?;
    let begun = second.blocks.first()?.1.born;
    let is_live = |made: &Allocation| made.allocated_at(begun);
    let is_same = |step: &&Made| step.sizes == second.sizes && step.blocks.iter().all(|(_, made)| is_live(made));
    let first = steps.iter().find(is_same)?;
    let live =
        |category: Category| sizes(device.allocations_of(category).map(|(_, made)| made).filter(|made| is_live(made)));
    // A second model has parameters of its own.
    let (parameters, gradients) = (live(Category::Parameter), live(Category::Gradient));
    let states_of_each = |(size, count): (&u64, &usize)| {
        let known = parameters.get(size).copied().filter(|&known| count.is_multiple_of(known))?;
        gradients.get(size).filter(|&&of_step| of_step <= known).map(|_| count / known)
    };
    let counts: Option<BTreeSet<usize>> = second.sizes.iter().map(states_of_each).collect();
    // Other optimizers may have other parameters of the same size, such as one for each parameter.
    let parts = |is_wanted: &dyn Fn(&u64) -> bool| -> u64 {
        parameters.iter().filter(|(size, _)| is_wanted(size)).map(|(size, count)| size * *count as u64).sum()
    };
    let is_whole = parts(&|size| second.sizes.contains_key(size)) >= parts(&|_| true) / 2;
    if counts.is_none_or(|counts| counts.len() != 1) || !is_whole {
        return None;
    }
    let line = own_line(device, first, &second);
    let lives =
        Lifetimes { freed: first.blocks.iter().map(|&(index, _)| (index, begun)).collect(), ..Lifetimes::default() };
    Some(Finding {
        kind: RuleKind::Held,
        line,
        evidence: format!(
            "{} of optimizer state stay from here on, and a later step makes as many states of the same sizes: another optimizer \
             has the same parameters",
            Bytes(bytes(first.blocks.iter().map(|(_, made)| made)))
        ),
        cost: None,
        fixes: vec![Fix::new(
            "delete the optimizer that steps here, and its scheduler, before the second one is created",
            ["del optimizer, scheduler  # all variables that refer to the first optimizer"],
            lives,
        )],
    })
}

fn sizes<'m>(made: impl Iterator<Item = &'m Allocation>) -> BTreeMap<u64, usize> {
    let mut sizes = BTreeMap::new();
    made.for_each(|made| *sizes.entry(made.requested).or_default() += 1);
    sizes
}

/// The program's line that leads to the first step alone, such as its call of a function that trains.
fn own_line(device: &Device<'_>, first: &Made, second: &Made) -> Option<FrameId> {
    let stack = |made: &Made| made.blocks.first().map(|&(index, _)| device.track.stack_of(index as usize));
    let frames = |made: &Made| stack(made).map(|stack| device.snapshot().stacks.frame_ids(stack)).unwrap_or_default();
    let (own, other) = (frames(first), frames(second));
    let alone = own.iter().copied().find(|frame| device.sites().is_own(*frame) && !other.contains(frame));
    alone.or_else(|| device.sites().site_frame(stack(first)?))
}

fn finding(blocks: &[Block<'_>]) -> Option<Finding> {
    let mut by_optimizer: IndexMap<&str, Vec<(&Block<'_>, &str)>> = IndexMap::new();
    for block in blocks {
        let state = block.holders.first().filter(|holder| holder.kind == HolderKind::OptimizerState);
        if let Some((optimizer, parameter)) = state.and_then(|holder| holder.path.split_once(".state[")) {
            by_optimizer.entry(optimizer).or_default().push((block, parameter));
        }
    }
    let newest = |states: &Vec<(&Block<'_>, &str)>| states.iter().map(|(block, _)| block.made.born).max();
    let (latest, states) = by_optimizer.iter().max_by_key(|(_, states)| newest(states))?;
    let parameters: HashSet<&str> = states.iter().map(|(_, parameter)| *parameter).collect();
    let begun = states.iter().map(|(block, _)| block.made.born).min()?;
    // Two models may have parameters of the same names: then it is unknown which of them an optimizer has.
    let is_parameter = |holder: &&HeldBy| holder.kind == HolderKind::Parameter;
    let names: Vec<&str> = blocks
        .iter()
        .filter_map(|block| block.holders.first().copied().filter(is_parameter))
        .map(|it| it.path.as_str())
        .collect();
    let is_ambiguous = |parameter: &str| {
        let suffix = format!(".{}", parameter.split(']').next().unwrap_or(parameter));
        names.iter().filter(|name| name.ends_with(&suffix)).count() != 1
    };
    let is_replaced = |(optimizer, old): &(&&str, &Vec<(&Block<'_>, &str)>)| {
        *optimizer != latest
            && !old.iter().any(|(_, parameter)| is_ambiguous(parameter))
            && old.iter().all(|(block, parameter)| block.made.born < begun && parameters.contains(parameter))
    };
    let (_, old) = by_optimizer.iter().filter(is_replaced).max_by_key(|(_, old)| old.len())?;
    let holders = || old.iter().flat_map(|(block, _)| &block.holders);
    let names: HashMap<&str, Option<FrameId>> =
        holders().map(|holder| (holder.variable.as_str(), holder.frame)).collect();
    let mut names: Vec<(&str, Option<FrameId>)> = names.into_iter().collect();
    names.sort_unstable_by_key(|&(name, frame)| (frame.map(|frame| frame.0), name));
    let list = |separator: &str, name: fn(&str) -> &str| {
        names.iter().map(|(variable, _)| name(variable)).collect::<Vec<&str>>().join(separator)
    };
    let short = list(", ", |name| name.rsplit('.').next().unwrap_or(name));
    let hold = if names.len() == 1 { "holds" } else { "hold" };
    let held = Bytes(bytes(old.iter().map(|(block, _)| &block.made)));
    let lives = Lifetimes {
        freed: old
            .iter()
            .filter(|(block, _)| begun < block.made.freed)
            .map(|(block, _)| (block.index, begun))
            .collect(),
        ..Lifetimes::default()
    };
    Some(Finding {
        kind: RuleKind::Held,
        line: names.iter().rev().find_map(|(_, frame)| *frame),
        evidence: format!(
            "{} {hold} {held} of optimizer state for parameters that {latest} trains now",
            list(" and ", |name| name)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "delete the first optimizer, and what refers to it, before the second one is created",
            [format!("del {short}")],
            lives,
        )],
    })
}
