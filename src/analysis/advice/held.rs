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
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::held::{Held, HeldAs, group};
use crate::facts::training::{Category, Role};
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// Groups are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 50;
/// Least number of blocks that a module's attribute has held, for each one that it holds at once.
const LEAST_SET: usize = 2;
/// Most sizes of about that of a block that its line makes: a cache has another one in each step.
const MOST_SIZES: usize = 3;
/// Outputs of a call are reported if they hold N times as much.
const PART_OF_OUTPUT: u64 = 20;
/// Least number of elements of a list, and of calls of the model that each of them outlives, if it collects results.
const LEAST_ELEMENTS: usize = 4;
/// A view is small if it sees at most 1/N of its storage.
const SMALL_VIEW: u64 = 4;

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
    Collection,
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
    let is_notable = |mistake: Mistake, blocks: &[&Block<'_>]| {
        let part = if mistake == Mistake::Output { PART_OF_OUTPUT } else { 1 };
        most_at_once(blocks.iter().map(|block| &block.made)).0 / part >= least
            && (mistake != Mistake::Collection || is_collection(device, blocks))
            && (mistake != Mistake::Attribute || is_repeated(device, calls, blocks))
    };
    let groups = groups.into_iter().filter(|((mistake, _), blocks)| is_notable(*mistake, blocks));
    let found = groups.map(|((mistake, path), blocks)| finding(device, held, calls, mistake, &path, &blocks));
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
        return Some((Mistake::Exception, group(exception(first).unwrap_or(&first.path))));
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
    let outlived = calls.all.iter().filter(|call| block.made.born <= call.start && call.end < block.made.freed).count();
    if variable.grows && variable.root == "local" && outlived >= LEAST_ELEMENTS && block.made.freed != NEVER {
        return Some((Mistake::Collection, group(&variable.path)));
    }
    let next = calls.all.iter().find(|call| call.start >= after.until && call.place == after.place)?;
    let is_output = all(|holder| !holder.grows && !holder.path.contains("self."))
        && block.made.born <= after.end
        && block.made.freed > next.end
        && block.made.freed <= next.until;
    is_output.then(|| (Mistake::Output, variable.variable.clone()))
}

fn is_of_exception(holder: &HeldBy) -> bool {
    holder.root == "exception" || holder.path.contains(".__traceback__")
}

/// The path of the exception whose traceback is on a path.
fn exception(holder: &HeldBy) -> Option<&str> {
    holder.path.find(".__traceback__").map(|end| &holder.path[..end])
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
    let sizes: HashSet<u64> =
        device.allocations_by(|other| other == stack).map(|(_, made, _)| made.requested).collect();
    let comparable = sizes.iter().filter(|&&size| size >= block.made.requested / 2).count();
    let live = same.iter().filter(|made| made.born <= block.made.born && block.made.born < made.freed).count();
    let overlaps = same.iter().any(|made| made.born > block.made.born && made.born <= block.made.freed);
    comparable <= MOST_SIZES && same.len() >= LEAST_SET * live.max(1) && overlaps
}

fn finding(
    device: &Device<'_>,
    held: &Held<'_>,
    calls: &ModelCalls,
    mistake: Mistake,
    path: &str,
    blocks: &[&Block<'_>],
) -> Finding {
    let holders = || blocks.iter().flat_map(|block| &block.holders);
    let is_it = |holder: &&&HeldBy| match mistake {
        Mistake::Exception => is_of_exception(holder),
        Mistake::Attribute => holder.kind == HolderKind::Variable && !holder.module.is_empty(),
        Mistake::Output => holder.variable == path,
        Mistake::Collection => holder.grows,
        Mistake::Cycle => true,
    };
    let line = holders().filter(is_it).find_map(|holder| holder.frame);
    let seen = blocks;
    let extended =
        if matches!(mistake, Mistake::Attribute | Mistake::Output) { alike(device, calls, seen) } else { Vec::new() };
    let blocks: Vec<&Block<'_>> = seen.iter().copied().chain(&extended).collect();
    let blocks = blocks.as_slice();
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
        Mistake::Collection => (
            "move what is collected to the CPU, or do not collect it".to_owned(),
            format!("{path} holds {most} of results, which stay on the device until the function returns"),
            vec!["results.append(result.cpu())".to_owned()],
        ),
        Mistake::Cycle => (
            "break the reference cycle, or call gc.collect() where it is released".to_owned(),
            format!(
                "no variable reaches {most} that a reference cycle of {path} holds: it is freed only when Python's collector runs"
            ),
            vec!["gc.collect()  # or set the attribute that closes the cycle to None".to_owned()],
        ),
    };
    // The last block that each exception keeps.
    let mut failed: HashMap<&str, Instant> = HashMap::new();
    for block in blocks {
        if let Some(exception) = block.holders.first().and_then(|holder| exception(holder)) {
            let last = failed.entry(exception).or_default();
            *last = block.made.born.max(*last);
        }
    }
    let freed = |block: &&Block<'_>, bound: bool| {
        Some((block.index, end_of(device, held, calls, mistake, (block, &failed), bound)?))
    };
    let lives = |bound: bool| Lifetimes {
        freed: blocks.iter().filter_map(|block| freed(block, bound)).collect(),
        ..Lifetimes::default()
    };
    let (least, most) = (lives(true), lives(false));
    let mut fixes = Vec::new();
    let is_cached = |block: &&&Block<'_>| device.categories().get(block.index as usize).category == Category::KvCache;
    if mistake == Mistake::Output && blocks.iter().filter(is_cached).count() * 2 > blocks.len() {
        let code = ["outputs = model(..., use_cache=False)"];
        let all = Lifetimes { freed: freed_at_once(device, calls, blocks), ..Lifetimes::default() };
        fixes.push(Fix::new("pass use_cache=False where no further token is generated", code, all));
    }
    let unknown = "it is not known when the program has finished with it";
    fixes.push(Fix::up_to(change, code, least, most, unknown));
    let kind = if mistake == Mistake::Collection { RuleKind::AccumulatingMetrics } else { RuleKind::Held };
    Finding { kind, line, evidence, cost: None, fixes }
}

/// When a block could end: at the latest if this is a bound, otherwise at the earliest.
fn end_of(
    device: &Device<'_>,
    held: &Held<'_>,
    calls: &ModelCalls,
    mistake: Mistake,
    (block, failed): (&Block<'_>, &HashMap<&str, Instant>),
    bound: bool,
) -> Option<Instant> {
    let call = of_instant(calls, block.made.born);
    let end = match mistake {
        Mistake::Cycle if bound => {
            let lives = |&&(instant, _): &&(Instant, _)| block.made.born <= instant && instant < block.made.freed;
            held.instants.iter().filter(lives).map(|&(instant, _)| instant).min()?
        }
        Mistake::Collection => call?.until,
        // The function that failed did not go on.
        Mistake::Exception => *failed.get(exception(block.holders.first()?)?)?,
        Mistake::Output if bound => calls.all.iter().find(|call| call.start >= block.made.born)?.start,
        _ => {
            let backward = call.and_then(|call| call.backward.as_ref()).map(|backward| backward.end);
            backward.unwrap_or_else(|| returned(device, block.index, &block.made, bound))
        }
    };
    (end < block.made.freed).then_some(end)
}

/// Whether the program may collect these blocks without reading them on the device: nothing joins them later.
fn is_collection(device: &Device<'_>, blocks: &[&Block<'_>]) -> bool {
    let Some(first) = blocks.first().filter(|_| blocks.len() >= LEAST_ELEMENTS) else { return false };
    let size = first.made.requested.max(1);
    let is_joined = |made: &Allocation| {
        made.born > first.made.born
            && made.requested.is_multiple_of(size)
            && made.requested / size >= blocks.len() as u64
    };
    let is_plain = |stack: StackId| device.roles().role(stack) == Role::Plain;
    !device.allocations_by(is_plain).any(|(_, made, _)| is_joined(made))
}

/// Whether calls make blocks like these again and again: a cache is made once for each layer.
fn is_repeated(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> bool {
    let others = alike(device, calls, blocks);
    let all = || blocks.iter().copied().chain(&others).map(|block| &block.made);
    bytes(all()) / LEAST_SET as u64 >= most_at_once(all()).0
}

/// Blocks of the same lines and sizes that no walk has seen, and that outlive their calls as well.
fn alike<'h>(device: &Device<'_>, calls: &ModelCalls, seen: &[&Block<'h>]) -> Vec<Block<'h>> {
    let of = |block: &Block<'_>| (device.track.stack_of(block.index as usize), block.made.requested);
    let kinds: HashSet<(StackId, u64)> = seen.iter().map(|block| of(block)).collect();
    let known: HashSet<u32> = seen.iter().map(|block| block.index).collect();
    let same = device.allocations_by(|stack| kinds.iter().any(|kind| kind.0 == stack));
    let is_kept = |made: &Allocation| of_instant(calls, made.born).is_some_and(|call| made.freed > call.end);
    same.filter(|(index, made, stack)| {
        kinds.contains(&(*stack, made.requested)) && !known.contains(index) && is_kept(made)
    })
    .map(|(index, made, _)| Block { index, made: *made, holders: Vec::new() })
    .collect()
}

/// Instants at which the blocks of a cache would end that no later call reads.
fn freed_at_once(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> Vec<(u32, Instant)> {
    let stacks: HashSet<StackId> = blocks.iter().map(|block| device.track.stack_of(block.index as usize)).collect();
    let all = device.allocations_by(|stack| stacks.contains(&stack));
    let of_call = all.filter(|(_, made, _)| of_instant(calls, made.born).is_some());
    let ended = of_call.map(|(index, made, _)| (index, returned(device, index, made, true), made.freed));
    ended.filter(|&(_, end, freed)| end < freed).map(|(index, end, _)| (index, end)).collect()
}

/// The first instant after a block's allocation at which the module that allocated it is no longer running in this call, or the
/// function of the program: an entry with another way into it. Unless this is a bound, a module that goes back to an earlier line
/// counts as called again: a loop calls its layers by the same way.
fn returned(device: &Device<'_>, index: u32, made: &Allocation, bound: bool) -> Instant {
    let (track, sites) = (device.track, device.sites());
    let (stacks, strings) = (&track.snapshot.stacks, &track.snapshot.strings);
    let frames = |stack: StackId| -> Vec<FrameId> { stacks.frame_ids(stack).iter().rev().copied().collect() };
    let own = frames(track.stack_of(index as usize));
    let is_forward = |&frame: &FrameId| {
        let name = stacks.frame(frame).map_or("", |frame| strings.get(frame.name));
        name == "forward" && sites.kind(frame) != FrameKind::Torch
    };
    let module = own.iter().rposition(is_forward).or_else(|| own.iter().rposition(|&frame| sites.is_own(frame)));
    let Some(depth) = module.filter(|&depth| depth > 0) else {
        return made.freed;
    };
    let line = |frame: FrameId| stacks.frame(frame).map_or(0, |frame| frame.line);
    let mut last = line(own[depth]);
    let is_outside = |&entry: &u32| {
        let stack = track.stack(entry);
        if stack == StackId::EMPTY || !sites.has_python(stack) {
            return false;
        }
        let other = frames(stack);
        if other.len() <= depth || other[..depth] != own[..depth] {
            return true;
        }
        let now = line(other[depth]);
        let is_again = !bound && now < last;
        last = now;
        is_again
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

/// Compares what is said about collected results with what holds them. Returns whether it is still true: results that a function
/// has returned to a global variable are used later.
pub(super) fn confirm(device: &Device<'_>, finding: &mut Finding) -> bool {
    let (Some(held), RuleKind::AccumulatingMetrics) = (device.held(), finding.kind) else { return true };
    let Some(changed) = finding.fixes.first().and_then(|fix| fix.edit.only_lives()) else { return true };
    let (mut views, mut all, mut of_exceptions) = (0, 0, 0);
    let mut known: Vec<(&HeldBy, bool)> = Vec::new();
    for index in changed.changed() {
        let HeldAs::Held(storage) = held.get(index as usize) else { continue };
        // That is a finding of its own.
        of_exceptions += usize::from(held.holders(storage).all(is_of_exception));
        let is_plain = |holder: &&HeldBy| holder.kind == HolderKind::Variable && !holder.library;
        let Some(holder) = held.holders(storage).find(is_plain) else { continue };
        all += storage.bytes;
        views += if storage.seen_bytes <= storage.bytes / SMALL_VIEW { storage.bytes } else { 0 };
        known.push((holder, device.history().allocations[index as usize].freed == NEVER));
    }
    let is_returned = |(holder, stays): &&(&HeldBy, bool)| *stays && holder.root == "global" && !holder.grows;
    if of_exceptions * 2 > known.len() {
        return false;
    }
    if !known.is_empty() && known.iter().filter(is_returned).count() * 2 > known.len() {
        return false;
    }
    let stored = known.iter().find(|(holder, _)| holder.grows);
    let Some((holder, _)) = stored else { return true };
    finding.line = holder.frame.or(finding.line);
    if views > all / 2
        && let Some(fix) = finding.fixes.first_mut()
    {
        finding.kind = RuleKind::Held;
        finding.cost = None;
        finding.evidence =
            format!("each element of {} is a small view of a tensor that it keeps alive", holder.variable);
        "clone the slice that is stored".clone_into(&mut fix.change);
        fix.code = vec!["kept.append(x[:, 0].clone())  # a slice keeps all of x".to_owned()];
        finding.fixes.truncate(1);
    }
    true
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
