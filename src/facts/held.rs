//! What holds each allocation of a device, if the recording says so: see [`crate::model::holders`].
//!
//! A walk takes place at one instant. A block that is live then and at another instant is the same block, so what held it
//! speaks for all of its lifetime; where several walks saw a block, the one that saw most memory does.

use crate::model::holders::{HeldBy, HeldStorage, HolderWalk, Holders};
use crate::model::{Action, DeviceId};
use crate::replay::{History, Instant, Track};

/// What is known about the holder of an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum HeldAs<'a> {
    /// It is live at no walk.
    #[default]
    NotWalked,
    /// A walk found no tensor in it: an operator, a library or C++ holds it.
    Unheld,
    Held(&'a HeldStorage),
}

/// The holders of all allocations of a device.
#[derive(Clone, Debug)]
pub(crate) struct Held<'a> {
    all: &'a [HeldBy],
    of_allocation: Vec<HeldAs<'a>>,
    /// The instant of each walk, in the order of the recording.
    pub(crate) instants: Vec<(Instant, &'a HolderWalk)>,
}

impl<'a> Held<'a> {
    /// The holders of a device; `None` if the recording has none.
    pub(crate) fn of(track: Track<'a>) -> Option<Self> {
        let recorded = track.snapshot.notes.holders.as_ref()?;
        let device = track.device();
        let mut of_allocation = vec![HeldAs::NotWalked; track.history.allocations.len()];
        let instants: Vec<_> =
            recorded.walks.iter().filter_map(|walk| Some((instant(track, recorded, walk)?, walk))).collect();
        let total = |walk: &HolderWalk| storages(walk, device).map(|storage| storage.bytes).sum::<u64>();
        let mut by_total = instants.clone();
        by_total.sort_by_key(|(_, walk)| total(walk));
        for (instant, walk) in by_total {
            note(track.history, instant, walk, device, &recorded.holders, &mut of_allocation);
        }
        Some(Self { all: &recorded.holders, of_allocation, instants })
    }

    /// What holds the allocation with this index.
    pub(crate) fn get(&self, allocation: usize) -> HeldAs<'a> {
        self.of_allocation.get(allocation).copied().unwrap_or_default()
    }

    /// All holders of a storage that are listed, the most telling first.
    pub(crate) fn holders(&self, storage: &'a HeldStorage) -> impl Iterator<Item = &'a HeldBy> {
        storage.holders.iter().filter_map(|&index| self.all.get(index as usize))
    }

    /// All holders of an allocation that are listed, the most telling first; none where no walk found one.
    pub(crate) fn all_of(&self, allocation: usize) -> impl Iterator<Item = &'a HeldBy> {
        let storage = match self.get(allocation) {
            HeldAs::Held(storage) => Some(storage),
            HeldAs::NotWalked | HeldAs::Unheld => None,
        };
        storage.into_iter().flat_map(|storage| self.holders(storage))
    }

    /// The most telling holder of an allocation.
    pub(crate) fn first(&self, allocation: usize) -> Option<&'a HeldBy> {
        self.all_of(allocation).next()
    }
}

fn storages(walk: &HolderWalk, device: DeviceId) -> impl Iterator<Item = &HeldStorage> {
    walk.storages.iter().filter(move |storage| storage.device == device)
}

/// The instant of a walk: the first one after as many requests and frees. Older recordings do not count frees, so frees that
/// follow the last request may have happened as well. `None` if the file does not contain it.
fn instant(track: Track<'_>, recorded: &Holders, walk: &HolderWalk) -> Option<Instant> {
    let device = usize::try_from(track.device()).ok()?;
    // Counted from the end, since the first entries may be lost.
    let later = |all: &[u64], then: &[u64]| all.get(device)?.checked_sub(*then.get(device)?);
    let requests = later(&recorded.requests, &walk.requests)?;
    let frees = later(&recorded.frees, &walk.frees);
    let (mut requests_after, mut frees_after) = (0, 0);
    let (mut after_request, mut found) = (None, None);
    for instant in (0..=track.entries()).rev() {
        if requests_after == requests {
            after_request = Some(instant);
            if frees.is_some_and(|frees| frees_after <= frees) {
                found = Some(instant);
            }
        }
        match instant.checked_sub(1).and_then(|entry| track.actions().get(entry as usize)) {
            Some(Action::Alloc) => requests_after += 1,
            Some(Action::FreeRequested) => frees_after += 1,
            _ => {}
        }
        if requests_after > requests {
            break;
        }
    }
    found.or(after_request)
}

/// Notes what a walk found for each allocation that is live at its instant.
fn note<'a>(
    history: &History,
    instant: Instant,
    walk: &'a HolderWalk,
    device: DeviceId,
    all: &[HeldBy],
    of_allocation: &mut [HeldAs<'a>],
) {
    let live = history.allocations.iter().enumerate().filter(|(_, one)| one.born <= instant && instant < one.freed);
    let mut live: Vec<(u64, usize)> = live.map(|(index, one)| (one.addr, index)).collect();
    live.sort_unstable();
    let is_whole = walk.limit.is_empty() && walk.left_out == 0 && walk.unread == 0;
    for &(_, index) in live.iter().filter(|_| is_whole) {
        if matches!(of_allocation[index], HeldAs::NotWalked) {
            of_allocation[index] = HeldAs::Unheld;
        }
    }
    for storage in storages(walk, device) {
        let after = live.partition_point(|&(address, _)| address <= storage.address);
        let Some(&(address, index)) = after.checked_sub(1).and_then(|before| live.get(before)) else { continue };
        if storage.address - address < history.allocations[index].size.max(1) {
            // A library's function holds what it returns for a moment.
            let is_variable = |holder: &HeldBy| holder.root != "unreachable" && !holder.library;
            let is_reached =
                |storage: &HeldStorage| storage.holders.iter().any(|&holder| is_variable(&all[holder as usize]));
            // A list that a comprehension builds is no variable yet.
            let is_worse =
                matches!(of_allocation[index], HeldAs::Held(known) if is_reached(known) && !is_reached(storage));
            if !is_worse {
                of_allocation[index] = HeldAs::Held(storage);
            }
        }
    }
}

/// A path without the places in lists and among modules, which the members of a group share: `net.blocks.*.last`,
/// `history[*].grad_fn`.
pub(crate) fn group(path: &str) -> String {
    let mut group = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(start) = rest.find(['.', '[']) {
        let (before, from) = rest.split_at(start + 1);
        group.push_str(before);
        let digits = from.bytes().take_while(u8::is_ascii_digit).count();
        let ends = from.as_bytes().get(digits).is_none_or(|&next| matches!(next, b'.' | b']' | b'['));
        rest = if digits > 0 && ends {
            group.push('*');
            &from[digits..]
        } else {
            from
        };
    }
    group + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_no_places() {
        assert_eq!(group("train.net.blocks.0.last"), "train.net.blocks.*.last");
        assert_eq!(group("train.history[12].grad_fn"), "train.history[*].grad_fn");
        assert_eq!(group("rows[0]['old']"), "rows[*]['old']");
        assert_eq!(group("cache[1][2]"), "cache[*][*]");
        assert_eq!(group("net.3"), "net.*");
        assert_eq!(group("x2.last_3d.2nd"), "x2.last_3d.2nd");
    }
}
