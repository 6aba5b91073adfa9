//! Where the driver puts segments.
//!
//! Among free blocks of the same size, the allocator takes the one with the lowest address. So addresses determine which
//! block is used, and what can be released later. Drivers do not document how they choose addresses.

use super::limits::ADDRESS_SPACE;
use std::collections::BTreeMap;

/// Driver allocations start at multiples of this many bytes.
const ALIGNMENT: u64 = 2 << 20;

/// Size unit and alignment of the arenas in which the Linux driver puts segments.
const ARENA: u64 = 32 << 20;

/// How addresses of new segments are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The lowest free range that is large enough.
    #[default]
    LowestFree,
    /// Above all previous addresses: addresses ascend in the order of requests.
    Ascending,
    /// Below all previous addresses.
    Descending,
    /// The lowest free range that is large enough, in arenas of a multiple of 32 MiB that descend: as the Linux driver does,
    /// apart from holes that other mappings of the process leave.
    Arenas,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    placement: Placement,
    /// Addresses from here on are unused.
    top: u64,
    /// Addresses below are unused.
    bottom: u64,
    /// Free ranges between the two: start and end.
    gaps: BTreeMap<u64, u64>,
}

impl Addresses {
    /// An empty address space that starts at `base`.
    pub(super) fn new(placement: Placement, base: u64) -> Self {
        let base = base.checked_next_multiple_of(ALIGNMENT).unwrap_or(0);
        let descends = matches!(placement, Placement::Descending | Placement::Arenas);
        let base = if descends { base.max(ADDRESS_SPACE) } else { base };
        Self { placement, top: base, bottom: base, gaps: BTreeMap::new() }
    }

    /// Takes a range of `size` bytes, at `wanted` if that is free; `None` if there is none.
    pub(super) fn take(&mut self, size: u64, wanted: Option<u64>) -> Option<u64> {
        if let Some(start) = wanted
            && self.occupy(start, size)
        {
            return Some(start);
        }
        let size = size.checked_next_multiple_of(ALIGNMENT)?;
        let start = match self.placement {
            Placement::LowestFree => self.lowest_gap(size).unwrap_or(self.top),
            Placement::Ascending => self.top,
            Placement::Descending => self.bottom.checked_sub(size)?,
            Placement::Arenas => match self.lowest_gap(size) {
                Some(start) => start,
                None => self.bottom.checked_sub(size.checked_next_multiple_of(ARENA)?)?,
            },
        };
        self.occupy(start, size).then_some(start)
    }

    /// The start of the lowest gap of at least `size` bytes.
    fn lowest_gap(&self, size: u64) -> Option<u64> {
        self.gaps.iter().find(|&(&start, &end)| end - start >= size).map(|(&start, _)| start)
    }

    /// Marks a range as used. Returns false, and changes nothing, if it is not free or extends past the last address.
    pub(super) fn occupy(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGNMENT)) else {
            return false;
        };
        let start = start / ALIGNMENT * ALIGNMENT;
        if start >= self.top {
            self.add_gap(self.top, start);
            self.top = end;
        } else if end <= self.bottom {
            self.add_gap(end, self.bottom);
            self.bottom = start;
        } else {
            let before = self.gaps.range(..=start).next_back();
            let Some((gap, gap_end)) = before.map(|(&gap, &end)| (gap, end)).filter(|&(_, gap_end)| end <= gap_end)
            else {
                return false;
            };
            self.gaps.remove(&gap);
            self.add_gap(gap, start);
            self.add_gap(end, gap_end);
        }
        true
    }

    /// Frees a range that was used.
    pub(super) fn give_back(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        let start = start / ALIGNMENT * ALIGNMENT;
        if matches!(self.placement, Placement::LowestFree | Placement::Arenas) {
            self.add_gap(start, end);
        }
    }

    fn add_gap(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, _)) = self.gaps.range(..start).next_back().filter(|&(_, &until)| until == start) {
            self.gaps.remove(&before);
            start = before;
        }
        end = self.gaps.remove(&end).unwrap_or(end);
        if end == self.top && self.placement == Placement::LowestFree {
            self.top = start;
        } else {
            self.gaps.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn taken(placement: Placement) -> Vec<u64> {
        let mut addresses = Addresses::new(placement, 100 * MIB);
        let first = [4, 2, 6].map(|mib| addresses.take(mib * MIB, None).unwrap());
        addresses.give_back(first[0], 4 * MIB);
        let last = [8, 4].map(|mib| addresses.take(mib * MIB, None).unwrap());
        let descends = matches!(placement, Placement::Descending | Placement::Arenas);
        let top = if descends { ADDRESS_SPACE } else { 0 };
        first.into_iter().chain(last).map(|addr| addr.abs_diff(top) / MIB).collect()
    }

    #[test]
    fn ranges_are_reused_where_the_placement_says_so() {
        assert_eq!(taken(Placement::LowestFree), [100, 104, 106, 112, 100]);
        assert_eq!(taken(Placement::Ascending), [100, 104, 106, 112, 120]);
        assert_eq!(taken(Placement::Descending), [4, 6, 12, 20, 24]);
        assert_eq!(taken(Placement::Arenas), [32, 28, 26, 20, 32]);
    }

    #[test]
    fn an_address_space_ends() {
        let mut addresses = Addresses::new(Placement::LowestFree, u64::MAX - 4 * MIB);
        assert_eq!(addresses.take(u64::MAX, None), None);
        assert_eq!(addresses.take(64 * MIB, None), None);
    }

    #[test]
    fn a_wanted_address_is_taken_where_it_is_free() {
        let mut addresses = Addresses::new(Placement::LowestFree, 100 * MIB);
        assert_eq!(addresses.take(4 * MIB, Some(200 * MIB)), Some(200 * MIB));
        assert_eq!(addresses.take(4 * MIB, Some(202 * MIB)), Some(100 * MIB), "taken");
        assert_eq!(addresses.take(4 * MIB, Some(40 * MIB)), Some(40 * MIB), "below everything");
        assert_eq!(addresses.take(50 * MIB, None), Some(44 * MIB));
        assert_eq!(addresses.take(96 * MIB, None), Some(104 * MIB));
        assert_eq!(addresses.take(2 * MIB, None), Some(94 * MIB));
    }
}
