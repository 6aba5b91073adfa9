//! The placement of allocations in the range of device addresses.
//!
//! Among free blocks of the same size, PyTorch's allocator chooses by address, so reserved memory depends on placement.
//! How drivers place memory is known from recordings on real GPUs.

use crate::config::Placement;
use std::collections::BTreeMap;

/// Smallest unit of memory that a driver allocates.
pub const GRANULE: usize = 2 << 20;
/// Size unit and alignment of arenas.
const ARENA: usize = 32 << 20;

/// Rounds up to whole granules; `None` if the result overflows.
pub fn granules(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(GRANULE)
}

/// The purpose of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Memory.
    Memory,
    /// Only addresses, to which memory is mapped later.
    Reservation,
}

/// A range in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Length in bytes.
    pub size: usize,
    /// Purpose.
    pub purpose: Purpose,
    /// The device that it belongs to.
    pub device: usize,
}

/// The range of device addresses, and the parts in use.
#[derive(Debug)]
pub struct Addresses {
    placement: Placement,
    start: usize,
    end: usize,
    /// Ranges in use, by start address.
    taken: BTreeMap<usize, Range>,
    /// Start address and size of each arena, in the order of creation. Arenas are never removed.
    arenas: Vec<(usize, usize)>,
    /// New arenas are placed below this address.
    arenas_end: usize,
}

impl Addresses {
    /// Creates a free range `start..end`. Its first granule stays unused, so that its start is never an allocation.
    pub fn new(start: usize, end: usize, placement: Placement) -> Self {
        // Reservations grow up from the start, arenas grow down from the middle.
        let arenas_end = start + (end - start) / 2;
        Self { placement, start: start + GRANULE, end, taken: BTreeMap::new(), arenas: Vec::new(), arenas_end }
    }

    /// Allocates a range of whole granules; `None` if no addresses are left.
    pub fn take(&mut self, size: usize, purpose: Purpose, device: usize) -> Option<usize> {
        let at = match (self.placement, purpose) {
            (Placement::Downwards, Purpose::Memory) => self.in_arenas(size)?,
            // Reservations are separate from arenas, which use the lower half.
            (Placement::Downwards, Purpose::Reservation) => self.first_gap(self.arenas_end, self.end, size)?,
            (Placement::Upwards, _) => self.first_gap(self.start, self.end, size)?,
        };
        self.taken.insert(at, Range { size, purpose, device });
        Some(at)
    }

    /// Returns the range that contains an address, and its start.
    pub fn find(&self, address: usize) -> Option<(usize, Range)> {
        let (&at, &range) = self.taken.range(..=address).next_back()?;
        (address - at < range.size).then_some((at, range))
    }

    /// Releases the range that starts there, if it has this purpose.
    pub fn release(&mut self, at: usize, purpose: Purpose) -> Option<Range> {
        let found = self.taken.get(&at).copied().filter(|range| range.purpose == purpose)?;
        self.taken.remove(&at);
        Some(found)
    }

    /// Finds the lower end of a hole that is large enough, in the newest arena that has one; else creates an arena.
    fn in_arenas(&mut self, size: usize) -> Option<usize> {
        let fits = |&(at, length): &(usize, usize)| self.first_gap(at, at + length, size);
        if let Some(at) = self.arenas.iter().rev().find_map(fits) {
            return Some(at);
        }
        let length = size.checked_next_multiple_of(ARENA)?;
        let lowest = self.arenas.last().map_or(self.arenas_end, |&(at, _)| at);
        let at = lowest.checked_sub(length).filter(|&at| at >= self.start)?;
        self.arenas.push((at, length));
        Some(at)
    }

    /// Returns the lowest address of a gap between `from` and `to`.
    fn first_gap(&self, from: usize, to: usize, size: usize) -> Option<usize> {
        let mut at = from;
        for (&start, range) in self.taken.range(from..to) {
            if start - at >= size {
                return Some(at);
            }
            at = start + range.size;
        }
        (to.checked_sub(at)? >= size).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 1 << 40;
    const MIB: usize = 1 << 20;

    fn space(placement: Placement) -> Addresses {
        Addresses::new(START, START + (1 << 40), placement)
    }

    #[test]
    fn upwards_the_lowest_gap_is_taken() {
        let mut space = space(Placement::Upwards);
        let [a, b, c] = [2, 20, 2].map(|size| space.take(size * MIB, Purpose::Memory, 0).unwrap());
        assert_eq!([a, b, c].map(|at| (at - START) / MIB), [2, 4, 24]);
        space.release(b, Purpose::Memory).unwrap();
        assert_eq!(space.take(4 * MIB, Purpose::Memory, 0), Some(b));
        assert_eq!(space.take(20 * MIB, Purpose::Memory, 0), Some(c + 2 * MIB));
    }

    #[test]
    fn downwards_each_arena_lies_below_the_one_before_and_is_filled_from_its_start() {
        let mut space = space(Placement::Downwards);
        let first = space.take(2 * MIB, Purpose::Memory, 0).unwrap();
        let second = space.take(20 * MIB, Purpose::Memory, 0).unwrap();
        let third = space.take(20 * MIB, Purpose::Memory, 0).unwrap();
        assert_eq!((second - first, first - third), (2 * MIB, 32 * MIB));
        assert_eq!(space.take(10 * MIB, Purpose::Memory, 0), Some(third + 20 * MIB), "newest arena first");
        let large = space.take(100 * MIB, Purpose::Memory, 0).unwrap();
        assert_eq!(third - large, 128 * MIB);
    }

    #[test]
    fn a_range_is_found_by_any_address_in_it_and_freed_by_its_first() {
        let mut space = space(Placement::Upwards);
        let at = space.take(4 * MIB, Purpose::Memory, 3).unwrap();
        assert_eq!(space.find(at + MIB).map(|(start, range)| (start, range.device)), Some((at, 3)));
        assert_eq!(space.find(at + 4 * MIB), None);
        assert_eq!(space.release(at, Purpose::Reservation), None);
        assert_eq!(space.release(at + MIB, Purpose::Memory), None);
        assert!(space.release(at, Purpose::Memory).is_some() && space.find(at).is_none());
    }

    #[test]
    fn addresses_run_out() {
        for placement in [Placement::Downwards, Placement::Upwards] {
            assert_eq!(space(placement).take(1 << 41, Purpose::Memory, 0), None);
        }
        assert_eq!(granules(usize::MAX), None);
    }
}
