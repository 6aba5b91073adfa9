//! The recording shows which variable, attribute or exception holds memory that the program has finished with.
//!
//! **Sign:** a walk over the references of the program (`torch_memviz.record`, `memviz rehearse`) found the holder, and it is one
//! of these: the traceback of an exception that the program stores or handles, an attribute of a module or an element of a global
//! dictionary that every call sets anew, a list that grows until its function returns, a variable that holds the output of a call
//! until the next one is done, or a reference cycle. Nothing else holds the blocks.
//!
//! **Fix:** release it where it is stored; the line is the one that stores it.
//!
//! **Figures** are simulated with blocks that end when the function that allocates them returns, or when their backward pass ends.
//! For a cycle, it is only known that they could have ended by the time of the walk.

use super::kept_outputs::behind_its_readers;
use super::model_calls::{ModelCall, ModelCalls};
use super::rules::Evidence;
use super::stacks::calls_transformers;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::held::{Held, HeldAs, group};
use crate::facts::training::{Category, Role};
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::{IndexMap, IndexSet};
use std::collections::{HashMap, HashSet};

/// Groups are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 50;
/// Least number of blocks that a module's attribute has held, for each one that it holds at once.
const LEAST_SET: usize = 2;
/// Most sizes of about that of a block that its line makes: a cache has another one in each step.
const MOST_SIZES: usize = 3;
/// Outputs of a call are reported if they hold N times as much.
const PART_OF_OUTPUT: u64 = 20;
/// Least number of elements of a list that outlive as many calls of the model, if it collects results.
const LEAST_ELEMENTS: usize = 4;
/// A view is small if it sees at most 1/N of its storage.
const SMALL_VIEW: u64 = 4;

/// A block with its holders.
pub(super) struct Block<'h> {
    pub index: u32,
    pub made: Allocation,
    /// The one that tells most first.
    pub holders: Vec<&'h HeldBy>,
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
            && (mistake != Mistake::Collection || is_collection(device, calls, blocks))
            && (mistake != Mistake::Attribute || is_repeated(device, calls, blocks))
    };
    let groups = groups.into_iter().filter(|((mistake, _), blocks)| is_notable(*mistake, blocks));
    groups.map(|((mistake, path), blocks)| finding(device, held, calls, mistake, &path, &blocks)).collect()
}

/// The blocks whose holders a walk has found.
pub(super) fn blocks<'h>(device: &Device<'h>, held: &Held<'h>) -> Vec<Block<'h>> {
    let all = (0..).zip(device.history().allocations.iter().copied());
    let block = |(index, made): (u32, Allocation)| {
        let HeldAs::Held(storage) = held.get(index as usize) else { return None };
        Some(Block { index, made, holders: held.holders(storage).collect() })
    };
    all.filter_map(block).collect()
}

pub(super) fn bytes<'b>(all: impl Iterator<Item = &'b Allocation>) -> u64 {
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
    let attribute = block.holders.iter().find(|holder| is_stored(holder));
    if let Some(attribute) = attribute {
        return is_set_anew(device, block).then(|| (Mistake::Attribute, place(attribute)));
    }
    let variables = || block.holders.iter().filter(|holder| holder.kind == HolderKind::Variable && !holder.library);
    // The newest element is often another variable as well.
    let is_list = |holder: &&&HeldBy| holder.grows && holder.root == "local";
    if let Some(list) =
        variables().find(is_list).filter(|_| outlived(calls, &block.made) > 0 && block.made.freed != NEVER)
    {
        let function = list.variable.rsplit_once('.').map_or("", |(function, _)| function);
        return Some((Mistake::Collection, function.to_owned()));
    }
    let variable = variables().next()?;
    let next = calls.all.iter().find(|call| call.start >= after.until && call.place == after.place)?;
    let is_output = all(|holder| !holder.grows && !holder.path.contains("self."))
        && block.made.born <= after.end
        && block.made.freed > next.end
        && block.made.freed <= next.until;
    is_output.then(|| (Mistake::Output, variable.variable.clone()))
}

/// Whether an attribute or an element of a global dictionary holds a block: a call sets it, and another one sets it again.
fn is_stored(holder: &HeldBy) -> bool {
    let is_element = holder.root == "global" && !holder.library && holder.path.ends_with(']');
    let is_attribute = !holder.module.is_empty() || !holder.library && is_of_object(holder);
    holder.kind == HolderKind::Variable && (is_attribute || is_element)
}

/// Whether it is an attribute of an object that `self` refers to.
fn is_of_object(holder: &HeldBy) -> bool {
    holder.path.contains("self.") && !holder.path.ends_with(']')
}

/// The path that the blocks of a group share: that of the dictionary for its elements.
fn place(holder: &HeldBy) -> String {
    let path = group(&holder.path);
    if holder.module.is_empty() { path.split('[').next().unwrap_or(&path).to_owned() } else { path }
}

pub(super) fn is_of_exception(holder: &HeldBy) -> bool {
    holder.root == "exception" || holder.path.contains(".__traceback__")
}

/// The path of the exception whose traceback is on a path.
fn exception(holder: &HeldBy) -> Option<&str> {
    holder.path.find(".__traceback__").map(|end| &holder.path[..end])
}

/// The call of a model that makes what is born at an instant.
pub(super) fn of_instant(calls: &ModelCalls, born: Instant) -> Option<&ModelCall> {
    let place = calls.all.partition_point(|call| call.start < born).checked_sub(1)?;
    calls.all.get(place).filter(|call| born <= call.until)
}

/// Whether the line that makes a block makes others of its size again and again, each of which lives until the next one exists.
/// A cache is made once, or grows.
pub(super) fn is_set_anew(device: &Device<'_>, block: &Block<'_>) -> bool {
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

fn finding<'a>(
    device: &Device<'a>,
    held: &Held<'a>,
    calls: &ModelCalls,
    mistake: Mistake,
    path: &str,
    blocks: &[&Block<'_>],
) -> Finding {
    let holders = || blocks.iter().flat_map(|block| &block.holders);
    let is_it = |holder: &&&HeldBy| match mistake {
        Mistake::Exception => is_of_exception(holder),
        Mistake::Attribute => is_stored(holder),
        Mistake::Output => holder.variable == path,
        Mistake::Collection => holder.grows,
        Mistake::Cycle => true,
    };
    let line = holders().filter(is_it).find_map(|holder| holder.frame);
    let seen = blocks;
    let extended = if matches!(mistake, Mistake::Attribute | Mistake::Output | Mistake::Collection) {
        alike(device, calls, seen)
    } else {
        Vec::new()
    };
    let blocks: Vec<&Block<'_>> = seen.iter().copied().chain(&extended).collect();
    let blocks = blocks.as_slice();
    // Blocks of an earlier walk may have been replaced since: what is live together counts.
    let most = most_at_once(blocks.iter().map(|block| &block.made));
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    let object = holders().find(is_it).map_or("", |holder| holder.module.as_str());
    let owner = if object.is_empty() { path.to_owned() } else { format!("{path} ({object})") };
    let (change, evidence, code) = match mistake {
        Mistake::Exception
            if holders().any(|holder| holder.root == "exception" && holder.path.starts_with("exception")) =>
        {
            (
                "try again after the except block has ended".to_owned(),
                format!(
                    "the exception that is being handled keeps {most} of the functions that failed, while they run again"
                ),
                vec!["except torch.OutOfMemoryError: failed = True  # and retry outside of the block".to_owned()],
            )
        }
        Mistake::Exception => (
            "keep the text of the exception, not the exception: its traceback keeps all local variables".to_owned(),
            format!("{path} holds exceptions, whose tracebacks keep {most} of the functions that failed"),
            vec!["failures.append(repr(error))  # or error.with_traceback(None)".to_owned()],
        ),
        Mistake::Attribute if object.is_empty() && !holders().filter(is_it).any(|holder| is_of_object(holder)) => (
            format!("clear {name} once a step has used what it holds"),
            format!("{path} holds {most} that every call makes anew, until the next call replaces it"),
            vec![format!("{name}.clear()  # after backward; or store what is needed with .detach().cpu()")],
        ),
        Mistake::Attribute => (
            format!("do not keep the result of each call in the attribute {name}"),
            format!("{owner} holds {most} that every call makes anew, until the next call replaces it"),
            vec![format!("self.{name} = None  # once it has been used; or store what is needed with .detach().cpu()")],
        ),
        Mistake::Output => (
            format!("delete {name} before the next call of the model"),
            format!("{path} holds {most} of the last call's output while the next call runs"),
            vec![format!("del {name}  # at the end of each iteration")],
        ),
        Mistake::Collection => (
            "move what is collected to the CPU, or do not collect it".to_owned(),
            format!(
                "{} {most} of results, which stay on the device until the function returns",
                names(holders().filter(is_it))
            ),
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
    let is_saved = seen.iter().flat_map(|block| &block.holders).any(|holder| holder.kind == HolderKind::Saved);
    let known = Known { device, held, calls, failed, is_saved };
    let freed = |block: &&Block<'_>, bound: bool| Some((block.index, known.end_of(mistake, block, bound)?));
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
        let is_called = |line: FrameId| {
            blocks.iter().any(|block| calls_transformers(device, device.track.stack_of(block.index as usize), line))
        };
        let rewrite = line.is_some_and(is_called).then_some(Rewrite::Argument("use_cache=False"));
        fixes.push(Fix::new("pass use_cache=False where no further token is generated", code, all).by(rewrite));
    }
    let unknown = "it is not known when the program has finished with it";
    fixes.push(Fix::up_to(change, code, least, most, unknown));
    let kind = if mistake == Mistake::Collection { RuleKind::AccumulatingMetrics } else { RuleKind::Held };
    Finding { kind, line, evidence, cost: None, fixes }
}

/// The variables of some holders, with the verb: `sample.latents and sample.denoised hold`.
fn names<'h>(holders: impl Iterator<Item = &'h &'h HeldBy>) -> String {
    let names: IndexSet<&str> = holders.map(|holder| holder.variable.as_str()).collect();
    let verb = if names.len() == 1 { "holds" } else { "hold" };
    format!("{} {verb}", names.into_iter().collect::<Vec<&str>>().join(" and "))
}

/// What decides when the blocks of a group could end.
struct Known<'k, 'd, 'a> {
    device: &'d Device<'a>,
    held: &'k Held<'a>,
    calls: &'k ModelCalls,
    /// The last block that each exception keeps.
    failed: HashMap<&'k str, Instant>,
    /// Whether backward needs them.
    is_saved: bool,
}

impl Known<'_, '_, '_> {
    /// When a block could end: at the latest if this is a bound, otherwise at the earliest.
    fn end_of(&self, mistake: Mistake, block: &Block<'_>, bound: bool) -> Option<Instant> {
        let Self { device, calls, .. } = *self;
        let call = of_instant(calls, block.made.born);
        let end = match mistake {
            Mistake::Cycle if bound => {
                let lives = |&&(instant, _): &&(Instant, _)| block.made.born <= instant && instant < block.made.freed;
                self.held.instants.iter().filter(lives).map(|&(instant, _)| instant).min()?
            }
            // A variable may hold the last result until the next one is made.
            Mistake::Collection if bound => {
                calls.all.iter().find(|next| next.start >= call.map_or(0, |it| it.until))?.end
            }
            Mistake::Collection => call?.until,
            // The function that failed did not go on.
            Mistake::Exception => *self.failed.get(exception(block.holders.first()?)?)?,
            Mistake::Output if bound => calls.all.iter().find(|call| call.start >= block.made.born)?.start,
            _ => {
                let trained = call.filter(|call| call.backward.is_some() && self.is_saved);
                let returned = || returned(device, block.index, &block.made, bound);
                trained.map_or_else(returned, |call| behind_its_readers(device, call, &block.made))
            }
        };
        (end < block.made.freed).then_some(end)
    }
}

/// Whether the program may collect these blocks without reading them on the device: nothing joins them later.
fn is_collection(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> bool {
    let lasting = blocks.iter().filter(|block| outlived(calls, &block.made) >= LEAST_ELEMENTS).count();
    let Some(first) = blocks.first().filter(|_| lasting >= LEAST_ELEMENTS) else { return false };
    // An element may hold small tensors as well, of which any large one is a multiple.
    let size = blocks.iter().map(|block| block.made.requested).max().unwrap_or(0).max(1);
    let is_joined = |made: &Allocation| {
        made.born > first.made.born
            && made.requested.is_multiple_of(size)
            && made.requested / size >= blocks.len() as u64
    };
    let is_plain = |stack: StackId| device.roles().role(stack) == Role::Plain;
    !device.allocations_by(is_plain).any(|(_, made, _)| is_joined(made))
}

/// How many calls of a model run from start to end while a block is live.
fn outlived(calls: &ModelCalls, made: &Allocation) -> usize {
    calls.all.iter().filter(|call| made.born <= call.start && call.end < made.freed).count()
}

/// Whether calls make blocks like these again and again: a cache is made once for each layer.
fn is_repeated(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> bool {
    let others = alike(device, calls, blocks);
    let all = || blocks.iter().copied().chain(&others).map(|block| &block.made);
    bytes(all()) / LEAST_SET as u64 >= most_at_once(all()).0
}

/// Blocks of the same lines and sizes that no walk has seen, and that outlive their calls as well.
pub(super) fn alike<'h>(device: &Device<'_>, calls: &ModelCalls, seen: &[&Block<'h>]) -> Vec<Block<'h>> {
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
pub(super) fn freed_at_once(device: &Device<'_>, calls: &ModelCalls, blocks: &[&Block<'_>]) -> Vec<(u32, Instant)> {
    let stacks: HashSet<StackId> = blocks.iter().map(|block| device.track.stack_of(block.index as usize)).collect();
    let all = device.allocations_by(|stack| stacks.contains(&stack));
    let of_call = all.filter(|(_, made, _)| of_instant(calls, made.born).is_some());
    let ended = of_call.map(|(index, made, _)| (index, returned(device, index, made, true), made.freed));
    ended.filter(|&(_, end, freed)| end < freed).map(|(index, end, _)| (index, end)).collect()
}

/// The first instant after a block's allocation at which the module that allocated it is no longer running in this call (the program's
/// own, if this is a bound), or the function of the program: an entry with another way into it. Unless this is a bound, a module that goes back to an earlier line
/// counts as called again: a loop calls its layers by the same way.
pub(super) fn returned(device: &Device<'_>, index: u32, made: &Allocation, bound: bool) -> Instant {
    let (track, sites) = (device.track, device.sites());
    let (stacks, strings) = (&track.snapshot.stacks, &track.snapshot.strings);
    let frames = |stack: StackId| -> Vec<FrameId> { stacks.frame_ids(stack).iter().rev().copied().collect() };
    let own = frames(track.stack_of(index as usize));
    let is_forward = |&frame: &FrameId| {
        let name = stacks.frame(frame).map_or("", |frame| strings.get(frame.name));
        name == "forward" && (!bound || sites.kind(frame) != FrameKind::Torch)
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
pub(super) fn most_at_once<'b>(all: impl Iterator<Item = &'b Allocation>) -> Bytes {
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
    let (mut views, mut all, mut others) = (0, 0, 0);
    let mut known: Vec<(&HeldBy, bool)> = Vec::new();
    for index in changed.changed() {
        let HeldAs::Held(storage) = held.get(index as usize) else { continue };
        // That is a finding of its own.
        others +=
            usize::from(held.holders(storage).all(|holder| is_of_exception(holder) || holder.root == "unreachable"));
        let is_plain = |holder: &&HeldBy| holder.kind == HolderKind::Variable && !holder.library;
        let Some(holder) = held.holders(storage).find(is_plain) else { continue };
        all += storage.bytes;
        views += if storage.seen_bytes <= storage.bytes / SMALL_VIEW { storage.bytes } else { 0 };
        known.push((holder, device.history().allocations[index as usize].freed == NEVER));
    }
    let is_returned = |(holder, stays): &&(&HeldBy, bool)| *stays && holder.root == "global" && !holder.grows;
    if others * 2 > known.len() {
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
