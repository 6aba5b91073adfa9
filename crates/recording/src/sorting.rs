//! One sort for the lists that answers show.
//!
//! The standard library compiles its stable sort for each type and key, 8 KB each time, and there are about a hundred such
//! sorts. Code that sorts millions of entries or allocations uses it; everything else sorts indices here, and then moves the
//! elements.

use std::cmp::Ordering;

/// Sorts like [`slice::sort_by`], with less code.
pub trait SortRows<T> {
    /// Sorts by a comparison; equal elements keep their order.
    fn sort_rows_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key; elements with equal keys keep their order.
    fn sort_rows_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortRows<T> for [T] {
    fn sort_rows_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let places = sorted_places(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        arrange(self, places);
    }

    fn sort_rows_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_rows_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// The current index of each element of the sorted list.
fn sorted_places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|&a, &b| compare(a, b));
    places
}

/// Moves to each place the element whose index is in the list.
fn arrange<T>(elements: &mut [T], mut places: Vec<usize>) {
    for start in 0..elements.len() {
        let mut to = start;
        loop {
            let from = std::mem::replace(&mut places[to], to);
            if from == start {
                break;
            }
            elements.swap(to, from);
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SortRows;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_as_the_standard_library(mut rows in prop::collection::vec((0_u8..8, any::<u16>()), 0..200)) {
            let mut expected = rows.clone();
            expected.sort_by_key(|&(key, _)| key);
            rows.sort_rows_by_key(|&(key, _)| key);
            prop_assert_eq!(rows, expected);
        }
    }
}
