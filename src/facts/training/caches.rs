//! Finds keys and values that grow with every forward pass of a generating model.
//!
//! `k = torch.cat([k, new])` allocates a longer block for every layer and every token, and frees the old one. So the
//! allocations of one line form generations: the same number of blocks, each generation larger than the previous one by the
//! same amount, and each block live until the next generation has started. Attention scores grow as well, but are
//! short-lived.
//!
//! A single forward has no generations. But if it keeps nothing for backward, and two lines alternate, once in each layer, with
//! blocks of one size that are live when the forward has made its last block, these are the keys and the values: other memory of
//! a layer is free by then, and hidden states or attention weights are one block of each layer.

use super::category::Evidence;
use super::forwards::Forwards;
use super::own_lines::OwnLines;
use super::periods::{Cursor, Periods};
use super::role::{Role, Roles};
use crate::model::FrameId;
use crate::replay::{Allocation, History, NEVER, Track};
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// The least number of generations of a series.
const LEAST_GENERATIONS: usize = 4;
/// The least number of layers for which two lines must alternate.
const LEAST_LAYERS: usize = 4;

/// The blocks of caches on one device.
#[derive(Default)]
pub(super) struct Caches {
    /// Those of caches that grow.
    growing: HashSet<u32, RandomState>,
    /// Those that a single forward makes in pairs.
    paired: HashSet<u32, RandomState>,
}

/// The blocks that one line of code allocates.
#[derive(Default)]
struct Series {
    /// Index of each block, and of its period.
    blocks: Vec<(u32, usize)>,
    in_module: bool,
}

/// Blocks of one size that one line allocates consecutively.
struct Generation {
    bytes: u64,
    blocks: Vec<(u32, Allocation)>,
    /// The period of the first block.
    period: usize,
}

impl Caches {
    /// Examines every line that allocates. For recordings without a backward pass.
    pub(super) fn of(
        track: Track<'_>,
        periods: &Periods,
        forwards: &Forwards,
        roles: &Roles,
        lines: &mut OwnLines<'_>,
    ) -> Self {
        let history = track.history;
        let mut by_line: HashMap<FrameId, Series, RandomState> = HashMap::default();
        let mut cursor = Cursor::new(periods);
        for (index, allocation) in history.allocations.iter().enumerate() {
            let Some(entry) = History::entry_before(allocation.born) else { continue };
            let Some((period, _)) = cursor.find(entry) else { continue };
            let stack = track.stack_of(index);
            let Some(line) = lines.of(stack) else { continue };
            let series = by_line.entry(line).or_default();
            series.blocks.push((index as u32, period));
            series.in_module |= roles.role(stack) == Role::Module;
        }
        let mut found = HashSet::default();
        for series in by_line.into_values() {
            found.extend(growing(history, &series.blocks, series.in_module));
            // Intermediate blocks of the line, such as the new token's part, are freed soon.
            let lasting = lasting(history, &series.blocks);
            found.extend(growing(history, &lasting, series.in_module));
        }
        Self { growing: found, paired: paired(track, forwards, roles, lines) }
    }

    /// Why a block is part of a cache, if it is.
    pub(super) fn evidence(&self, allocation: usize) -> Option<Evidence> {
        let index = allocation as u32;
        if self.growing.contains(&index) {
            Some(Evidence::Grows)
        } else {
            self.paired.contains(&index).then_some(Evidence::KeptInPairs)
        }
    }
}

/// The blocks that each layer of a forward makes in pairs, and that outlive it.
fn paired(track: Track<'_>, forwards: &Forwards, roles: &Roles, lines: &mut OwnLines<'_>) -> HashSet<u32, RandomState> {
    // The blocks of each line and size that outlive their forward, by the number of the forward and the size.
    let mut kept: IndexMap<(usize, u64, FrameId), Vec<u32>, RandomState> = IndexMap::default();
    for (index, allocation, stack) in track.allocations() {
        let Some(forward) = forwards.outlived(allocation.born, allocation.freed) else { continue };
        if let Some(line) = lines.of(stack).filter(|_| roles.role(stack) == Role::Module) {
            kept.entry((forward, allocation.requested, line)).or_default().push(index);
        }
    }
    let mut found = HashSet::default();
    let mut of_size: IndexMap<(usize, u64), Vec<Vec<u32>>, RandomState> = IndexMap::default();
    for ((forward, bytes, _), blocks) in kept.into_iter().filter(|(_, blocks)| blocks.len() >= LEAST_LAYERS) {
        of_size.entry((forward, bytes)).or_default().push(blocks);
    }
    for lines in of_size.values() {
        for (place, one) in lines.iter().enumerate() {
            if let Some(other) = lines[place + 1..].iter().find(|other| alternate(one, other)) {
                found.extend(one.iter().chain(other));
            }
        }
    }
    found
}

/// Whether two lines alternate.
fn alternate(one: &[u32], other: &[u32]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one < other)
        && one.iter().skip(1).zip(other).all(|(next, other)| other < next)
}

/// The blocks of a series that are a cache: runs of enough generations.
fn growing(history: &History, blocks: &[(u32, usize)], in_module: bool) -> Vec<u32> {
    let mut generations: Vec<Generation> = Vec::new();
    for &(index, period) in blocks {
        let Some(&allocation) = history.allocations.get(index as usize) else { continue };
        let bytes = allocation.requested;
        match generations.last_mut().filter(|last| last.bytes == bytes) {
            Some(last) => last.blocks.push((index, allocation)),
            None => generations.push(Generation { bytes, blocks: vec![(index, allocation)], period }),
        }
    }
    let mut cache = Vec::new();
    let mut start = 0;
    for next in 1..=generations.len() {
        let run = &generations[start..next];
        if generations.get(next).is_some_and(|later| goes_on(run, later, in_module)) {
            continue;
        }
        if run.len() >= LEAST_GENERATIONS {
            cache.extend(run.iter().flat_map(|generation| generation.blocks.iter().map(|&(index, _)| index)));
        }
        start = next;
    }
    cache
}

/// The blocks of a line that are live when it allocates the block after the next one, or that are never freed.
fn lasting(history: &History, blocks: &[(u32, usize)]) -> Vec<(u32, usize)> {
    let block = |&(index, _): &(u32, usize)| history.allocations.get(index as usize);
    let lasts = |&(place, made): &(usize, &(u32, usize))| {
        let later = blocks.get(place + 2).and_then(block).map_or(NEVER - 1, |later| later.born);
        block(made).is_some_and(|made| made.freed > later)
    };
    blocks.iter().enumerate().filter(lasts).map(|(_, &made)| made).collect()
}

/// Whether a generation continues a run.
fn goes_on(run: &[Generation], later: &Generation, in_module: bool) -> bool {
    let Some((last, earlier)) = run.split_last() else { return false };
    let begins = later.blocks.first().map_or(0, |(_, block)| block.born);
    let lasts = last.blocks.iter().all(|(_, block)| block.freed > begins);
    // A model extends its cache once in each forward. Outside models, a single block may be token IDs, or their mask.
    let counts = if in_module { last.period != later.period } else { last.blocks.len() > 1 };
    let Some(step) = later.bytes.checked_sub(last.bytes).filter(|&step| step > 0) else { return false };
    let evenly = earlier.last().is_none_or(|before| last.bytes.checked_sub(before.bytes) == Some(step));
    lasts && counts && evenly && last.blocks.len() == later.blocks.len()
}
