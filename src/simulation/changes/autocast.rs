//! Finds the copies of parameters that autocast makes.
//!
//! `torch.autocast` casts a parameter at its first use and keeps the copy until its outermost region ends, whether or not the
//! call that used it first is checkpointed. Backward needs the copies, too, so without checkpointing nothing is freed at the
//! end of the region, and nothing shows where it is.

use crate::facts::code::sites::Sites;
use crate::facts::training::{Phase, Phases, Roles};
use crate::model::{FrameId, Snapshot, StackId};
use crate::replay::{Instant, Track};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Autocast {
    /// Entries at which a region ends, in order.
    ends: Vec<u32>,
    /// Sizes of possible parameters, sorted: blocks that are older than any forward and outlive it. Empty without
    /// evidence of autocast.
    parameter_sizes: Vec<u64>,
    /// The innermost Python frames below which copies are made; empty if unknown.
    frames: Vec<Option<FrameId>>,
    /// Entries at which a pass through the model ends, in order.
    pass_ends: Vec<u32>,
}

/// Smaller parameters are ignored: many other blocks are as large as their copies.
const SMALLEST_PARAMETER: u64 = 4 << 10;
/// Number of other blocks with the size of each parameter: gradient, states, master copy.
const MOST_COMPANIONS: usize = 4;

impl Autocast {
    pub(crate) fn of(track: Track<'_>, sites: &Sites<'_>, phases: &Phases, roles: &Roles) -> Self {
        let history = track.history;
        let leaves = |&entry: &u32| roles.leaves_autocast(track.stack(entry));
        let ends: Vec<u32> = (0..history.entries()).filter(leaves).collect();
        let forward = || phases.spans.iter().filter(|span| span.phase == Phase::Forward);
        let (start, end) = forward().next().map_or((0, 0), |span| (span.start, span.end));
        let old = history.allocations.iter().take_while(|allocation| allocation.born <= start);
        let mut parameter_sizes: Vec<u64> = old.filter(|old| old.freed > start).map(|old| old.requested).collect();
        parameter_sizes.sort_unstable();
        let made = history.allocations.iter().enumerate().filter(|(_, made)| made.born > start && made.born <= end);
        let kept = made.filter(|(_, made)| made.freed > end);
        let kept = kept.map(|(index, made)| (innermost(sites, track.stack_of(index)), made.requested));
        let places = copies_at(kept);
        let mut frames = copied_at(&parameter_sizes, &places, 2);
        let is_used = || native_sign(track.snapshot).unwrap_or(!frames.is_empty());
        if ends.is_empty() && !is_used() {
            return Self::default();
        }
        // A user's function may have only parameters of one size: where another region end is visible, copies are made.
        if !frames.is_empty() && !ends.is_empty() {
            frames = copied_at(&parameter_sizes, &places, 1);
        }
        parameter_sizes.dedup();
        Self { ends, parameter_sizes, frames, pass_ends: forward().map(|span| span.end).collect() }
    }

    /// Whether a block of this size and stack looks like a parameter's copy in half precision.
    pub(crate) fn is_copy(&self, sites: &Sites<'_>, requested: u64, stack: StackId) -> bool {
        self.parameter_sizes.binary_search(&requested.saturating_mul(2)).is_ok()
            && (self.frames.is_empty() || self.frames.contains(&innermost(sites, stack)))
    }

    /// The end of the region that is open at an instant, if it is recognized; otherwise the end of the forward pass.
    pub(crate) fn end(&self, instant: Instant, before: Instant) -> Instant {
        let next = |ends: &[u32]| ends.get(ends.partition_point(|&entry| entry < instant)).copied();
        let pass_end = next(&self.pass_ends);
        let limit = pass_end.map_or(before, |end| end.min(before));
        next(&self.ends).filter(|&end| end < limit).or(pass_end).unwrap_or(instant).min(before)
    }
}

/// Whether C++ frames show autocast; `None` if there are no C++ frames.
fn native_sign(snapshot: &Snapshot) -> Option<bool> {
    let frames = (0..snapshot.stacks.frame_count() as u32).filter_map(|id| snapshot.stacks.frame(FrameId(id)));
    let mut has_native = false;
    for frame in frames {
        let name = snapshot.strings.get(frame.name);
        if name.contains("at::autocast::") {
            return Some(true);
        }
        has_native |= name.starts_with("at::");
    }
    has_native.then_some(false)
}

fn innermost(sites: &Sites<'_>, stack: StackId) -> Option<FrameId> {
    let frames = sites.snapshot().stacks.frame_ids(stack);
    frames.iter().copied().find(|&frame| sites.kind(frame).is_python())
}

/// The number of blocks of each size that forward keeps at each place.
fn copies_at<K: Copy + Ord>(kept: impl Iterator<Item = (K, u64)>) -> BTreeMap<K, BTreeMap<u64, usize>> {
    let mut copies: BTreeMap<K, BTreeMap<u64, usize>> = BTreeMap::new();
    for (place, size) in kept {
        *copies.entry(place).or_default().entry(size).or_default() += 1;
    }
    copies
}

/// The places where forward keeps as many blocks of half a parameter's size as there are parameters of that size, for at
/// least a minimum number of sizes. The sizes of parameters are sorted.
fn copied_at<K: Copy + Ord>(parameters: &[u64], copies: &BTreeMap<K, BTreeMap<u64, usize>>, sizes: usize) -> Vec<K> {
    let large: Vec<(u64, usize)> = parameters
        .chunk_by(|a, b| a == b)
        .filter(|same| same[0] >= SMALLEST_PARAMETER)
        .map(|same| (same[0], same.len()))
        .collect();
    let is_place = |copies: &BTreeMap<u64, usize>| {
        let copies_of = |size: u64| copies.get(&(size / 2)).copied().unwrap_or(0);
        (1..=1 + MOST_COMPANIONS).any(|each| {
            let matches = |&&(size, parameters): &&(u64, usize)| {
                let copies = copies_of(size);
                copies * sizes >= 2 && copies * each == parameters
            };
            large.iter().filter(matches).count() >= sizes
        })
    };
    copies.iter().filter(|(_, copies)| is_place(copies)).map(|(&place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_as_many_as_parameters() {
        let parameters = [8192, 8192, 8192, 16384, 65536];
        let at = |place: u8, sizes: &[u64]| sizes.iter().map(|&size| (place, size)).collect::<Vec<_>>();
        let matmul = at(1, &[4096, 4096, 4096, 5000, 8192]);
        let rotary = at(2, &[4096, 4096]);
        let all = || matmul.iter().chain(&rotary).copied();
        let copied = |parameters: &[u64], kept: Vec<(u8, u64)>, sizes| {
            copied_at(parameters, &copies_at(kept.into_iter()), sizes)
        };
        assert_eq!(copied(&parameters, all().collect(), 2), [1]);
        let one_size = at(1, &[4096, 4096, 4096, 8192, 8192]);
        assert!(copied(&parameters, one_size.clone(), 2).is_empty());
        assert_eq!(copied(&parameters, one_size, 1), [1]);
        // With a gradient and two states for each.
        let late: Vec<u64> = parameters.iter().flat_map(|&size| [size; 4]).collect();
        assert_eq!(copied(&late, all().collect(), 2), [1]);
        assert!(copied(&[], all().collect(), 1).is_empty());
    }

    #[test]
    fn a_region_ends_where_it_shows_or_with_its_pass() {
        let autocast = Autocast { ends: vec![10, 50], pass_ends: vec![12, 40, 60], ..Autocast::default() };
        assert_eq!(autocast.end(5, 30), 10);
        assert_eq!(autocast.end(20, 45), 40, "nothing shows in the second pass");
        assert_eq!(autocast.end(20, 30), 30);
        assert_eq!(autocast.end(70, 90), 70);
    }
}
