//! Memory over time with calls checkpointed, next to the recorded curve: as many points as a picture has columns.

use crate::analysis::diff::overlay::{Columns, Sampler};
use crate::analysis::diff::{Align, DeviceOverlay};
use crate::analysis::timeline::{COLUMNS, XAxis};
use crate::replay::{Instant, Metric, Track};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum Point {
    /// This many bytes are allocated from now on.
    Level(i64),
    /// This many are allocated for a moment, while a call is recomputed.
    Spike(i64),
}

options! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct CurveOptions {
        /// What the x axis shows. Recomputing calls takes no time on it.
        pub axis: XAxis,
        pub columns: usize,
    }
}

impl Default for CurveOptions {
    fn default() -> Self {
        Self { axis: XAxis::default(), columns: COLUMNS }
    }
}

/// The recorded curve as the base, and the points from `simulate`, in order of time, as the new one, marked at its
/// peak.
pub(in crate::analysis) fn overlay(
    track: Track<'_>,
    options: CurveOptions,
    peak: Instant,
    simulate: impl FnOnce(&mut dyn FnMut(Instant, Point)),
) -> DeviceOverlay {
    let Track { snapshot, history } = track;
    let (times, first) = (track.times(), snapshot.first_time());
    let by_time = options.axis == XAxis::Time && snapshot.notes.has_times;
    let x = |instant: Instant| {
        if !by_time {
            return i64::from(instant);
        }
        // The state before the first entry has no time of its own.
        let time = times.get((instant as usize).saturating_sub(1)).or(times.last());
        time.zip(first).map_or(0, |(time, first)| time.saturating_sub(first))
    };
    let scale = Columns { last: x(history.entries()).max(0), columns: options.columns.max(1) };
    let start = history.start.get(Metric::Allocated);
    let mut recorded = Sampler::new(&scale, start);
    track.walk(|instant, counters| recorded.add(x(instant), counters.get(Metric::Allocated)));
    let mut predicted = Sampler::new(&scale, start);
    simulate(&mut |instant, point| match point {
        Point::Level(bytes) => predicted.add(x(instant), bytes),
        Point::Spike(bytes) => predicted.raise(x(instant), bytes),
    });
    DeviceOverlay {
        align: if by_time { Align::Time } else { Align::Entry },
        last: scale.last,
        columns: scale.columns,
        base: recorded.finish(x(history.maxima[Metric::Allocated as usize].instant)),
        new: predicted.finish(x(peak)),
        parting: None,
    }
}
