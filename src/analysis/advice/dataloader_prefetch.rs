//! Batches are on the device long before they are needed: a queue that is filled ahead, or a list of all batches.
//!
//! **Sign:** several batches are allocated before the first is used, then each step frees the oldest one; or at least four blocks
//! of one size, as many as there are passes, are allocated before the first pass and stay live.
//!
//! **Fix:** move each batch to the device when it is needed. With pinned memory and `non_blocking=True`, one batch ahead hides
//! the copy.
//!
//! **Figures** are simulated with batches that start with their steps. They are a lower bound, since a variable may hold a batch
//! until the next one is moved.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Instant, NEVER};
use crate::simulation::changes::Lifetimes;
use std::collections::BTreeMap;

/// Smaller blocks are not worth reporting as batches.
const SMALL: u64 = 64 << 10;
const LEAST_AHEAD: usize = 2;
/// Least number of batches in a list: a layer or two may also have tensors of one size.
const LEAST_STORED: usize = 4;

const CHANGE: &str = "move each batch to the device when it is needed";
const CODE: &str = "batch = [t.pin_memory().to(\"cuda\", non_blocking=True) for t in batch]  # one batch at a time";

/// One finding for each line that loads batches.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let roles = device.roles();
    let mut of_line: BTreeMap<FrameId, Vec<u32>> = BTreeMap::new();
    // Batches that are loaded ahead are first loaded where the loader is created.
    let may_load =
        |stack: StackId| matches!(roles.role(stack), Role::Plain | Role::Data | Role::Setup) && stack != StackId::EMPTY;
    for (index, allocation, stack) in device.allocations_by(may_load) {
        if allocation.born == 0 || allocation.requested < SMALL {
            continue;
        }
        if let Some(line) = device.sites().site_frame(stack) {
            of_line.entry(line).or_default().push(index);
        }
    }
    let findings = of_line
        .into_iter()
        .filter_map(|(line, blocks)| queued(device, line, &blocks).or_else(|| stored(device, line, &blocks)));
    findings.collect()
}

fn queued(device: &Device<'_>, line: FrameId, blocks: &[u32]) -> Option<Finding> {
    let history = device.history();
    let block = |index: &u32| history.allocations[*index as usize];
    let passes = passes(device);
    let pass = |instant: Instant| passes.partition_point(|&start| start <= instant);
    let first_use =
        passes.iter().copied().find(|&start| blocks.first().is_some_and(|first| block(first).born < start))?;
    // Batches that are live in the last pass may be used in it, or wait for a pass that was not recorded.
    let is_left = |index: &u32| block(index).freed == NEVER || pass(block(index).freed) >= passes.len();
    let used: Vec<u32> = blocks.iter().copied().take_while(|index| !is_left(index)).collect();
    let left = &blocks[used.len()..];
    // The tensors of a batch are freed together, in the order in which they were allocated.
    let batches: Vec<&[u32]> = used.chunk_by(|a, b| pass(block(a).freed) == pass(block(b).freed)).collect();
    let tensors = batches.first().map_or(1, |batch| batch.len());
    let freed = |batch: &[u32]| batch.iter().map(|index| block(index).freed).max().unwrap_or(NEVER);
    let is_in_order = batches.windows(2).all(|pair| freed(pair[0]) < freed(pair[1]) && pair[0].len() == pair[1].len());
    let at_first = blocks.iter().filter(|index| block(index).born < first_use).count() / tensors;
    if !is_in_order || !left.iter().all(is_left) || batches.len() < LEAST_AHEAD || at_first <= LEAST_AHEAD {
        return None;
    }
    // A batch is used from the release of the previous one on: before that, where its line rebinds the variable.
    let next = left.chunks(tensors).next();
    let lives = |is_bound: bool| {
        let mut lives = Lifetimes::default();
        for (gone, batch) in batches.iter().map(|batch| freed(batch)).zip(batches[1..].iter().copied().chain(next)) {
            let at = if is_bound { gone - 1 } else { gone };
            let early = batch.iter().filter(|index| block(index).born < at);
            lives.made.extend(early.map(|&index| (index, at)));
        }
        lives.removed.extend(left.iter().skip(tensors));
        lives
    };
    let most = passes.iter().map(|&start| {
        blocks
            .iter()
            .filter(|index| block(index).allocated_at(start))
            .map(|index| block(index).size)
            .fold(0, u64::saturating_add)
    });
    let evidence = format!(
        "{at_first} batches are on the device before the first is used, and each step frees the oldest one; together they hold up to {}",
        Bytes(most.max().unwrap_or(0))
    );
    let unknown = "a variable may keep a batch until the next one is moved";
    Some(finding(line, evidence, Fix::up_to(CHANGE, [CODE], lives(true), lives(false), unknown)))
}

/// Batches of a list that is on the device before the first step, or before the first of each epoch.
fn stored(device: &Device<'_>, line: FrameId, blocks: &[u32]) -> Option<Finding> {
    let history = device.history();
    let block = |index: &u32| history.allocations[*index as usize];
    let size = |index: &u32| block(index).requested;
    let starts = passes(device);
    let spans = &device.phases().spans;
    let backward: Vec<Instant> =
        spans.iter().filter(|span| span.phase == Phase::Backward).map(|span| span.end).collect();
    // The next tensor with the size of the first one starts a new batch.
    let tensors = 1 + blocks[1..].iter().position(|index| size(index) == size(&blocks[0]))?;
    let passes_before = |index: &u32| starts.partition_point(|&start| start < block(index).born);
    let lists: Vec<&[u32]> = blocks.chunk_by(|a, b| passes_before(a) == passes_before(b)).collect();
    let mut lives = Lifetimes {
        doubt: Some("the recording does not show whether each step uses a different batch"),
        ..Lifetimes::default()
    };
    let mut is_one_each = true;
    for (place, list) in lists.iter().enumerate() {
        let begin = list.first().map_or(0, |index| block(index).born);
        let end = lists.get(place + 1).and_then(|next| next.first()).map_or(NEVER, |index| block(index).born);
        let within = |instants: &[Instant]| -> Vec<Instant> {
            instants.iter().copied().filter(|instant| (begin..end).contains(instant)).collect()
        };
        let epoch = Epoch { starts: within(&starts), backward: within(&backward) };
        is_one_each &= epoch.add(device, list, tensors, &mut lives)?;
    }
    let batches: Vec<&[u32]> = blocks.chunks(tensors).collect();
    let is_of_model = |index: &u32| {
        let others = (0u32..).zip(&history.allocations).filter(|(_, other)| other.requested == size(index));
        others.into_iter().any(|(other, _)| !is_unnamed(device, other))
    };
    // Unlike weights, batches that are used again in each epoch have no gradients.
    let is_only_here = |index: &u32| {
        history.allocations.iter().filter(|other| other.requested == size(index)).count() == batches.len()
    };
    let may_be_data = is_one_each || tensors > 1 && batches[0].iter().any(is_only_here);
    if !may_be_data || batches[0].iter().any(is_of_model) {
        return None;
    }
    let longest = lists.iter().copied().max_by_key(|list| list.len())?;
    let bytes = longest.iter().map(|index| block(index).size).fold(0, u64::saturating_add);
    let count = longest.len() / tensors;
    let what = if tensors == 1 {
        format!("{count} tensors of the same size")
    } else {
        format!("{count} batches of {tensors} tensors")
    };
    let each = if is_one_each { ", at least one for each step," } else { "" };
    let (when, until) = if lists.len() == 1 {
        ("before the first step", "are never freed")
    } else {
        ("before the first step of an epoch", "stay until the next list is made")
    };
    let evidence = format!("{what} are allocated here {when}{each} and {until}: {}", Bytes(bytes));
    Some(finding(line, evidence, Fix::new(CHANGE, [CODE], lives)))
}

/// The passes that use a list of batches.
struct Epoch {
    /// Where forward passes begin, and where backward passes end.
    starts: Vec<Instant>,
    backward: Vec<Instant>,
}

impl Epoch {
    /// Adds what changes if the batches are moved to the device one at a time, and returns whether there is one for
    /// each pass. Returns `None` if this is no list of batches with this number of tensors.
    fn add(&self, device: &Device<'_>, list: &[u32], tensors: usize, lives: &mut Lifetimes) -> Option<bool> {
        let block = |index: &u32| device.history().allocations[*index as usize];
        let size = |index: &u32| block(index).requested;
        let (first, last) = (*self.starts.first()?, *self.backward.last()?);
        let batches: Vec<&[u32]> = list.chunks(tensors).collect();
        let is_alike = |batch: &&[u32]| batch.iter().map(size).eq(batches[0].iter().map(size));
        let is_kept = |index: &u32| {
            let made = block(index);
            made.born <= first && made.freed > last && is_unnamed(device, *index)
        };
        if self.backward.len() < LEAST_AHEAD
            || batches.len() < LEAST_STORED
            || !batches.iter().all(is_alike)
            || !list.iter().all(is_kept)
        {
            return None;
        }
        let is_one_each = batches.len() >= self.backward.len();
        if !is_one_each {
            // One at a time, repeatedly.
            lives.removed.extend(&list[tensors..]);
            return Some(false);
        }
        // Each is live from the start to the end of the pass that uses it.
        for (place, batch) in batches.iter().enumerate() {
            let before = place.checked_sub(1).map_or(Some(0), |before| self.backward.get(before).copied());
            let start = before.and_then(|before| self.starts.iter().copied().find(|&start| start > before));
            match (start, self.backward.get(place)) {
                (Some(start), Some(&end)) => {
                    lives.made.extend(batch.iter().map(|&index| (index, start.saturating_sub(1))));
                    lives.freed.extend(batch.iter().map(|&index| (index, end)));
                }
                _ => lives.removed.extend(batch.iter()),
            }
        }
        Some(true)
    }
}

/// Whether a block is not known to be part of a model, an optimizer or a cache.
fn is_unnamed(device: &Device<'_>, index: u32) -> bool {
    matches!(
        device.categories().get(index as usize).category,
        Category::Unknown | Category::Input | Category::Activation | Category::Temporary
    )
}

fn finding(line: FrameId, evidence: String, fix: Fix) -> Finding {
    Finding {
        kind: RuleKind::DataloaderPrefetchGpu,
        line: Some(line),
        evidence,
        cost: Some("with pinned memory and non_blocking=True, one batch ahead is enough to hide the copy".to_owned()),
        fixes: vec![fix],
    }
}

pub(super) fn passes(device: &Device<'_>) -> Vec<Instant> {
    let spans = &device.phases().spans;
    let mut passes = Vec::new();
    let mut is_open = false;
    for span in spans {
        match span.phase {
            Phase::Forward if !is_open => {
                passes.push(span.start);
                is_open = true;
            }
            Phase::Forward => {}
            _ => is_open = false,
        }
    }
    passes
}
