//! Steps where nothing names them: a loop allocates from the same places again and again.
//!
//! A place that a loop passes once per round shows up in the trace at equal distances, counted in allocations. Batches
//! may change their size and the allocator its mood: what a round asks for, and from where, does not. Of several loops
//! one around the other the outermost is taken, since that is what people call a step.

use crate::model::{Action, Snapshot, StackId};
use crate::replay::{History, Instant};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// A loop found in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The instant right after the last place in each round that only one allocation per round comes from.
    pub ends: Vec<Instant>,
    /// The stack of those allocations; empty where sizes had to do.
    pub stack: StackId,
}

/// Rounds of fewer allocations are loops over tensors, not steps.
const MIN_ROUND: u64 = 8;
/// Fewer rounds are no repetition.
const MIN_ROUNDS: u32 = 3;
/// An outer loop of fewer rounds gives way to the inner one: it has too few for a verdict.
const ENOUGH_ROUNDS: u32 = 4;

/// Where the allocations of one place are, counted in allocations.
struct Place {
    first: u64,
    last: u64,
    count: u32,
}

/// The outermost loop of a history: one that fills at least half of it, with four rounds in five equally long (give or
/// take a quarter). The first round may be longer, since it creates optimizer state and workspaces.
pub(super) fn find(snapshot: &Snapshot, history: &History) -> Option<Repetition> {
    let actions = snapshot.entries.actions().get(history.rows.clone())?;
    let allocs = || {
        let rows = actions.iter().enumerate().filter(|&(_, &action)| action == Action::Alloc);
        rows.map(|(entry, _)| (entry, history.rows.start + entry)).zip(0u64..)
    };
    // Without any stacks, allocations of one size stand for one place.
    let has_stacks = allocs().any(|((_, row), _)| snapshot.entries.stack(row) != StackId::EMPTY);
    let place_of = |row: usize| match snapshot.entries.stack(row) {
        StackId::EMPTY if has_stacks => None,
        StackId::EMPTY => snapshot.entries.sizes().get(row).copied(),
        stack => Some(stack.index() as u64),
    };

    let mut places: HashMap<u64, Place, RandomState> = HashMap::default();
    let mut total = 0u64;
    for ((_, row), position) in allocs() {
        total += 1;
        if let Some(id) = place_of(row) {
            let place = places.entry(id).or_insert(Place { first: position, last: position, count: 0 });
            place.last = position;
            place.count += 1;
        }
    }
    // Positions are kept for places that can be a loop's: all of those together are passed by few allocations.
    places.retain(|_, place| {
        let distance = place.last - place.first;
        place.count >= MIN_ROUNDS && distance >= MIN_ROUND * u64::from(place.count - 1) && distance >= total / 3
    });
    let mut passes: HashMap<u64, Vec<(u64, Instant)>, RandomState> = HashMap::default();
    for ((entry, row), position) in allocs() {
        if let Some(id) = place_of(row).filter(|id| places.contains_key(id)) {
            passes.entry(id).or_default().push((position, entry as Instant + 1));
        }
    }
    passes.retain(|_, passes| is_regular(passes, total));
    let is_inner = |passes: &[(u64, Instant)]| passes.len() < ENOUGH_ROUNDS as usize;
    // Of the places in one loop the last one: what is set up on the way is then part of the first round.
    let outermost = passes.into_values().min_by_key(|passes| {
        let last = passes.last().map_or(0, |&(position, _)| position);
        (is_inner(passes), passes.len(), std::cmp::Reverse(last))
    })?;
    let ends: Vec<Instant> = outermost.iter().map(|&(_, end)| end).collect();
    let marker = history.rows.start + ends.first()?.checked_sub(1)? as usize;
    Some(Repetition { ends, stack: snapshot.entries.stack(marker) })
}

/// Whether a place is passed at equal distances, in a loop that fills half of the history.
fn is_regular(passes: &[(u64, Instant)], total: u64) -> bool {
    let set_up = usize::from(passes.len() >= ENOUGH_ROUNDS as usize);
    let distances: Vec<u64> = passes.windows(2).skip(set_up).map(|pair| pair[1].0 - pair[0].0).collect();
    let mut sorted = distances.clone();
    sorted.sort_unstable();
    let Some(&usual) = sorted.get(sorted.len() / 2) else { return false };
    let alike = distances.iter().filter(|&&distance| distance.abs_diff(usual) * 4 <= usual).count();
    let fills = u128::from(usual) * passes.len() as u128 * 2 >= u128::from(total);
    alike * 5 >= distances.len() * 4 && fills
}
