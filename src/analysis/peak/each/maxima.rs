//! The highest instant of each of many ranges, in one pass over a history.

use crate::replay::{Counters, Instant, Metric, Track};
use crate::sorting::SortRows;

/// An instant and the counters there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    pub instant: Instant,
    /// The counters after the entry that leads to it.
    pub counters: Counters,
}

/// Where a metric is first highest within each of `spans`, both ends included, in their order.
///
/// Instants are kept if they are higher than every later one so far: the highest instant of a range that ends now is
/// the first of them within it.
pub fn of(track: Track<'_>, metric: Metric, spans: &[(Instant, Instant)]) -> Vec<Highest> {
    let history = track.history;
    let start = Highest { instant: 0, counters: history.start };
    let mut found = vec![start; spans.len()];
    let mut by_end: Vec<usize> = (0..spans.len()).collect();
    by_end.sort_rows_by_key(|&index| spans[index].1);
    let mut ending = by_end.into_iter().peekable();
    let mut falling = vec![start];
    let mut answer = |falling: &[Highest]| {
        let now = falling.last().map_or(0, |last| last.instant);
        while let Some(index) = ending.next_if(|&index| spans[index].1 <= now) {
            let first = falling.partition_point(|highest| highest.instant < spans[index].0);
            found[index] = falling.get(first).or(falling.last()).copied().unwrap_or(start);
        }
    };
    answer(&falling);
    let last = spans.iter().map(|&(_, to)| to).max().unwrap_or(0);
    track.walk_to(last, |instant, counters| {
        let bytes = counters.get(metric);
        while falling.pop_if(|before| before.counters.get(metric) < bytes).is_some() {}
        falling.push(Highest { instant, counters: *counters });
        answer(&falling);
    });
    found
}
