//! Long periods without activity, which the axis of folded time shortens.

use crate::analysis::timeline::idle::{Gap, common, folded, gaps};
use crate::facts::device::{Device, Devices};
use serde::Serialize;

/// A fold takes one part in this many of the time that is drawn to scale, as in the pictures.
const FOLD_PART: f64 = 80.0;

/// The folds of a recording, which all of its devices share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Folds {
    /// Microseconds since the first entry of the recording: the start and the end of each fold, in order.
    pub periods: Vec<(f64, f64)>,
    /// The length of each fold on the axis.
    pub length: f64,
}

impl Folds {
    pub fn of(devices: &Devices<'_>) -> Self {
        let timed: Vec<&Device<'_>> = devices.all().iter().filter(|device| device.track.has_times()).collect();
        let times = || timed.iter().flat_map(|device| device.track.times().iter().copied());
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Self::default() };
        let idle = |device: &&Device<'_>| gaps(device.track.times().iter().copied(), (first, last));
        let Some(idle) = timed.iter().map(idle).reduce(|a, b| common(&a, &b)) else { return Self::default() };
        let all = folded(&idle, (first, last.saturating_add(1)), times().count());
        let length: i128 = all.iter().map(Gap::length).sum();
        let origin = devices.snapshot().first_time().unwrap_or(first);
        let since = |time: i64| time.saturating_sub(origin) as f64;
        Self {
            periods: all.iter().map(|gap| (since(gap.from), since(gap.to))).collect(),
            length: (i128::from(last) - i128::from(first) - length) as f64 / FOLD_PART,
        }
    }

    /// The position of a time on the axis; never decreasing.
    pub fn position(&self, time: f64) -> f64 {
        let mut position = time;
        for &(from, to) in &self.periods {
            let passed = (time.min(to) - from).max(0.0);
            position -= passed * (1.0 - self.length / (to - from));
        }
        position
    }
}
