//! Recordings that run out of memory: the last complete step before the failure, and how much of it the failed step has
//! repeated.

use super::repeat::Repeat;
use super::sizes::{Reference, Sizes};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::model::{Action, StackId};
use crate::replay::{NEVER, Track};
use crate::simulation::{Program, Simulator, simulate};
use std::collections::HashSet;
use std::ops::Range;

/// The simulated part of a recording that runs out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The entry at which the last complete step before the failed request ends.
    pub end: u32,
    /// Number of requests of the failed step, including the one that failed.
    pub requests: usize,
    /// Of these, the number that match the complete step in stack, order and size.
    pub equal: usize,
    /// Whether the complete step is simulated with the sizes of the failed one; sizes that the failed step did not reach are upper
    /// bounds.
    pub is_resized: bool,
    /// Bytes of parameters that have no gradients in the complete step: another optimizer may train them in a step of its own.
    pub untrained: u64,
}

impl Unfinished {
    /// Whether the failed step makes the same requests as the complete one up to its failure: then memviz assumes that
    /// the rest would be the same.
    pub fn is_alike(&self) -> bool {
        self.requests > 0 && (self.requests - self.equal) * MOST_OTHER <= self.requests
    }
}

/// One request in this many may differ between two similar steps: the loss of one is still live, or a table is allocated
/// once.
const MOST_OTHER: usize = 20;
/// Number of equal requests in a row from which on two steps are matched again.
const ALIKE: usize = 3;
/// The same for requests of one stack, such as those of backward, which only their sizes tell apart.
const EQUAL: usize = 8;
/// Fewer parameters without gradients than 1/N of the others are unused ones.
const FEW: u64 = 20;
/// Number of requests before the first forward pass that may be the start of its step.
const LOOK_AHEAD: usize = 256;

const NONE: &str = "memviz found no complete training step before the first failed request, so what would have followed is \
                    unknown; record a step that fits, with a smaller batch";
const OTHER: &str = "the request that fails does not occur in the complete steps before it, so what would have followed is \
                     unknown; record a step that fits, with a smaller batch";
const REFUSED_OTHERWISE: &str = "in simulation, the failed request succeeds: something that is not recorded made it fail, such \
                                 as torch.cuda.set_per_process_memory_fraction";

/// The complete steps of a program that runs out of memory; the last of them is the step to repeat. An error gives the reason
/// if there are none, or if the failed step is a different one.
pub(super) fn complete_steps(
    device: &Device<'_>,
    simulator: &Simulator,
) -> Result<(Program, Unfinished, Repeat), &'static str> {
    let refused = simulator.program.refusals.first().map_or(0, |&(entry, _)| entry);
    let step = last_step(device, refused).ok_or(NONE)?;
    let setup = simulator.setup(&simulator.settings);
    if simulator.is_full_device && simulate(&simulator.program, &setup).failure().is_none() {
        return Err(REFUSED_OTHERWISE);
    }
    let failed = Requests::of(device.track, step.end..refused + 1);
    let complete = Requests::of(device.track, step.clone());
    let places = complete.places_of(&failed);
    places.last().copied().flatten().ok_or(OTHER)?;
    let is_equal = |(request, place): (&Request, &Option<usize>)| {
        place.is_some_and(|place| complete.0[place].bytes == request.bytes)
    };
    let equal = failed.0.iter().zip(&places).filter(|&pair| is_equal(pair)).count();
    let matched = places.iter().flatten().count();
    let mut unfinished = Unfinished {
        end: step.end,
        requests: failed.0.len(),
        equal,
        is_resized: false,
        untrained: untrained(device, &step),
    };
    let mut repeat = repeat(device, step.clone(), refused, &failed, &complete, &places);
    if !unfinished.is_alike() {
        if (failed.0.len() - matched) * MOST_OTHER > failed.0.len() {
            return Err(OTHER);
        }
        unfinished.is_resized = true;
        let reference = complete.0.iter().filter_map(|request| request.reference(device));
        let pairs = failed.0.iter().zip(&places).filter_map(|(request, place)| {
            Some((complete.0[(*place)?].reference(device)?.allocation, request.bytes.unsigned_abs()))
        });
        repeat.sizes = Some(Sizes::at_most(reference, pairs));
    }
    Ok((simulator.program.up_to(step.end), unfinished, repeat))
}

/// The entries of the last complete step before a refused request: one with an optimizer step, after which another forward
/// has started.
fn last_step(device: &Device<'_>, refused: u32) -> Option<Range<u32>> {
    let spans = || device.phases().spans.iter().filter(|span| span.start < refused);
    let mut ends: Vec<u32> = Vec::new();
    let (mut backward, mut optimizer) = (false, None);
    for span in spans() {
        match span.phase {
            Phase::Backward => (backward, optimizer) = (true, None),
            Phase::Optimizer if backward => optimizer = Some(span.end),
            Phase::Forward | Phase::Data => {
                ends.extend(optimizer.take());
                backward = false;
            }
            _ => {}
        }
    }
    let end = ends.pop()?;
    let start = ends.pop().or_else(|| {
        let first = spans().find(|span| matches!(span.phase, Phase::Forward | Phase::Data))?.start;
        Some(begin_of_first(device.track, first, end))
    })?;
    Some(start..end)
}

/// Bytes of parameters without gradients when the optimizer runs in a step; 0 if no gradients are known.
fn untrained(device: &Device<'_>, step: &Range<u32>) -> u64 {
    let live = |wanted: Category, at: u32| -> u64 {
        let made = device.allocations_of(wanted).map(|(_, made)| made);
        made.filter(|made| made.allocated_at(at)).map(|made| made.size).fold(0, u64::saturating_add)
    };
    let spans = device.phases().spans.iter().filter(|span| span.phase == Phase::Optimizer);
    let starts = spans.filter(|span| step.contains(&span.start)).map(|span| span.start);
    let gradients = starts.map(|start| live(Category::Gradient, start)).max().unwrap_or(0);
    let rest = live(Category::Parameter, step.end).saturating_sub(gradients);
    if gradients > 0 && rest > gradients / FEW { rest } else { 0 }
}

/// The start of the first step, whose forward pass is known: the first request after the last similar request of the next
/// step, since batches are copied to the device before forward starts.
fn begin_of_first(track: Track<'_>, forward: u32, end: u32) -> u32 {
    let is_alloc = |&entry: &u32| track.actions()[entry as usize] == Action::Alloc;
    let next = (end..track.entries()).find(is_alloc).map(|entry| (track.stack(entry), track.sizes()[entry as usize]));
    let before = (0..forward).rev().filter(is_alloc).take(LOOK_AHEAD);
    let is_like = |&entry: &u32| Some((track.stack(entry), track.sizes()[entry as usize])) == next;
    before.filter(is_like).last().unwrap_or(forward)
}

#[derive(Clone, Copy, Debug)]
struct Request {
    entry: u32,
    stack: StackId,
    bytes: i64,
}

struct Requests(Vec<Request>);

impl Request {
    /// What another run of the program tells about the size of this request.
    fn reference(&self, device: &Device<'_>) -> Option<Reference> {
        let allocation = *device.history().links.get(self.entry as usize)?;
        device.track.allocation(allocation as usize)?;
        Some(Reference::of(device, allocation, self.bytes.unsigned_abs()))
    }
}

impl Requests {
    fn of(track: Track<'_>, entries: Range<u32>) -> Self {
        let asks = |entry: &u32| matches!(track.actions()[*entry as usize], Action::Alloc | Action::Oom);
        // A refused request is recorded as rounded.
        let bytes = |entry: u32| match track.history.allocation_of(entry) {
            Some(made) if track.actions()[entry as usize] == Action::Alloc => made.requested as i64,
            _ => track.sizes()[entry as usize] as i64,
        };
        let request = |entry: u32| Request { entry, stack: track.stack(entry), bytes: bytes(entry) };
        Self(entries.filter(asks).map(request).collect())
    }

    /// For each request of another step, the index of the request that it repeats. Both steps are followed side by side;
    /// where they differ, matching continues at the nearest place from which a few requests agree.
    fn places_of(&self, other: &Self) -> Vec<Option<usize>> {
        let is_alike = |own: usize, others: usize| match (self.0.get(own), other.0.get(others)) {
            (Some(own), Some(others)) => own.stack == others.stack,
            _ => false,
        };
        // The refused request is the last; nothing after it can be compared.
        let agrees = |own: usize, others: usize| {
            let left = (other.0.len() - others).min(ALIKE);
            left > 0 && (0..left).all(|ahead| is_alike(own + ahead, others + ahead))
        };
        let is_equal = |own: usize, others: usize| is_alike(own, others) && self.0[own].bytes == other.0[others].bytes;
        // The size of the refused request is a rounded one.
        let last = other.0.len().saturating_sub(1);
        let agrees_in_size = |&(skip, skipped): &(usize, usize), own: usize, others: usize| {
            let left = last.saturating_sub(others + skipped).min(EQUAL);
            left > 0 && (0..left).all(|ahead| is_equal(own + skip + ahead, others + skipped + ahead))
        };
        let mut places = vec![None; other.0.len()];
        let (mut own, mut others) = (0, 0);
        while own < self.0.len() && others < other.0.len() {
            if is_alike(own, others) {
                // Only one of the steps makes a request here, such as that for a workspace, if without it both go on with equal sizes.
                let either = || (1..LOOK_AHEAD).flat_map(|skip| [(skip, 0), (0, skip)]);
                let is_other = others < last && !is_equal(own, others);
                if let Some((skip, skipped)) =
                    either().filter(|_| is_other).find(|skips| agrees_in_size(skips, own, others))
                {
                    (own, others) = (own + skip, others + skipped);
                    continue;
                }
                places[others] = Some(own);
                (own, others) = (own + 1, others + 1);
                continue;
            }
            let skips = (1..LOOK_AHEAD).flat_map(|both| (0..=both).map(move |skip| (skip, both - skip)));
            let met = skips
                .into_iter()
                .find(|&(skip, skipped)| others + skipped < other.0.len() && agrees(own + skip, others + skipped));
            let (skip, skipped) = met.unwrap_or((1, 1));
            (own, others) = (own + skip, others + skipped);
        }
        places
    }
}

/// How the complete step is repeated: which of its blocks the next step frees, and which are allocated once.
fn repeat(
    device: &Device<'_>,
    step: Range<u32>,
    refused: u32,
    failed: &Requests,
    complete: &Requests,
    places: &[Option<usize>],
) -> Repeat {
    let history = device.history();
    // The entry of the complete step at which the failed one is at an entry.
    let at = |entry: u32| {
        let next = failed.0.partition_point(|request| request.entry <= entry);
        let place = places[next..].iter().flatten().next();
        place.map_or(step.end, |&place| complete.0[place].entry)
    };
    let mut repeat = Repeat { entries: step.clone(), frees: Vec::new(), once: HashSet::new(), sizes: None };
    for (index, block) in (0u32..).zip(&history.allocations) {
        let is_of_step = step.start < block.born && block.born <= step.end;
        if !is_of_step || block.freed <= step.end {
            continue;
        }
        if block.freed != NEVER && block.freed <= refused {
            repeat.frees.push((at(block.freed - 1), index));
        } else if is_made_once(device, index) {
            repeat.once.insert(index);
        }
    }
    repeat.frees.sort_unstable();
    repeat
}

/// Whether an allocation that a step leaves behind serves all following steps.
fn is_made_once(device: &Device<'_>, index: u32) -> bool {
    let category = device.categories().get(index as usize).category;
    let born = device.history().allocations[index as usize].born;
    matches!(
        category,
        Category::OptimizerState
            | Category::Gradient
            | Category::Parameter
            | Category::Buffer
            | Category::ModelState
            | Category::Workspace
    ) || matches!(device.phases().at(born), Phase::Optimizer | Phase::Backward)
}
