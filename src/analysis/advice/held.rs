//! The recording shows which variable, attribute or exception holds memory that the program has finished with.
//!
//! **Sign:** a walk over the references of the program (`torch_memviz.record`, `memviz rehearse`) found the holder, and it is one
//! of these: the traceback of an exception that the program stores, an attribute of a module that every call sets anew, a second
//! optimizer for the same parameters, a variable that holds the output of a call until the next one is done, or a reference cycle.
//! Nothing else holds the blocks.
//!
//! **Fix:** release it where it is stored; the line is the one that stores it.
//!
//! **Figures** are simulated with blocks that end when the function that allocates them returns, or when their backward pass ends.
//! For a cycle, it is only known that they could have ended by the time of the walk.

use super::model_calls::{ModelCall, ModelCalls};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::held::{Held, HeldAs, group};
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::model::{FrameId, StackId};
use crate::play::changes::Lives;
use crate::replay::{Allocation, Instant, Metric};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// Groups are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 50;
/// Least number of blocks that a module's attribute has held, for each one that it holds at once.
const LEAST_SET: usize = 2;

/// A block with its holders.
struct Block<'h> {
    index: u32,
    made: Allocation,
    /// The one that tells most first.
    holders: Vec<&'h HeldBy>,
}

/// What a holder does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Mistake {
    Exception,
    Attribute,
    Output,
    Cycle,
}

/// A finding for each group of paths.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let Some(held) = device.held() else { return Vec::new() };
    let blocks = blocks(device, held);
    let mut groups: IndexMap<(Mistake, String), Vec<&Block<'_>>> = IndexMap::new();
    for block in &blocks {
        if let Some((mistake, path)) = mistake(device, calls, block) {
            groups.entry((mistake, path)).or_default().push(block);
        }
    }
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let least = peak / NOTABLE_PART;
    let is_notable = |blocks: &Vec<&Block<'_>>| bytes(blocks.iter().map(|block| &block.made)) >= least;
    let groups = groups.into_iter().filter(|(_, blocks)| is_notable(blocks));
    let found = groups.filter_map(|((mistake, path), blocks)| finding(device, held, calls, mistake, &path, &blocks));
    found.chain(second_optimizer(&blocks)).collect()
}

fn blocks<'h>(device: &Device<'h>, held: &Held<'h>) -> Vec<Block<'h>> {
    let all = (0..).zip(device.history().allocations.iter().copied());
    let block = |(index, made): (u32, Allocation)| {
        let HeldAs::Held(storage) = held.get(index as usize) else { return None };
        Some(Block { index, made, holders: held.holders(storage).collect() })
    };
    all.filter_map(block).collect()
}

fn bytes<'b>(all: impl Iterator<Item = &'b Allocation>) -> u64 {
    all.map(|made| made.size).fold(0, u64::saturating_add)
}

/// What is wrong with the holders of a block, and the path that the blocks of one group share.
fn mistake(device: &Device<'_>, calls: &ModelCalls, block: &Block<'_>) -> Option<(Mistake, String)> {
    let all = |is_it: fn(&HeldBy) -> bool| block.holders.iter().all(|holder| is_it(holder));
    let first = block.holders.first()?;
    if all(is_of_exception) {
        let end = first.path.find(".__traceback__").unwrap_or(first.path.len());
        return Some((Mistake::Exception, group(&first.path[..end])));
    }
    if all(|holder| holder.root == "unreachable" && holder.variable != "tensor") {
        return Some((Mistake::Cycle, first.variable.clone()));
    }
    let is_part_of_model = |holder: &&HeldBy| {
        matches!(
            holder.kind,
            HolderKind::Parameter | HolderKind::Buffer | HolderKind::Gradient | HolderKind::OptimizerState
        )
    };
    if block.holders.iter().any(is_part_of_model) {
        return None;
    }
    let after = of_instant(calls, block.made.born)?;
    let done = after.backward.as_ref().map_or(after.end, |backward| backward.end);
    if block.made.freed <= done {
        return None;
    }
    let attribute =
        block.holders.iter().find(|holder| holder.kind == HolderKind::Variable && !holder.module.is_empty());
    if let Some(attribute) = attribute {
        return is_set_anew(device, block).then(|| (Mistake::Attribute, group(&attribute.path)));
    }
    let variable = block.holders.iter().find(|holder| holder.kind == HolderKind::Variable && !holder.library)?;
    let next = calls.all.iter().find(|call| call.start >= after.until && call.place == after.place)?;
    let is_output = all(|holder| !holder.grows && !holder.path.contains("self."))
        && block.made.freed > next.end
        && block.made.freed <= next.until;
    is_output.then(|| (Mistake::Output, variable.variable.clone()))
}

fn is_of_exception(holder: &HeldBy) -> bool {
    holder.root == "exception" || holder.path.contains(".__traceback__")
}

/// The call of a model that makes what is born at an instant.
fn of_instant(calls: &ModelCalls, born: Instant) -> Option<&ModelCall> {
    let place = calls.all.partition_point(|call| call.start < born).checked_sub(1)?;
    calls.all.get(place).filter(|call| born <= call.until)
}

/// Whether the line that makes a block makes others of its size again and again, each of which lives until the next one exists.
/// A cache is made once, or grows.
fn is_set_anew(device: &Device<'_>, block: &Block<'_>) -> bool {
    let stack = device.track.stack_of(block.index as usize);
    let same =
        device.allocations_by(|other| other == stack).filter(|(_, made, _)| made.requested == block.made.requested);
    let same: Vec<&Allocation> = same.map(|(_, made, _)| made).collect();
    let live = same.iter().filter(|made| made.born <= block.made.born && block.made.born < made.freed).count();
    let overlaps = same.iter().any(|made| made.born > block.made.born && made.born <= block.made.freed);
    same.len() >= LEAST_SET * live.max(1) && overlaps
}

fn finding(
    device: &Device<'_>,
    held: &Held<'_>,
    calls: &ModelCalls,
    mistake: Mistake,
    path: &str,
    blocks: &[&Block<'_>],
) -> Option<Finding> {
    let holders = || blocks.iter().flat_map(|block| &block.holders);
    let is_it = |holder: &&&HeldBy| match mistake {
        Mistake::Exception => is_of_exception(holder),
        Mistake::Attribute => holder.kind == HolderKind::Variable && !holder.module.is_empty(),
        Mistake::Output => holder.variable == path,
        Mistake::Cycle => true,
    };
    let line = holders().filter(is_it).find_map(|holder| holder.frame);
    // Blocks of an earlier walk may have been replaced since: what is live together counts.
    let most = most_at_once(blocks.iter().map(|block| &block.made));
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    let object = holders().find(is_it).map_or("", |holder| holder.module.as_str());
    let (change, evidence, code) = match mistake {
        Mistake::Exception => (
            "keep the text of the exception, not the exception: its traceback keeps all local variables".to_owned(),
            format!("{path} holds exceptions, whose tracebacks keep {most} of the functions that failed"),
            vec!["failures.append(repr(error))  # or error.with_traceback(None)".to_owned()],
        ),
        Mistake::Attribute => (
            format!("do not keep the result of each call in the attribute {name}"),
            format!("{path} ({object}) holds {most} that every call makes anew, until the next call replaces it"),
            vec![format!("self.{name} = None  # once it has been used; or store what is needed with .detach().cpu()")],
        ),
        Mistake::Output => (
            format!("delete {name} before the next call of the model"),
            format!("{path} holds {most} of the last call's output while the next call runs"),
            vec![format!("del {name}  # at the end of each iteration")],
        ),
        Mistake::Cycle => (
            "break the reference cycle, or call gc.collect() where it is released".to_owned(),
            format!(
                "no variable reaches {most} that a reference cycle of {path} holds: it is freed only when Python's collector runs"
            ),
            vec!["gc.collect()  # or set the attribute that closes the cycle to None".to_owned()],
        ),
    };
    let freed =
        |block: &&Block<'_>, bound: bool| Some((block.index, end_of(device, held, calls, mistake, block, bound)?));
    let lives = |bound: bool| Lives {
        freed: blocks.iter().filter_map(|block| freed(block, bound)).collect(),
        ..Lives::default()
    };
    let (least, most) = (lives(true), lives(false));
    let mut fixes = Vec::new();
    let is_cache = mistake == Mistake::Output && holders().any(|holder| holder.path.contains("past_key_values"));
    if is_cache {
        let code = ["outputs = model(..., use_cache=False)"];
        let all = Lives { freed: freed_at_once(device, calls, blocks), ..Lives::default() };
        fixes.push(Fix::new("pass use_cache=False where no further token is generated", code, all));
    }
    let unknown = "it is not known when the program has finished with it";
    fixes.push(Fix::up_to(change, code, least, most, unknown));
    Some(Finding { kind: RuleKind::Held, line, evidence, cost: None, fixes })
}

/// When a block could end: at the latest if this is a bound, otherwise at the earliest.
fn end_of(
    device: &Device<'_>,
    held: &Held<'_>,
    calls: &ModelCalls,
    mistake: Mistake,
    block: &Block<'_>,
    bound: bool,
) -> Option<Instant> {
    let call = of_instant(calls, block.made.born);
    let end = match mistake {
        Mistake::Cycle if bound => {
            let lives = |&&(instant, _): &&(Instant, _)| block.made.born <= instant && instant < block.made.freed;
            held.instants.iter().filter(lives).map(|&(instant, _)| instant).min()?
        }
        Mistake::Output if bound => calls.all.iter().find(|call| call.start >= block.made.born)?.start,
        _ => {
            let backward = call.and_then(|call| call.backward.as_ref()).map(|backward| backward.end);
            backward.unwrap_or_else(|| returned(device, block.index, &block.made))
        }
    };
    (end < block.made.freed).then_some(end)
}

/// Instants at which the blocks of a cache would end that no later call reads.
fn freed_at_once(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> Vec<(u32, Instant)> {
    let stacks: HashSet<StackId> = blocks.iter().map(|block| device.track.stack_of(block.index as usize)).collect();
    let all = device.allocations_by(|stack| stacks.contains(&stack));
    let of_call = all.filter(|(_, made, _)| of_instant(calls, made.born).is_some());
    let ended = of_call.map(|(index, made, _)| (index, returned(device, index, made), made.freed));
    ended.filter(|&(_, end, freed)| end < freed).map(|(index, end, _)| (index, end)).collect()
}

/// The first instant after a block's allocation at which the function of the program that allocated it is no longer running in this
/// call: an entry with another way into it.
fn returned(device: &Device<'_>, index: u32, made: &Allocation) -> Instant {
    let (track, sites) = (device.track, device.sites());
    let frames =
        |stack: StackId| -> Vec<FrameId> { track.snapshot.stacks.frame_ids(stack).iter().rev().copied().collect() };
    let own = frames(track.stack_of(index as usize));
    let Some(depth) = own.iter().rposition(|&frame| sites.is_own(frame)).filter(|&depth| depth > 0) else {
        return made.freed;
    };
    let is_outside = |&entry: &u32| {
        let stack = track.stack(entry);
        stack != StackId::EMPTY && sites.has_python(stack) && {
            let other = frames(stack);
            other.len() <= depth || other[..depth] != own[..depth]
        }
    };
    (made.born..track.entries()).find(is_outside).unwrap_or(made.freed)
}

/// The most bytes of some blocks that are live at once.
fn most_at_once<'b>(all: impl Iterator<Item = &'b Allocation>) -> Bytes {
    let mut changes: Vec<(Instant, bool, u64)> =
        all.flat_map(|made| [(made.born, true, made.size), (made.freed, false, made.size)]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, is_made, size) in changes {
        now = if is_made { now.saturating_add(size) } else { now.saturating_sub(size) };
        most = most.max(now);
    }
    Bytes(most)
}

/// States of two optimizers for the same parameters: the older ones are those of an optimizer that is no longer needed.
fn second_optimizer(blocks: &[Block<'_>]) -> Option<Finding> {
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
    let is_replaced = |(optimizer, old): &(&&str, &Vec<(&Block<'_>, &str)>)| {
        *optimizer != latest
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
    let held = Bytes(bytes(old.iter().map(|(block, _)| &block.made)));
    let lives = Lives {
        freed: old
            .iter()
            .filter(|(block, _)| begun < block.made.freed)
            .map(|(block, _)| (block.index, begun))
            .collect(),
        ..Lives::default()
    };
    Some(Finding {
        kind: RuleKind::Held,
        line: names.iter().rev().find_map(|(_, frame)| *frame),
        evidence: format!(
            "{} hold {held} of optimizer state for parameters that {latest} trains now",
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
