//! Changes to the lifetimes of single blocks: freed earlier, placed elsewhere, smaller or removed. Fixes without their
//! own flag use these.

use super::rewrite::{AllocationSet, Patch, Rewrite, free};
use crate::facts::device::Device;
use crate::replay::Instant;
use crate::simulation::{Step, StepKind};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Changes to single allocations. Numbers are those of [`crate::replay::History::allocations`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    /// Allocations to free at another time, each right after an instant.
    pub freed: Vec<(u32, Instant)>,
    /// Allocations to make at another time, each right after an instant.
    pub made: Vec<(u32, Instant)>,
    /// Allocations to leave out.
    pub removed: Vec<u32>,
    /// Allocations to resize, each with its new requested bytes.
    pub resized: Vec<(u32, u64)>,
    /// Allocations to move, each with another one whose stream and pool it uses.
    pub beside: Vec<(u32, u32)>,
    /// Instants right after which the program calls `torch.cuda.empty_cache`.
    pub emptied: Vec<Instant>,
    /// Why figures may be far off, if they may.
    pub doubt: Option<&'static str>,
    /// Whether further changes, which are not included, would save more.
    pub at_least: bool,
}

impl Lifetimes {
    pub fn is_empty(&self) -> bool {
        let Self { freed, made, removed, resized, beside, emptied, doubt: _, at_least: _ } = self;
        freed.is_empty()
            && made.is_empty()
            && removed.is_empty()
            && resized.is_empty()
            && beside.is_empty()
            && emptied.is_empty()
    }

    /// The allocations that are freed at another time or left out.
    pub fn changed(&self) -> impl Iterator<Item = u32> {
        self.freed.iter().map(|&(index, _)| index).chain(self.removed.iter().copied())
    }

    /// Combines several of these changes: a removed allocation stays removed, and of two instants or sizes the one that
    /// needs less memory wins.
    pub fn merged<'l>(all: impl Iterator<Item = &'l Self>) -> Self {
        let (mut freed, mut made) = (BTreeMap::new(), BTreeMap::new());
        let (mut resized, mut beside) = (BTreeMap::new(), BTreeMap::new());
        let mut removed = BTreeSet::new();
        let mut emptied = BTreeSet::new();
        let (mut doubt, mut at_least) = (None, false);
        for lives in all {
            for &(allocation, instant) in &lives.freed {
                let known = freed.entry(allocation).or_insert(instant);
                *known = instant.min(*known);
            }
            for &(allocation, instant) in &lives.made {
                let known = made.entry(allocation).or_insert(instant);
                *known = instant.max(*known);
            }
            for &(allocation, bytes) in &lives.resized {
                let known = resized.entry(allocation).or_insert(bytes);
                *known = bytes.min(*known);
            }
            beside.extend(lives.beside.iter().copied());
            removed.extend(lives.removed.iter().copied());
            emptied.extend(lives.emptied.iter().copied());
            doubt = doubt.or(lives.doubt);
            at_least |= lives.at_least;
        }
        let stays = |allocation: &u32| !removed.contains(allocation);
        freed.retain(|allocation, _| stays(allocation));
        made.retain(|allocation, _| stays(allocation));
        resized.retain(|allocation, _| stays(allocation));
        beside.retain(|allocation, other| stays(allocation) && stays(other));
        Self {
            freed: freed.into_iter().collect(),
            made: made.into_iter().collect(),
            resized: resized.into_iter().collect(),
            beside: beside.into_iter().collect(),
            removed: removed.into_iter().collect(),
            emptied: emptied.into_iter().collect(),
            doubt,
            at_least,
        }
    }

    /// Allocated bytes that the changes save at an instant of the recording; `None` if only a simulation shows them.
    pub fn at_most(&self, device: &Device<'_>, instant: Instant) -> Option<u64> {
        if !self.beside.is_empty() || !self.emptied.is_empty() {
            return None;
        }
        let size = |index: u32| {
            let block = device.history().allocations.get(index as usize)?;
            block.allocated_at(instant).then_some(block.size)
        };
        let removed = self.removed.iter().filter_map(|&index| size(index));
        let moved = self.freed.iter().filter(|&&(_, at)| at < instant);
        let moved =
            moved.chain(self.made.iter().filter(|&&(_, at)| at >= instant)).filter_map(|&(index, _)| size(index));
        let resized = self.resized.iter().filter_map(|&(index, bytes)| Some(size(index)?.saturating_sub(bytes)));
        Some(removed.chain(moved).chain(resized).fold(0, u64::saturating_add))
    }
}

/// Applies the changes. Blocks from before the recording keep their places unless one of them is removed, resized or
/// moved: then all of them are requested again.
pub(super) fn apply(rewrite: &mut Rewrite, device: &Device<'_>, lives: &Lifetimes) {
    let resized = lives.resized.iter().map(|&(allocation, _)| allocation);
    let made = lives.made.iter().map(|&(allocation, _)| allocation);
    let beside = lives.beside.iter().map(|&(allocation, _)| allocation);
    let remade = lives.removed.iter().copied().chain(resized).chain(made).chain(beside);
    // Most programs start without blocks.
    let remade: AllocationSet = remade.filter(|_| rewrite.starts_with(|_| true)).collect();
    if rewrite.starts_with(|allocation| remade.contains(&allocation)) {
        rewrite.request_start();
    }
    put_beside(rewrite, &lives.beside);
    let is_timed = !(lives.emptied.is_empty() && lives.freed.is_empty() && lives.made.is_empty());
    let places = if is_timed { rewrite.places(device.history().entries()) } else { Vec::new() };
    let end = rewrite.program.steps.len();
    let place = |instant: Instant| places.get(instant as usize).copied().unwrap_or(end);
    let mut patch = Patch::default();
    for &instant in &lives.emptied {
        let step = Step { kind: StepKind::EmptyCache, pool: 0, allocation: u32::MAX, entry: instant, bytes: 0 };
        patch.insert(place(instant), step);
    }
    let freed: HashMap<u32, Instant, RandomState> = lives.freed.iter().copied().collect();
    let sizes: HashMap<u32, u64, RandomState> = lives.resized.iter().copied().collect();
    let moved: HashMap<u32, Instant, RandomState> = lives.made.iter().copied().collect();
    let requests = rewrite.program.steps.iter().filter(|step| step.kind == StepKind::Alloc);
    let requests = requests.filter(|step| moved.contains_key(&step.allocation)).copied();
    // Most changes move no request, and need not look at all of them.
    let requests: Vec<Step> = if moved.is_empty() { Vec::new() } else { requests.collect() };
    for step in requests {
        let instant = moved[&step.allocation];
        let bytes = sizes.get(&step.allocation).copied().unwrap_or(step.bytes);
        let allocation = rewrite.add(step.allocation);
        patch.remove(step.allocation);
        patch.insert(place(instant), Step { allocation, bytes, entry: instant, ..step });
        match freed.get(&step.allocation) {
            Some(&gone) => patch.insert(place(gone), free(allocation, gone)),
            None => patch.inherit(step.allocation, allocation),
        }
    }
    for &(allocation, instant) in lives.freed.iter().filter(|(allocation, _)| !moved.contains_key(allocation)) {
        patch.free_at(place(instant), allocation, instant);
    }
    for &allocation in &lives.removed {
        patch.remove(allocation);
    }
    for &(allocation, bytes) in &lives.resized {
        patch.resize(allocation, bytes);
    }
    rewrite.apply(patch);
}

/// Allocates blocks on the streams and in the pools of other blocks.
fn put_beside(rewrite: &mut Rewrite, beside: &[(u32, u32)]) {
    if beside.is_empty() {
        return;
    }
    let requests = rewrite.program.steps.iter().filter(|step| step.kind == StepKind::Alloc);
    let pools: HashMap<u32, u16, RandomState> = requests.map(|step| (step.allocation, step.pool)).collect();
    let wanted: HashMap<u32, u16, RandomState> =
        beside.iter().filter_map(|(allocation, other)| Some((*allocation, *pools.get(other)?))).collect();
    let steps = Arc::make_mut(&mut rewrite.program.steps);
    for step in steps.iter_mut().filter(|step| step.kind == StepKind::Alloc) {
        if let Some(&pool) = wanted.get(&step.allocation) {
            step.pool = pool;
        }
    }
}
