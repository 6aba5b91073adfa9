//! Which addresses of the small pool are in use, to notice blocks that lie in one another.

use super::size_rules::MIN_BLOCK;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// One bit for each [`MIN_BLOCK`] bytes, in words of 64 of them (32 KiB).
///
/// Cheaper than an ordered map, since most blocks of the small pool lie within one word.
#[derive(Clone, Debug, Default)]
pub struct Occupancy {
    words: HashMap<u64, u64, RandomState>,
}

impl Occupancy {
    /// Marks a block as used; false when a part of it already was.
    pub fn add(&mut self, addr: u64, size: u64) -> bool {
        let mut free = true;
        for (word, bits) in bits(addr, size) {
            let used = self.words.entry(word).or_default();
            free &= *used & bits == 0;
            *used |= bits;
        }
        free
    }

    /// Marks a block as free.
    pub fn remove(&mut self, addr: u64, size: u64) {
        for (word, bits) in bits(addr, size) {
            if let Some(used) = self.words.get_mut(&word) {
                *used &= !bits;
            }
        }
    }
}

/// The words that a block touches, and its bits in them.
fn bits(addr: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = addr / MIN_BLOCK;
    let last = addr.saturating_add(size.max(1) - 1) / MIN_BLOCK;
    (first / 64..=last / 64).map(move |word| {
        let low = first.saturating_sub(word * 64);
        let high = (last - word * 64).min(63);
        (word, (u64::MAX << low) & (u64::MAX >> (63 - high)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_touch_only_their_own_bits() {
        assert_eq!(bits(512, 1024).collect::<Vec<_>>(), [(0, 0b110)]);
        assert_eq!(bits(63 * 512, 1024).collect::<Vec<_>>(), [(0, 1 << 63), (1, 1)]);
        assert_eq!(bits(0, 64 * 512).collect::<Vec<_>>(), [(0, u64::MAX)]);
        assert_eq!(bits(u64::MAX, 512).count(), 1);
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
