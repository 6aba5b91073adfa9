//! A list or dictionary gets a new element again and again, and none is removed: caches of requests that are done, or copies of the
//! weights of every epoch.
//!
//! **Sign:** a walk over the references of the program found blocks in at least three elements of a global variable or of an
//! attribute. Calls of the model lie between them, and none of them is ever freed.
//!
//! **Fix:** remove elements once they are done, or move them to the CPU; the line is the one that stores them.
//!
//! **Figures** are simulated with elements that end when the next one is stored, or at once.

use super::held::{Block, blocks, bytes, returned};
use super::kept_over_steps::is_of_forward;
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::model::holders::{HeldBy, HolderKind};
use crate::replay::{Instant, Metric, NEVER};
use crate::simulation::changes::Lifetimes;
use indexmap::IndexMap;
use std::collections::HashSet;

/// Least number of elements.
const LEAST_ELEMENTS: usize = 3;
/// Collections are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 50;

/// The blocks of a collection's elements, in the order of their allocation.
type Elements<'b, 'h> = IndexMap<&'h str, Vec<&'b Block<'h>>>;

/// One finding for each collection.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let Some(held) = device.held() else { return Vec::new() };
    let blocks = blocks(device, held);
    let mut collections: IndexMap<&str, (Elements<'_, '_>, &HeldBy)> = IndexMap::new();
    for block in &blocks {
        if let Some((holder, collection, element)) = element(device, block) {
            let (elements, _) = collections.entry(collection).or_insert_with(|| (Elements::new(), holder));
            elements.entry(element).or_default().push(block);
        }
    }
    let peak = device.history().maxima[Metric::Allocated as usize].bytes.max(0) as u64;
    let called =
        |from: Instant, to: Instant| calls.all.iter().filter(|call| from < call.start && call.start < to).count();
    let found = collections.into_iter().filter_map(|(collection, (elements, holder))| {
        let starts: Vec<Instant> = elements.values().filter_map(|blocks| Some(blocks.first()?.made.born)).collect();
        let total = bytes(elements.values().flatten().map(|block| &block.made));
        let between: Vec<usize> = starts.windows(2).map(|pair| called(pair[0], pair[1])).collect();
        // A cache of all data is full after the first epoch.
        let last = starts.last().map_or(0, |&last| called(last, NEVER));
        let is_growing = elements.len() >= LEAST_ELEMENTS
            && total >= peak / NOTABLE_PART
            && between.iter().filter(|&&calls| calls > 0).count() + 1 >= elements.len() / 2
            && last <= between.iter().max().map_or(0, |most| 2 * most)
            && !is_bounded(device, &elements);
        is_growing.then(|| finding(device, collection, &elements, holder, total))
    });
    found.collect()
}

/// The collection and the element that alone hold a block.
fn element<'h>(device: &Device<'_>, block: &Block<'h>) -> Option<(&'h HeldBy, &'h str, &'h str)> {
    if block.made.freed != NEVER || block.holders.iter().any(|holder| holder.kind != HolderKind::Variable) {
        return None;
    }
    // What a step collects from forward passes is a rule of its own.
    let category = device.categories().get(block.index as usize).category;
    if category != Category::KvCache && is_of_forward(device, block.index, &block.made) {
        return None;
    }
    let is_stored = |holder: &&&HeldBy| {
        holder.grows && !holder.library && (holder.root == "global" || holder.path.contains("self."))
    };
    let holder = *block.holders.iter().find(is_stored)?;
    let (collection, rest) = holder.path.split_once('[')?;
    Some((holder, collection, rest.split(']').next()?))
}

/// Whether older blocks of the same lines and sizes have been freed, as by a queue.
fn is_bounded(device: &Device<'_>, elements: &Elements<'_, '_>) -> bool {
    let stack = |block: &Block<'_>| device.track.stack_of(block.index as usize);
    let kinds: HashSet<_> = elements.values().flatten().map(|block| (stack(block), block.made.requested)).collect();
    let starts = || elements.values().filter_map(|blocks| Some(blocks.first()?.made.born));
    let (Some(first), Some(next)) = (starts().next(), starts().nth(1)) else { return false };
    device.allocations_by(|stack| kinds.iter().any(|kind| kind.0 == stack)).any(|(_, made, stack)| {
        let lived = made.freed != NEVER && made.freed - made.born >= next - first;
        lived && kinds.contains(&(stack, made.requested))
    })
}

fn finding(device: &Device<'_>, collection: &str, elements: &Elements<'_, '_>, holder: &HeldBy, total: u64) -> Finding {
    let ends = elements.values().skip(1).filter_map(|blocks| Some(blocks.first()?.made.born)).chain([NEVER]);
    let least =
        elements.values().zip(ends).flat_map(|(blocks, end)| blocks.iter().map(move |block| (block.index, end)));
    let most =
        elements.values().flatten().map(|block| (block.index, returned(device, block.index, &block.made, false)));
    let lives = |freed: Vec<(u32, Instant)>| Lifetimes {
        freed: freed.into_iter().filter(|&(_, end)| end != NEVER).collect(),
        ..Lifetimes::default()
    };
    let name = collection.rsplit('.').next().unwrap_or(collection);
    Finding {
        kind: RuleKind::Held,
        line: holder.frame,
        evidence: format!(
            "{collection} has grown to {} elements, which hold {}; none of them was freed",
            elements.len(),
            Bytes(total)
        ),
        cost: None,
        fixes: vec![Fix::up_to(
            format!("remove elements from {name} once they are done, or move them to the CPU"),
            [format!("{name}.pop(...)  # or store copies on the CPU: value.cpu()")],
            lives(least.collect()),
            lives(most.collect()),
            "it is not known whether the newest element is needed",
        )],
    }
}
