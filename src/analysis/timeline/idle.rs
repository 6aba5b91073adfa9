//! Periods in which nothing happens for a long time.

use crate::sorting::SortRows;
use std::cmp::Reverse;

/// A part of the x axis in which nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct Gap {
    /// First x.
    pub from: i64,
    /// The x after the last one: the x of the next entry.
    pub to: i64,
}

impl Gap {
    pub(in crate::analysis) fn length(&self) -> i128 {
        i128::from(self.to) - i128::from(self.from)
    }
}

/// The least length of a gap, as a fraction of the shown range: shorter ones are ignored.
const LEAST_PART: i128 = 400;
/// A gap is folded if it takes at least this fraction of the part that is drawn to scale, and is this many times as
/// long as the usual distance between two entries.
const FOLDED_PART: i128 = 12;
const UNUSUAL: i128 = 8;
/// The most folds of a part of the axis.
const FOLDS: usize = 8;

/// The gaps of a range, given all x in order; where x decreases, as in damaged files, there is no gap.
pub(in crate::analysis) fn gaps(all: impl IntoIterator<Item = i64>, range: (i64, i64)) -> Vec<Gap> {
    let least = ((i128::from(range.1) - i128::from(range.0)) / LEAST_PART).max(1);
    let end = range.1.saturating_add(1);
    let mut gaps = Vec::new();
    let mut from = range.0;
    for x in all.into_iter().chain([end]) {
        let gap = Gap { from, to: x.min(end) };
        if gap.length() > least {
            gaps.push(gap);
        }
        from = from.max(x.saturating_add(1));
    }
    gaps
}

pub(in crate::analysis) fn common(a: &[Gap], b: &[Gap]) -> Vec<Gap> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let gap = Gap { from: one.from.max(other.from), to: one.to.min(other.to) };
        if gap.from < gap.to {
            both.push(gap);
        }
        if one.to < other.to {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

/// The folded gaps within a part of the axis, in order. `entries` is the total number of entries.
pub(in crate::analysis) fn folded(gaps: &[Gap], (from, to): (i64, i64), entries: usize) -> Vec<Gap> {
    let clipped = gaps.iter().map(|gap| Gap { from: gap.from.max(from), to: gap.to.min(to) });
    let mut gaps: Vec<Gap> = clipped.filter(|gap| gap.from < gap.to).collect();
    gaps.sort_rows_by_key(|gap| (Reverse(gap.length()), gap.from));
    let mut drawn = i128::from(to) - i128::from(from);
    let mut folds = 0;
    for gap in gaps.iter().take(FOLDS) {
        let usual = (drawn - gap.length()) / entries.max(1) as i128;
        if gap.length() * FOLDED_PART < drawn || gap.length() < usual.saturating_mul(UNUSUAL) {
            break;
        }
        drawn -= gap.length();
        folds += 1;
    }
    gaps.truncate(folds);
    gaps.sort_rows_by_key(|gap| gap.from);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_gaps_are_gaps_on_all_devices() {
        let range = (0, 1000);
        let one = gaps([0, 100, 500, 1000], range);
        let other = gaps([0, 300, 1000], range);
        let pairs: Vec<_> = common(&one, &other).iter().map(|gap| (gap.from, gap.to)).collect();
        assert_eq!(pairs, [(1, 100), (101, 300), (301, 500), (501, 1000)]);
    }
}
