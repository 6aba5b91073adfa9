//! Which addresses of the small pool are in use, to notice blocks that lie in one another.

use crate::allocator::MIN_BLOCK;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Words of a page: the largest block of the pool touches two pages at most.
const WORDS: usize = 32;
/// Blocks of [`MIN_BLOCK`] bytes in a page: 1 MiB.
const PAGE: u64 = 64 * WORDS as u64;

/// One bit for each [`MIN_BLOCK`] bytes, in pages.
///
/// Cheaper than an ordered map, since most blocks of the small pool lie within one page.
#[derive(Clone, Debug, Default)]
pub struct Occupancy {
    pages: HashMap<u64, [u64; WORDS], RandomState>,
}

impl Occupancy {
    /// Marks a block as used; false when a part of it already was.
    pub fn add(&mut self, addr: u64, size: u64) -> bool {
        let mut free = true;
        for (page, blocks) in pages(addr, size) {
            let used = self.pages.entry(page).or_default();
            for (word, bits) in words(blocks) {
                free &= used[word] & bits == 0;
                used[word] |= bits;
            }
        }
        free
    }

    /// Marks everything as free.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Marks a block as free.
    pub fn remove(&mut self, addr: u64, size: u64) {
        for (page, blocks) in pages(addr, size) {
            if let Some(used) = self.pages.get_mut(&page) {
                words(blocks).for_each(|(word, bits)| used[word] &= !bits);
            }
        }
    }
}

/// The pages that a block touches, and the first and last of its bits in them.
fn pages(addr: u64, size: u64) -> impl Iterator<Item = (u64, (u64, u64))> {
    let first = addr / MIN_BLOCK;
    let last = addr.saturating_add(size.max(1) - 1) / MIN_BLOCK;
    (first / PAGE..=last / PAGE).map(move |page| {
        let start = page * PAGE;
        (page, (first.max(start) - start, last.min(start + PAGE - 1) - start))
    })
}

/// The words of a page that these bits lie in, and those bits.
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
        assert!(used.add(4096, 1024));
        assert!(used.add(5120, 512), "right behind");
        assert!(!used.add(4608, 512), "inside");
        used.remove(4096, 1024);
        assert!(used.add(4096, 1024));
    }
}
