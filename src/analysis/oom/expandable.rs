//! What would have happened with expandable segments: the requests of a recording, played again.
//!
//! Mirrors the part of PyTorch's `CUDACachingAllocator` that places blocks in expandable segments: best fit among the
//! free blocks of a pool and stream, else pages mapped at the lowest address with enough room, and when the device has
//! no more pages, whatever pages are wholly free are unmapped and used again.

use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::model::{Action, PoolId, SegmentType, Snapshot};
use crate::replay::History;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// No program uses as many addresses; it bounds sums for hostile files.
const ADDRESS_SPACE: u64 = 1 << 62;

/// How a recording ends when its requests are played again with expandable segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The entry whose request fails; `None` when all are served, the one that failed included.
    pub fails_at: Option<u32>,
    /// Bytes mapped at the end, or at the failure.
    pub reserved: u64,
    /// Bytes that the device has for the process.
    pub capacity: u64,
}

/// Plays the requests before an `oom` entry, and the one that failed there, on a device with `capacity` bytes for the
/// process. Calls of `empty_cache` are not played, since a trace does not tell them from what the allocator does itself.
pub(super) fn replay(snapshot: &Snapshot, history: &History, oom: u32, capacity: u64) -> Replayed {
    let rules = SizeRules::device(&snapshot.settings);
    let mut device = Device { rules: rules.clone(), capacity, ..Device::default() };
    for (entry, recorded) in (0..=oom).zip(snapshot.entries.rows(history.rows.clone())) {
        let index = history.links.get(entry as usize).copied().unwrap_or(u32::MAX);
        match recorded.action {
            Action::FreeRequested => _ = device.pending.insert(index),
            Action::FreeCompleted => device.free(index),
            Action::Alloc | Action::Oom if recorded.action == Action::Alloc || entry == oom => {
                let context = snapshot.contexts.get(recorded.context);
                let size = rules.round(recorded.size);
                let pool = (size > SMALL_SIZE, context.stream, context.pool.unwrap_or_default());
                if !device.alloc(index, size, pool) {
                    return Replayed { fails_at: Some(entry), reserved: device.mapped, capacity };
                }
            }
            _ => {}
        }
    }
    Replayed { fails_at: None, reserved: device.mapped, capacity }
}

/// Large or small pool, stream, and default or private pool: blocks of different ones never meet.
type Pool = (bool, u64, PoolId);

#[derive(Default)]
struct Device {
    rules: SizeRules,
    capacity: u64,
    /// Bytes of all mapped pages.
    mapped: u64,
    arenas: BTreeMap<Pool, Arena>,
    /// Blocks in use: pool, address and size.
    live: HashMap<u32, (Pool, u64, u64)>,
    /// Those whose free was requested.
    pending: HashSet<u32>,
}

/// The address range of one expandable segment, from 0 on. What is neither free nor unmapped nor behind `end` is in use.
#[derive(Default)]
struct Arena {
    /// Free ranges by address; neighbours are merged.
    free: BTreeMap<u64, u64>,
    /// The same by size.
    by_size: BTreeSet<(u64, u64)>,
    /// Unmapped ranges by address; neighbours are merged. Behind `end` nothing was ever mapped.
    unmapped: BTreeMap<u64, u64>,
    end: u64,
}

impl Device {
    fn alloc(&mut self, index: u32, size: u64, pool: Pool) -> bool {
        let mut placed = self.arenas.entry(pool).or_default().best_fit(size);
        if placed.is_none() {
            placed = self.grow(pool, size);
        }
        if placed.is_none() {
            // The retry: frees that are pending complete, wholly free pages are given back, and the driver is asked again.
            for index in std::mem::take(&mut self.pending) {
                self.free(index);
            }
            for (&pool, arena) in self.arenas.iter_mut().filter(|((_, _, pool), _)| *pool == PoolId::default()) {
                self.mapped -= arena.release(page(&self.rules, pool));
            }
            placed = self.grow(pool, size);
        }
        let Some(addr) = placed else { return false };
        self.arenas.entry(pool).or_default().take(addr, size);
        self.live.insert(index, (pool, addr, size));
        true
    }

    fn free(&mut self, index: u32) {
        self.pending.remove(&index);
        if let Some((pool, addr, size)) = self.live.remove(&index) {
            self.arenas.entry(pool).or_default().add_free(addr, size);
        }
    }

    /// Maps pages until a free range has `size` bytes; its address. Pages mapped in vain stay mapped.
    fn grow(&mut self, pool: Pool, size: u64) -> Option<u64> {
        let page = page(&self.rules, pool);
        let arena = self.arenas.entry(pool).or_default();
        let start = arena.room(size);
        loop {
            let have = arena.free.get(&start).copied().unwrap_or(0);
            if have >= size {
                return Some(start);
            }
            let at = start + have;
            let room = arena.unmapped.get(&at).copied();
            let wanted = (size - have).checked_next_multiple_of(page)?;
            let bytes = room.map_or(wanted, |room| room.min(wanted));
            if self.mapped.checked_add(bytes)? > self.capacity || at.checked_add(bytes)? > ADDRESS_SPACE {
                return None;
            }
            self.mapped += bytes;
            arena.map(at, bytes, room);
        }
    }
}

fn page(rules: &SizeRules, (large, ..): Pool) -> u64 {
    rules.page_size(if large { SegmentType::Large } else { SegmentType::Small })
}

impl Arena {
    /// The smallest free range that is large enough; of several the one with least room to grow comes first, as long as
    /// the next larger one has less.
    fn best_fit(&self, size: u64) -> Option<u64> {
        let room = |&(bytes, addr): &(u64, u64)| {
            let behind = addr + bytes;
            if behind == self.end { u64::MAX } else { bytes + self.unmapped.get(&behind).copied().unwrap_or(0) }
        };
        let mut fits = self.by_size.range((size, 0)..);
        let mut best = fits.next()?;
        for next in fits {
            if room(next) >= room(best) {
                break;
            }
            best = next;
        }
        Some(best.1)
    }

    /// Cuts a block off the start of a free range.
    fn take(&mut self, addr: u64, size: u64) {
        if let Some(bytes) = self.free.remove(&addr) {
            self.by_size.remove(&(bytes, addr));
            if bytes > size {
                self.free.insert(addr + size, bytes - size);
                self.by_size.insert((bytes - size, addr + size));
            }
        }
    }

    fn add_free(&mut self, mut addr: u64, mut size: u64) {
        if let Some((&before, &bytes)) = self.free.range(..addr).next_back().filter(|&(at, bytes)| at + bytes == addr) {
            self.free.remove(&before);
            self.by_size.remove(&(bytes, before));
            (addr, size) = (before, size + bytes);
        }
        if let Some(bytes) = self.free.remove(&(addr + size)) {
            self.by_size.remove(&(bytes, addr + size));
            size += bytes;
        }
        self.free.insert(addr, size);
        self.by_size.insert((size, addr));
    }

    /// Where pages are mapped: the lowest run of unmapped and free ranges with enough room, which starts with the free
    /// range before the unmapped one if there is one.
    fn room(&self, size: u64) -> u64 {
        let free_before = |addr: u64| {
            self.free.range(..addr).next_back().filter(|&(at, bytes)| at + bytes == addr).map_or(addr, |(&at, _)| at)
        };
        for &addr in self.unmapped.keys() {
            let start = free_before(addr);
            let mut end = start;
            while let Some(bytes) = self.unmapped.get(&end).or_else(|| self.free.get(&end)) {
                end += bytes;
                if end - start >= size {
                    return start;
                }
            }
            if end == self.end {
                return start;
            }
        }
        free_before(self.end)
    }

    /// Maps pages at the start of an unmapped range of `room` bytes, or at the end.
    fn map(&mut self, addr: u64, bytes: u64, room: Option<u64>) {
        match room {
            Some(room) => {
                self.unmapped.remove(&addr);
                if room > bytes {
                    self.unmapped.insert(addr + bytes, room - bytes);
                }
            }
            None => self.end = addr + bytes,
        }
        self.add_free(addr, bytes);
    }

    /// Unmaps every page that is wholly free; how many bytes that were.
    fn release(&mut self, page: u64) -> u64 {
        let mut released = 0;
        for (addr, size) in std::mem::take(&mut self.free) {
            self.by_size.remove(&(size, addr));
            let (from, to) = (addr.next_multiple_of(page), (addr + size) / page * page);
            if from >= to {
                self.free.insert(addr, size);
                self.by_size.insert((size, addr));
                continue;
            }
            released += to - from;
            for (start, end) in [(addr, from), (to, addr + size)] {
                if start < end {
                    self.free.insert(start, end - start);
                    self.by_size.insert((end - start, start));
                }
            }
            self.unmap(from, to - from);
        }
        released
    }

    fn unmap(&mut self, mut addr: u64, mut size: u64) {
        if let Some((&before, &bytes)) =
            self.unmapped.range(..addr).next_back().filter(|&(at, bytes)| at + bytes == addr)
        {
            self.unmapped.remove(&before);
            (addr, size) = (before, size + bytes);
        }
        size += self.unmapped.remove(&(addr + size)).unwrap_or(0);
        if addr + size == self.end {
            self.end = addr;
        } else {
            self.unmapped.insert(addr, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;

    fn recording(name: &str) -> Recording {
        let path = format!("fixtures/snapshots/{name}/snapshot.pickle.gz");
        Recording::open(path.as_ref(), &crate::input::ReadOptions::default()).unwrap()
    }

    /// PyTorch ran one program with plain and with expandable segments. Its requests, recorded with plain ones and played
    /// again, end in the same failure with the same bytes reserved as PyTorch's own run.
    #[test]
    fn what_is_played_again_is_what_pytorch_does() {
        let [plain, expandable] = ["oom", "oom_expandable"].map(recording);
        let [failed, really] = [&plain, &expandable].map(|recording| {
            let report = recording.oom(&super::super::OomOptions::default()).unwrap();
            report.devices[0].ooms[0].clone()
        });
        let capacity = failed.figures.reserved + failed.device_free;
        assert_eq!(capacity, really.figures.reserved + really.device_free);
        let entry = failed.moment.entry.unwrap();
        let replayed = replay(&plain.snapshot, &plain.histories[0], entry, capacity);
        assert_eq!(replayed, Replayed { fails_at: Some(entry), reserved: really.figures.reserved, capacity });
    }
}
