//! Batches that lie on the device long before they are needed.
//!
//! A queue of them shows in the order in which they come and go: several are made before the first is used, then each step frees
//! the oldest one.

use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::play::changes::Lives;
use crate::replay::{Instant, NEVER};
use std::collections::BTreeMap;

/// Smaller blocks are no batches that anybody misses.
const SMALL: u64 = 64 << 10;
/// So many wait at least.
const LEAST_AHEAD: usize = 2;

/// One finding for each line that brings batches.
pub(super) fn find(device: &Device<'_>) -> Vec<Finding> {
    let (track, roles) = (device.track, device.roles());
    let mut of_line: BTreeMap<FrameId, Vec<u32>> = BTreeMap::new();
    for (index, allocation) in (0..).zip(&device.history().allocations) {
        let stack = track.stack_of(index as usize);
        let may_be_input = matches!(roles.role(stack), Role::Plain | Role::Data) && stack != StackId::EMPTY;
        if allocation.born == 0 || allocation.requested < SMALL || !may_be_input {
            continue;
        }
        if let Some(line) = device.sites().site_frame(stack) {
            of_line.entry(line).or_default().push(index);
        }
    }
    of_line.into_iter().filter_map(|(line, blocks)| finding(device, line, &blocks)).collect()
}

fn finding(device: &Device<'_>, line: FrameId, blocks: &[u32]) -> Option<Finding> {
    let history = device.history();
    let block = |index: &u32| history.allocations[*index as usize];
    let passes = passes(device);
    let pass = |instant: Instant| passes.partition_point(|&start| start <= instant);
    let first_use =
        passes.iter().copied().find(|&start| blocks.first().is_some_and(|first| block(first).born < start))?;
    // What is there in the last pass may be used in it, or wait for one that was not recorded.
    let is_left = |index: &u32| block(index).freed == NEVER || pass(block(index).freed) >= passes.len();
    let used: Vec<u32> = blocks.iter().copied().take_while(|index| !is_left(index)).collect();
    let left = &blocks[used.len()..];
    // A batch is what goes together, in the order in which it was made.
    let batches: Vec<&[u32]> = used.chunk_by(|a, b| pass(block(a).freed) == pass(block(b).freed)).collect();
    let tensors = batches.first().map_or(1, |batch| batch.len());
    let freed = |batch: &[u32]| batch.iter().map(|index| block(index).freed).max().unwrap_or(NEVER);
    let is_in_order = batches.windows(2).all(|pair| freed(pair[0]) < freed(pair[1]) && pair[0].len() == pair[1].len());
    let at_first = blocks.iter().filter(|index| block(index).born < first_use).count() / tensors;
    if !is_in_order || !left.iter().all(is_left) || batches.len() < LEAST_AHEAD || at_first <= LEAST_AHEAD {
        return None;
    }
    // A batch is used from where the one before it is let go of.
    let mut lives = Lives::default();
    let next = left.chunks(tensors).next();
    for (gone, batch) in batches.iter().map(|batch| freed(batch)).zip(batches[1..].iter().copied().chain(next)) {
        let early = batch.iter().filter(|index| block(index).born < gone - 1);
        lives.made.extend(early.map(|&index| (index, gone - 1)));
    }
    lives.removed.extend(left.iter().skip(tensors));
    let most = passes.iter().map(|&start| {
        blocks
            .iter()
            .filter(|index| block(index).allocated_at(start))
            .map(|index| block(index).size)
            .fold(0, u64::saturating_add)
    });
    Some(Finding {
        story: Story::DataloaderPrefetchGpu,
        line: Some(line),
        cure: "move each batch to the device when it is needed".to_owned(),
        evidence: format!(
            "{at_first} batches are on the device before the first is used, and each step frees the oldest one: up to {} at \
             most",
            Bytes(most.max().unwrap_or(0))
        ),
        cost: Some("with pinned memory and non_blocking=True, one batch ahead is enough to hide the copy".to_owned()),
        code: vec![
            "batch = [t.pin_memory().to(\"cuda\", non_blocking=True) for t in batch]  # one at a time".to_owned(),
        ],
        remedy: Remedy::Lives(lives),
    })
}

/// Instants at which forward passes begin.
fn passes(device: &Device<'_>) -> Vec<Instant> {
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
