//! From a part of an axis to instants.

use super::folds::Folds;
use super::pyramid::Pyramid;
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::replay::{Instant, Metric};
use std::borrow::Cow;
use std::sync::Arc;

/// The most columns of a part: more than the width of any screen.
pub const MOST_COLUMNS: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SceneAxis {
    Entry,
    /// Microseconds since the first entry of the recording.
    Time,
    /// Microseconds, except that long periods in which nothing happens on any device are shortened: see [`super::Folds`].
    Folded,
    /// Millionths of the device's steps. All steps have the same length, with their entries at equal distances, and so
    /// has the part after the last one: on this axis, steps of several recordings start at the same position.
    Step,
}

const STEP: f64 = 1e6;

/// A part of an axis, in columns of equal width. The last one includes its right edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub axis: SceneAxis,
    pub from: f64,
    pub to: f64,
    pub columns: usize,
}

/// The instant of each column at which a counter is highest, including the state at the start of the column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instants, in ascending order. If nothing happens in a column, the instant of the state at its start.
    pub instants: Vec<Instant>,
    pub values: Vec<i64>,
}

/// Where the instants of a device are on each axis.
#[derive(Clone, Debug)]
pub(super) struct Clock<'a> {
    device: Device<'a>,
    times: Cow<'a, [i64]>,
    origin: i64,
    folds: Arc<Folds>,
}

impl Part {
    /// Returns an error for a part that cannot be divided into columns.
    pub(super) fn check(&self, clock: &Clock<'_>) -> Result<()> {
        if matches!(self.axis, SceneAxis::Time | SceneAxis::Folded) && !clock.device.track.has_times() {
            return Err(Error::Request("this recording has no times (PyTorch 2.0); use the entry axis".to_owned()));
        }
        if self.axis == SceneAxis::Step && clock.device.steps().is_err() {
            return Err(Error::Request("memviz finds no steps on this device; use the entry axis".to_owned()));
        }
        if self.columns == 0 || self.columns > MOST_COLUMNS {
            let found = self.columns;
            return Err(Error::Request(format!("expected 1 to {MOST_COLUMNS} columns, found {found}")));
        }
        if self.from < self.to && self.from.is_finite() && self.to.is_finite() {
            return Ok(());
        }
        Err(Error::Request(format!("expected a part that starts before it ends, found {} to {}", self.from, self.to)))
    }

    /// A whole step, in columns.
    pub(super) fn of_step(step: usize, columns: usize) -> Self {
        Self { axis: SceneAxis::Step, from: STEP * step as f64, to: STEP * (step + 1) as f64, columns }
    }

    fn edge(&self, column: usize) -> f64 {
        self.from + (self.to - self.from) * (column as f64 / self.columns as f64)
    }
}

impl<'a> Clock<'a> {
    pub fn of(device: &Device<'a>, folds: Arc<Folds>) -> Self {
        let mut times = Cow::Borrowed(device.track.times());
        if !times.is_sorted() {
            let mut latest = i64::MIN;
            for time in times.to_mut() {
                latest = latest.max(*time);
                *time = latest;
            }
        }
        let origin = device.snapshot().first_time().unwrap_or(0);
        Self { device: device.clone(), times, origin, folds }
    }

    pub fn position(&self, axis: SceneAxis, instant: Instant) -> f64 {
        match axis {
            SceneAxis::Entry => f64::from(instant),
            SceneAxis::Time => {
                let time = self.times.get((instant as usize).saturating_sub(1));
                time.map_or(0.0, |time| time.saturating_sub(self.origin) as f64)
            }
            SceneAxis::Folded => self.folds.position(self.position(SceneAxis::Time, instant)),
            SceneAxis::Step => {
                let entry = instant.saturating_sub(1);
                let ends = self.device.steps().map_or(&[][..], |steps| &steps.ends);
                let complete = ends.partition_point(|&end| end <= entry);
                let from = complete.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(0);
                let to = ends.get(complete).copied().unwrap_or_else(|| self.device.track.entries()).max(from + 1);
                STEP * (complete as f64 + f64::from(entry.saturating_sub(from)) / f64::from(to - from))
            }
        }
    }

    /// Number of instants left of a position, and whether one is right there.
    fn before(&self, axis: SceneAxis, position: f64) -> (Instant, bool) {
        let entries = self.device.track.entries();
        match axis {
            SceneAxis::Entry => {
                let count = position.ceil().clamp(0.0, f64::from(entries) + 1.0);
                (count as Instant, position >= count && position <= f64::from(entries))
            }
            SceneAxis::Time => {
                let at = |time: i64| time.saturating_sub(self.origin) as f64;
                let before = self.times.partition_point(|&time| at(time) < position);
                let is_there = self.times.get(before).is_some_and(|&time| at(time) <= position);
                // The state before the first entry is at the position of that entry.
                let first = Instant::from(before > 0 || (self.times.is_empty() && position > 0.0));
                (before as Instant + first, is_there)
            }
            SceneAxis::Folded | SceneAxis::Step => {
                let (mut before, mut end) = (0, entries + 1);
                while before < end {
                    let middle = before + (end - before) / 2;
                    if self.position(axis, middle) < position {
                        before = middle + 1;
                    } else {
                        end = middle;
                    }
                }
                (before, before <= entries && self.position(axis, before) <= position)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The instant at its start: the one at its left edge, or else the last one before that.
    pub first: Instant,
    /// Its last instant; the first one if nothing happens in it.
    pub last: Instant,
    /// Whether the first one is before its left edge.
    pub begins_before: bool,
}

impl Column {
    pub(super) fn all(clock: &Clock<'_>, part: &Part) -> impl Iterator<Item = Self> {
        let (mut left, mut is_there) = clock.before(part.axis, part.from);
        (1..=part.columns).map(move |column| {
            let (mut right, next_is_there) = clock.before(part.axis, part.edge(column));
            if column == part.columns && next_is_there {
                right = clock.before(part.axis, part.edge(column).next_up()).0;
            }
            let first = if is_there { left } else { left.saturating_sub(1) };
            let all = Self { first, last: right.saturating_sub(1).max(first), begins_before: !is_there };
            (left, is_there) = (right, next_is_there);
            all
        })
    }
}

impl Columns {
    pub(super) fn of(device: &Device<'_>, clock: &Clock<'_>, pyramid: &Pyramid, metric: Metric, part: &Part) -> Self {
        let highest =
            Column::all(clock, part).map(|column| pyramid.highest(device.track, metric, column.first, column.last));
        let (instants, values) = highest.map(|highest| (highest.instant, highest.bytes)).unzip();
        Self { instants, values }
    }
}
