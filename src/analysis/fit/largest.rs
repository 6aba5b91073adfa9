//! The largest number at which a program fits.

use super::LARGEST;

/// How many numbers above a failing one are also tried: memory does not always grow with the number.
const TRIED_ABOVE: u64 = 4;

/// The largest number that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Largest {
    /// One number fits; the next larger ones do not.
    UpTo {
        /// The largest that fits.
        value: u64,
        /// The smallest above it, which does not.
        fails: u64,
    },
    /// Even the smallest does not fit.
    None {
        /// The smallest that was tried.
        fails: u64,
    },
    /// All tried numbers fit.
    Unlimited {
        /// The largest of them.
        tried: u64,
    },
}

impl Largest {
    /// The largest number that fits, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::UpTo { value, .. } => Some(value),
            Self::None { .. } | Self::Unlimited { .. } => None,
        }
    }

    /// Searches upward from a number, or downward if it does not fit: by doubling, and then by bisection.
    pub(super) fn search(start: u64, fits: impl Fn(u64) -> bool) -> Self {
        let (mut low, mut high) = (0, start.max(1));
        let mut stride = high;
        loop {
            while fits(high) {
                if high >= LARGEST {
                    return Self::Unlimited { tried: high };
                }
                (low, high) = (high, (high + stride).min(LARGEST));
                stride *= 2;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if fits(middle) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            // Memory is released at other instants and blocks are placed elsewhere, so smaller numbers do not
            // necessarily fit.
            match (high + 1..=high + TRIED_ABOVE).rev().find(|&value| fits(value)) {
                Some(value) => (low, high, stride) = (value, value + 1, 1),
                None if low == 0 => return Self::None { fails: high },
                None => return Self::UpTo { value: low, fails: high },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_from_below_and_from_above() {
        for start in [1, 8, 56, 57, 500] {
            assert_eq!(Largest::search(start, |value| value <= 56), Largest::UpTo { value: 56, fails: 57 }, "{start}");
        }
        assert_eq!(Largest::search(8, |_| false), Largest::None { fails: 1 });
        assert_eq!(Largest::search(8, |_| true), Largest::Unlimited { tried: 1 << 32 });
    }

    #[test]
    fn a_hole_below_is_stepped_over() {
        let fits = |value: u64| value <= 60 && !(50..=52).contains(&value);
        assert_eq!(Largest::search(48, fits), Largest::UpTo { value: 60, fails: 61 });
        let fits_above_a_hole = |value: u64| value <= 50 || value == 55;
        assert_eq!(Largest::search(48, fits_above_a_hole), Largest::UpTo { value: 55, fails: 56 });
    }
}
