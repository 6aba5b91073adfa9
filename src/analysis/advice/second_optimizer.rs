//! A second optimizer has states for the same parameters, while a variable or a scheduler keeps the first one.
//!
//! **Sign:** holders show states of two optimizers for parameters of the same names, and those of the first are older than all of the
//! second.
//!
//! **Fix:** delete the first optimizer, and what refers to it, before the second one is created.
//!
//! **Figures** are simulated with states that end when the second optimizer makes its own.

use super::held::{Block, blocks, bytes};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::model::FrameId;
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// One finding for the older of two optimizers.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let Some(held) = evidence.device.held() else { return Vec::new() };
    finding(&blocks(evidence.device, held)).into_iter().collect()
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
