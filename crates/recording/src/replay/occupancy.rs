//! Which addresses of the small pool are in use, to detect blocks that overlap or are in no segment.

use super::allocation::Instant;
use crate::allocator::MIN_BLOCK;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Words of a page: the largest block of the pool is in at most two pages.
const WORDS: usize = 32;
/// Blocks of [`MIN_BLOCK`] bytes in a page: 1 MiB.
const PAGE: u64 = 64 * WORDS as u64;
pub const PAGE_BYTES: u64 = PAGE * MIN_BLOCK;
/// Segments with more pages contain no blocks of the small pool.
const MOST_PAGES: usize = 64;

#[derive(Clone, Debug, Default)]
struct Page {
    used: [u64; WORDS],
    /// What was in use at any time.
    ever: [u64; WORDS],
    /// When all of it was found to be reserved, in the counting of [`Occupancy::add`].
    reserved_at: Option<u32>,
    /// The last instant at which a block was placed here that was in no segment; 0 if there was none.
    outside_at: Instant,
}

/// One bit for each [`MIN_BLOCK`] bytes, in pages.
///
/// Cheaper than an ordered map, since most blocks of the small pool are within one page.
#[derive(Clone, Debug, Default)]
pub struct Occupancy {
    pages: HashMap<u64, Page, RandomState>,
}

impl Occupancy {
    /// Marks a block as used. Returns whether all of it was free, and whether its pages are known to be reserved; `now`
    /// counts the ranges released so far.
    #[inline]
    pub fn add(&mut self, addr: u64, size: u64, now: u32) -> (bool, bool) {
        let (mut free, mut reserved) = (true, true);
        for (page, blocks) in pages(addr, size) {
            let page = self.pages.entry(page).or_default();
            reserved &= page.reserved_at == Some(now);
            for (word, bits) in words(blocks) {
                free &= page.used[word] & bits == 0;
                page.used[word] |= bits;
                page.ever[word] |= bits;
            }
        }
        (free, reserved)
    }

    /// Stores which pages of a block are completely reserved.
    pub fn note_reserved(&mut self, addr: u64, size: u64, now: u32, is_reserved: impl Fn(u64) -> bool) {
        for (number, _) in pages(addr, size) {
            if let Some(page) = self.pages.get_mut(&number).filter(|_| is_reserved(number * PAGE_BYTES)) {
                page.reserved_at = Some(now);
            }
        }
    }

    /// Stores that a block was placed outside every segment.
    pub fn note_outside(&mut self, addr: u64, size: u64, now: Instant) {
        for (number, _) in pages(addr, size) {
            if let Some(page) = self.pages.get_mut(&number) {
                page.outside_at = now;
            }
        }
    }

    /// The address of each page in which blocks were placed that were in no segment, and the last instant of that.
    pub fn outside(&self) -> impl Iterator<Item = (u64, Instant)> {
        let pages = self.pages.iter().filter(|(_, page)| page.outside_at > 0);
        pages.map(|(&number, page)| (number.saturating_mul(PAGE_BYTES), page.outside_at))
    }

    /// Whether any of these bytes was ever in use.
    pub fn was_used(&self, addr: u64, size: u64) -> bool {
        let was_used = |(page, blocks): (u64, (u64, u64))| {
            self.pages.get(&page).is_some_and(|page| words(blocks).any(|(word, bits)| page.ever[word] & bits != 0))
        };
        pages(addr, size).any(was_used)
    }

    /// Whether any block is in a segment, if the segment's size is one that the small pool uses.
    pub fn any_in(&self, addr: u64, size: u64) -> bool {
        let is_used = |(page, blocks): (u64, (u64, u64))| {
            self.pages.get(&page).is_some_and(|page| words(blocks).any(|(word, bits)| page.used[word] & bits != 0))
        };
        pages(addr, size).take(MOST_PAGES).any(is_used)
    }

    /// Marks everything as free.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    pub fn remove(&mut self, addr: u64, size: u64) {
        for (page, blocks) in pages(addr, size) {
            if let Some(page) = self.pages.get_mut(&page) {
                words(blocks).for_each(|(word, bits)| page.used[word] &= !bits);
            }
        }
    }
}

/// The pages of a block, and the first and last of its bits in each.
fn pages(addr: u64, size: u64) -> impl Iterator<Item = (u64, (u64, u64))> {
    let first = addr / MIN_BLOCK;
    let last = addr.saturating_add(size.max(1) - 1) / MIN_BLOCK;
    (first / PAGE..=last / PAGE).map(move |page| {
        let start = page * PAGE;
        (page, (first.max(start) - start, last.min(start + PAGE - 1) - start))
    })
}

/// The words of a page that contain these bits, and the bits.
fn words((first, last): (u64, u64)) -> impl Iterator<Item = (usize, u64)> {
    (first / 64..=last / 64).map(move |word| {
        let low = first.saturating_sub(word * 64);
        let high = (last - word * 64).min(63);
        (word as usize, (u64::MAX << low) & (u64::MAX >> (63 - high)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_touch_only_their_own_bits() {
        let bits = |addr, size| -> Vec<_> {
            pages(addr, size)
                .flat_map(|(page, blocks)| words(blocks).map(move |(word, bits)| (page, word, bits)))
                .collect()
        };
        assert_eq!(bits(512, 1024), [(0, 0, 0b110)]);
        assert_eq!(bits(63 * 512, 1024), [(0, 0, 1 << 63), (0, 1, 1)]);
        assert_eq!(bits(0, 64 * 512), [(0, 0, u64::MAX)]);
        assert_eq!(bits(2047 * 512, 1024), [(0, 31, 1 << 63), (1, 0, 1)]);
        assert_eq!(bits(1 << 18, 1 << 20).len(), 32);
        assert_eq!(bits(u64::MAX, 512).len(), 1);
    }

    #[test]
    fn overlaps_are_noticed_until_the_block_is_gone() {
        let mut used = Occupancy::default();
        assert!(used.add(4096, 1024, 0).0);
        assert!(used.add(5120, 512, 0).0, "right behind");
        assert!(!used.add(4608, 512, 0).0, "inside");
        assert!(used.any_in(5120, 4096) && !used.any_in(5632, 4096));
        used.remove(4096, 1024);
        assert!(used.add(4096, 1024, 0).0);
    }

    #[test]
    fn pages_are_reserved_until_a_range_is_given_back() {
        let mut used = Occupancy::default();
        assert!(!used.add(PAGE_BYTES - 512, 1024, 0).1);
        used.note_reserved(PAGE_BYTES - 512, 1024, 0, |page| page == 0);
        assert!(!used.add(PAGE_BYTES - 1024, 2048, 0).1, "the second page is not");
        assert!(used.add(0, 512, 0).1 && !used.add(512, 512, 1).1);
    }
}
