//! Work on every core, for everything that computes one answer for each of a few items.
//!
//! Rayon's iterators and joins are compiled for each closure, about 10 KB each time. Here rayon is compiled once, for closures
//! behind a pointer. Each item takes a lock twice, so callers with many small items pass portions of them.
//!
//! What initializes a `OnceLock` that several threads use must not call these functions: while it waits, its thread may run other
//! work, which may wait for the same lock.

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The results for all items, in their order.
pub fn map<T: Send, U: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> U + Sync) -> Vec<U> {
    let items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let results: Vec<Option<U>> = items.iter().map(|_| None).collect();
    let count = items.len();
    let shared = Mutex::new((items, results));
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    for_each(count, &|index| {
        let item = lock().0[index].take();
        let result = item.map(&work);
        lock().1[index] = result;
    });
    let (_, results) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

/// The results for the items that have one, in their order.
pub fn filter_map<T: Send, U: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Option<U> + Sync,
) -> Vec<U> {
    map(items, work).into_iter().flatten().collect()
}

/// Both results; another thread may compute the second one at the same time.
pub fn join<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut first, mut second) = (Some(first), Some(second));
    let (mut of_first, mut of_second) = (None, None);
    both(&mut || of_first = first.take().map(|work| work()), &mut || of_second = second.take().map(|work| work()));
    match (of_first, of_second) {
        (Some(first), Some(second)) => (first, second),
        _ => unreachable!("rayon calls both closures"),
    }
}

#[inline(never)]
fn for_each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().with_max_len(1).for_each(work);
}

#[inline(never)]
fn both(first: &mut (dyn FnMut() + Send), second: &mut (dyn FnMut() + Send)) {
    rayon::join(first, second);
}

#[cfg(test)]
mod tests {
    use super::{filter_map, join, map};

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        assert_eq!(map(&items, String::len), items.iter().map(String::len).collect::<Vec<_>>());
        assert_eq!(map(items.clone(), |item| item), items, "also of items that are moved");
        let even = filter_map(0..1000, |number| (number % 2 == 0).then_some(number));
        assert_eq!(even, (0..1000).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn each_closure_runs_once() {
        let (mut first, mut second) = (0, 0);
        let results = join(
            || {
                first += 1;
                "first"
            },
            || {
                second += 1;
                second
            },
        );
        assert_eq!((results, first), (("first", 1), 1));
    }
}
