//! What is counted along a trace: the counters, their maxima, and the contradictions that they reveal.

use super::allocation::{Allocation, Instant};
use super::anomaly::{Anomalies, AnomalyKind};
use super::counters::{Counters, Maximum, Metric};
use crate::model::Action;

/// The counters up to an instant.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub now: Counters,
    /// Each counter's maximum so far, in the order of [`Metric::ALL`].
    pub maxima: [Maximum; 4],
    pub at_maxima: [Counters; 4],
    pub anomalies: Anomalies,
    /// Bytes by which blocks of the baseline may be larger than counted.
    uncertain: u64,
}

impl Tally {
    /// A tally that starts from the counters of a baseline whose blocks may be larger by `uncertain` bytes.
    pub fn starting_at(start: Counters, uncertain: u64) -> Self {
        let maxima = Metric::ALL.map(|metric| Maximum { bytes: start.get(metric), instant: 0 });
        let mut anomalies = Anomalies::default();
        if start.any_negative() {
            anomalies.add(AnomalyKind::Overflow, None, 0);
        }
        Self { now: start, maxima, at_maxima: [start; 4], anomalies, uncertain }
    }

    /// Counts an entry that concerns `allocation`, records `size` and leads to `instant`.
    #[inline]
    pub fn step(&mut self, action: Action, allocation: Option<&Allocation>, instant: Instant, size: u64) {
        let before = self.now;
        // In place: copying counters right after one of them was stored stalls the processor.
        self.now.apply(action, allocation, instant, || size);
        self.see(action, size, instant, &before);
    }

    /// Updates the maxima and the contradictions after an entry; `before` are the counters before it.
    #[inline]
    pub fn see(&mut self, action: Action, size: u64, instant: Instant, before: &Counters) {
        let rises = match action {
            Action::Alloc => {
                self.raise(Metric::Allocated, instant);
                self.raise(Metric::Active, instant);
                self.raise(Metric::Requested, instant);
                true
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                self.raise(Metric::Reserved, instant);
                true
            }
            _ => {
                // Sizes of 2^63 or more wrap around, and then a free increases the counters.
                if Metric::ALL.into_iter().any(|metric| self.now.get(metric) > before.get(metric)) {
                    for metric in Metric::ALL {
                        self.raise(metric, instant);
                    }
                }
                false
            }
        };
        if self.now.any_negative() && !before.any_negative() {
            let kind = if rises { AnomalyKind::Overflow } else { AnomalyKind::NegativeTotal };
            self.anomalies.add(kind, Some(instant - 1), 0);
        }
        // A checksum above the replay is no contradiction if the difference is at most the uncertainty of the baseline.
        if action == Action::Snapshot && size.wrapping_sub(self.now.active as u64) > self.uncertain {
            self.anomalies.add(AnomalyKind::SnapshotMismatch, Some(instant - 1), 0);
        }
    }

    #[inline]
    fn raise(&mut self, metric: Metric, instant: Instant) {
        let (maximum, bytes) = (&mut self.maxima[metric as usize], self.now.get(metric));
        if bytes > maximum.bytes {
            *maximum = Maximum { bytes, instant };
            self.at_maxima[metric as usize] = self.now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_come_with_all_counters_and_miss_nothing() {
        let counters = |allocated, reserved| Counters { allocated, reserved, ..Counters::default() };
        let mut tally = Tally::default();
        let mut see = |action, size, instant, now| {
            let before = std::mem::replace(&mut tally.now, now);
            tally.see(action, size, instant, &before);
        };
        see(Action::SegmentAlloc, 50, 1, counters(0, 50));
        see(Action::Alloc, 10, 2, counters(10, 50));
        // As after a size of 2^63 or more, which wraps around.
        see(Action::FreeRequested, u64::MAX, 3, counters(11, 50));
        see(Action::FreeRequested, 11, 4, counters(0, 50));
        let allocated = Metric::Allocated as usize;
        assert_eq!(tally.maxima[allocated], Maximum { bytes: 11, instant: 3 });
        assert_eq!(tally.at_maxima[allocated], counters(11, 50));
        assert_eq!(tally.maxima[Metric::Reserved as usize], Maximum { bytes: 50, instant: 1 });
        assert_eq!((tally.now, tally.anomalies.total()), (counters(0, 50), 0));
    }
}
