//! A cache grows by copying: keys and values of generated tokens, or results, that `torch.cat` appends to. Old and new copy are
//! live at once, and each new one fits into none of the free blocks that earlier copies left.
//!
//! **Sign:** at least four copies of one line, each larger than the previous one by the same number of bytes.
//!
//! **Fix:** allocate the cache once, at its full length, and write into it. For results that only code on the CPU reads, move
//! what is appended there.
//!
//! **Figures** are simulated with one block of the last size from the first copy on.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Role;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, History, Instant};
use crate::simulation::changes::Lifetimes;
use crate::sorting::SortRows;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const LEAST_COPIES: usize = 4;
/// Smaller caches are not worth reporting.
const SMALL: u64 = 64 << 10;

/// The other fix, for results that are appended.
const COLLECTED: &str = "move the appended tensors to the CPU, if only CPU code reads them";
const COLLECTED_CODE: &str = "results = torch.cat([results, new.cpu()])";

/// One cache: its copies, each computed from the previous one.
#[derive(Clone, Debug, Default)]
struct Cache {
    copies: Vec<u32>,
    grows_by: u64,
}

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let snapshot = device.snapshot();
    let mut of_function = BTreeMap::new();
    for (stack, blocks) in (0u32..).map(StackId).zip(may_grow(device)) {
        let caches = caches(device, &blocks);
        let Some(line) = device.sites().site_frame(stack).filter(|_| !caches.is_empty() && !is_of_layer(device, stack))
        else {
            continue;
        };
        let Some(frame) = snapshot.stacks.frame(line) else { continue };
        let (first, all) =
            of_function.entry((frame.filename, frame.name)).or_insert_with(|| (line, Vec::<Cache>::new()));
        if snapshot.stacks.frame(*first).is_some_and(|known| frame.line < known.line) {
            *first = line;
        }
        all.extend(caches);
    }
    of_function.into_values().map(|(line, caches)| finding(device, line, &caches)).collect()
}

/// The allocations of each stack that may be copies of a cache: none of a stack with fewer different sizes than a growing cache
/// has.
fn may_grow(device: &Device<'_>) -> Vec<Vec<u32>> {
    let stacks = device.snapshot().stacks.len();
    // Different sizes of each stack; 0 stands for none.
    let mut sizes = vec![[0; LEAST_COPIES]; stacks];
    let mut blocks = vec![Vec::new(); stacks];
    for (index, made, stack) in device.track.allocations() {
        if made.born == 0 || made.requested < SMALL || stack == StackId::EMPTY || stack.index() >= stacks {
            continue;
        }
        blocks[stack.index()].push(index);
        let free = sizes[stack.index()].iter_mut().find(|size| **size == made.requested || **size == 0);
        if let Some(free) = free {
            *free = made.requested;
        }
    }
    for (blocks, sizes) in blocks.iter_mut().zip(sizes) {
        if sizes.contains(&0) {
            *blocks = Vec::new();
        }
    }
    blocks
}

/// Whether a layer of PyTorch computes what a stack allocates, such as logits of a prompt that gets longer.
fn is_of_layer(device: &Device<'_>, stack: StackId) -> bool {
    let (snapshot, sites) = (device.snapshot(), device.sites());
    let mut python = snapshot.stacks.frame_ids(stack).iter().filter(|&&frame| sites.kind(frame).is_python());
    let innermost = python.next().and_then(|&frame| snapshot.stacks.frame(frame));
    innermost.is_some_and(|frame| snapshot.strings.get(frame.filename).contains("torch/nn/modules/"))
}

fn caches(device: &Device<'_>, blocks: &[u32]) -> Vec<Cache> {
    let history = device.history();
    let block = |index: u32| history.allocations[index as usize];
    // Caches that have not grown further yet, by their size, in order of allocation.
    let mut open: HashMap<u64, Vec<Cache>> = HashMap::new();
    let mut steps: Vec<u64> = Vec::new();
    let mut done = Vec::new();
    for &index in blocks {
        let Allocation { requested, born, .. } = block(index);
        // Two consecutive copies always differ by the same number of bytes: a known difference, or any small one.
        let from = |size: &u64| requested > *size && requested - *size <= *size;
        let known = steps.iter().map(|step| requested.saturating_sub(*step)).find(|size| open.contains_key(size));
        let mut candidates: Vec<u64> =
            known.map_or_else(|| open.keys().copied().filter(from).collect(), |size| vec![size]);
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let mut cache = Cache::default();
        for size in candidates {
            let Some(waiting) = open.get_mut(&size) else { continue };
            let is_source = |cache: &Cache| {
                let last = cache.copies.last().map(|&last| block(last));
                let grows = requested - size;
                last.is_some_and(|last| last.allocated_at(born)) && (cache.grows_by == 0 || cache.grows_by == grows)
            };
            if let Some(place) = waiting.iter().position(is_source) {
                cache = waiting.remove(place);
                cache.grows_by = requested - size;
                if !steps.contains(&cache.grows_by) && steps.len() < LEAST_COPIES {
                    steps.push(cache.grows_by);
                }
                break;
            }
        }
        cache.copies.push(index);
        open.entry(requested).or_default().push(cache);
        // A freed cache no longer grows.
        if open.len() > 2 * LEAST_COPIES {
            for waiting in open.values_mut() {
                let (alive, dead): (Vec<Cache>, Vec<Cache>) = std::mem::take(waiting)
                    .into_iter()
                    .partition(|cache| cache.copies.last().is_some_and(|&last| block(last).allocated_at(born)));
                *waiting = alive;
                done.extend(dead);
            }
            open.retain(|_, waiting| !waiting.is_empty());
        }
    }
    done.extend(open.into_values().flatten());
    // Each is freed once the next one is complete.
    let is_replaced = |cache: &Cache| {
        let pairs = cache.copies.windows(2).map(|pair| (block(pair[0]), block(pair[1])));
        let mut later = cache.copies.iter().skip(2).map(|&index| block(index).born);
        pairs.map(|(old, _)| old.freed).all(|freed| later.next().is_none_or(|third| freed <= third))
    };
    done.retain(|cache| cache.copies.len() >= LEAST_COPIES && is_replaced(cache));
    done.sort_rows_by_key(|cache| cache.copies.first().copied());
    done
}

fn finding(device: &Device<'_>, line: FrameId, caches: &[Cache]) -> Finding {
    let history = device.history();
    let block = |index: u32| history.allocations[index as usize];
    let mut lives = Lifetimes::default();
    let seeds = seeds(device, caches);
    let before = seeds.first().map(|&seed| block(seed).born.saturating_sub(1));
    for cache in caches {
        let [first, .., last] = cache.copies[..] else { continue };
        // The copy from before the recording has no stack.
        let older = older(device, cache);
        lives.removed.extend(&cache.copies[usize::from(older.is_none())..]);
        let first = older.unwrap_or(first);
        let largest = cache.copies.iter().map(|&copy| block(copy).requested).max().unwrap_or(0);
        lives.resized.push((first, largest));
        lives.freed.push((first, block(last).freed.saturating_sub(1)));
        if let Some(before) = before.filter(|&before| before < block(first).born) {
            lives.made.push((first, before));
        }
    }
    // The sources of the first copies are written to the cache at once, and are freed with the call that allocated them.
    for (place, &seed) in seeds.iter().enumerate() {
        let born = block(seed).born;
        let next = seeds.get(place + 1).map(|&next| block(next).born);
        let gap = place.checked_sub(1).and_then(|before| seeds.get(before)).map(|&before| born - block(before).born);
        let end = next.or_else(|| gap.map(|gap| born.saturating_add(gap)));
        let end = end.into_iter().chain(returns(device, seed)).min();
        if let Some(end) = end.map(|end| end.saturating_sub(1)).filter(|&end| born < end && end < block(seed).freed) {
            lives.freed.push((seed, end));
        }
    }
    let copies = caches.iter().map(|cache| cache.copies.len()).max().unwrap_or(0);
    let grows_by: u64 = caches.iter().map(|cache| cache.grows_by).fold(0, u64::saturating_add);
    let first = Fix::new(
        "allocate the cache once, at its full length, and write into it",
        [
            "cache = torch.zeros(full_shape, dtype=new.dtype, device=new.device)  # once",
            "cache.narrow(dim, n, new.shape[dim]).copy_(new)  # dim is the dimension that grows, n the current length",
        ],
        lives,
    );
    let other = collected(device, caches).map(|collected| Fix::new(COLLECTED, [COLLECTED_CODE], collected));
    Finding {
        kind: RuleKind::KvCacheGrowth,
        line: Some(line),
        evidence: format!(
            "the program copies {} {copies} times; each copy is {} larger than the previous one",
            if caches.len() == 1 { "a cache".to_owned() } else { format!("a cache of {} tensors", caches.len()) },
            Bytes(grows_by)
        ),
        cost: None,
        fixes: std::iter::once(first).chain(other).collect(),
    }
}

/// Nothing that is appended stays on the device. Code outside of modules may append results; a model reads its cache.
fn collected(device: &Device<'_>, caches: &[Cache]) -> Option<Lifetimes> {
    let copies: Vec<u32> = caches.iter().flat_map(|cache| cache.copies.iter().copied()).collect();
    let is_plain = |index: &u32| device.roles().role(device.track.stack_of(*index as usize)) == Role::Plain;
    copies.iter().all(is_plain).then(|| Lifetimes { removed: copies, ..Lifetimes::default() })
}

/// The copy from before the recording from which the first recorded one is computed.
fn older(device: &Device<'_>, cache: &Cache) -> Option<u32> {
    let all = &device.history().allocations;
    let [first, second, ..] = cache.copies[..] else { return None };
    let (first, second) = (all[first as usize], all[second as usize]);
    let size = first.requested.saturating_sub(cache.grows_by);
    let before = (0..).zip(all).take_while(|(_, block)| block.born == 0);
    let is_source =
        |block: &Allocation| size > 0 && block.requested == size && (first.born..=second.born).contains(&block.freed);
    before.filter(|(_, block)| is_source(block)).map(|(index, _)| index).next()
}

/// The sources of the first copies, in order: blocks that are freed where replaced copies are freed, after the first
/// copies and before the second ones.
fn seeds(device: &Device<'_>, caches: &[Cache]) -> Vec<u32> {
    let (track, history) = (device.track, device.history());
    let block = |index: u32| history.allocations[index as usize];
    let copies: BTreeSet<u32> = caches.iter().flat_map(|cache| cache.copies.iter().copied()).collect();
    let freed_by = |allocation: &Allocation| {
        History::entry_before(allocation.freed)
            .filter(|&entry| entry < history.entries())
            .map(|entry| track.stack(entry))
    };
    let replaced = caches.iter().filter_map(|cache| cache.copies.first()).filter_map(|&copy| freed_by(&block(copy)));
    let replaced: BTreeSet<StackId> = replaced.collect();
    let first: Option<Instant> =
        caches.iter().filter_map(|cache| cache.copies.first()).map(|&copy| block(copy).born).min();
    let second: Option<Instant> =
        caches.iter().filter_map(|cache| cache.copies.get(1)).map(|&copy| block(copy).born).min();
    let (Some(first), Some(second)) = (first, second) else { return Vec::new() };
    let is_seed = |(index, allocation): &(u32, &Allocation)| {
        let is_source = allocation.born > 0 && allocation.born < first && (first..=second).contains(&allocation.freed);
        is_source
            && allocation.requested >= SMALL
            && !copies.contains(index)
            && freed_by(allocation).is_some_and(|stack| stack != StackId::EMPTY && replaced.contains(&stack))
    };
    (0..).zip(&history.allocations).filter(is_seed).map(|(index, _)| index).collect()
}

/// The instant at which the user's function that allocates a block has returned to the same line of its caller.
fn returns(device: &Device<'_>, index: u32) -> Option<Instant> {
    let (track, stacks) = (device.track, &device.snapshot().stacks);
    let function = |frame: FrameId| stacks.frame(frame).map(|frame| (frame.filename, frame.name));
    let frames = stacks.frame_ids(track.stack_of(index as usize));
    let own = frames.iter().position(|&frame| device.sites().is_own(frame))?;
    let callers = &frames[own + 1..];
    let is_in = |stack: StackId| {
        let inner = stacks.frame_ids(stack).strip_suffix(callers);
        inner.and_then(|inner| inner.last()).is_some_and(|&frame| function(frame) == function(frames[own]))
    };
    let is_behind = |&entry: &Instant| {
        let stack = track.stack(entry);
        stack != StackId::EMPTY && device.sites().has_python(stack) && !is_in(stack)
    };
    (track.allocation(index as usize)?.born..track.entries()).find(is_behind)
}
