//! From a part of an axis to instants.

use super::pyramid::Pyramid;
use crate::analysis::timeline::XAxis;
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::replay::{Instant, Metric, Track};
use std::borrow::Cow;

/// The most columns of a part: more than any screen has.
pub const MOST_COLUMNS: usize = 1 << 14;

/// A part of an axis, in columns of equal width. The last one includes its right edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What the axis counts: microseconds since the first entry of the recording, or instants.
    pub axis: XAxis,
    /// Left edge.
    pub from: f64,
    /// Right edge.
    pub to: f64,
    /// Number of columns.
    pub columns: usize,
}

/// The instant of each column at which a counter is highest, including the state at the start of the column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instants, in ascending order. If nothing happens in a column, the instant of the state at its start.
    pub instants: Vec<Instant>,
    /// The counter there.
    pub values: Vec<i64>,
}

/// The times of a device's entries, in order.
#[derive(Clone, Debug)]
pub(super) struct Clock<'a> {
    times: Cow<'a, [i64]>,
    origin: i64,
    entries: u32,
    has_times: bool,
}

impl Part {
    /// Refuses what has no columns.
    pub(super) fn check(&self, clock: &Clock<'_>) -> Result<()> {
        if self.axis == XAxis::Time && !clock.has_times {
            return Err(Error::Request("this recording has no times (PyTorch 2.0); use the axis entry".to_owned()));
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

    /// The left edge of a column.
    fn edge(&self, column: usize) -> f64 {
        self.from + (self.to - self.from) * (column as f64 / self.columns as f64)
    }
}

impl<'a> Clock<'a> {
    pub fn of(track: Track<'a>) -> Self {
        let mut times = Cow::Borrowed(track.times());
        if !times.is_sorted() {
            let mut latest = i64::MIN;
            for time in times.to_mut() {
                latest = latest.max(*time);
                *time = latest;
            }
        }
        let origin = track.snapshot.first_time().unwrap_or(0);
        Self { times, origin, entries: track.entries(), has_times: track.has_times() }
    }

    /// Where an instant is on an axis.
    pub fn position(&self, axis: XAxis, instant: Instant) -> f64 {
        match axis {
            XAxis::Entry => f64::from(instant),
            XAxis::Time => {
                let time = self.times.get((instant as usize).saturating_sub(1));
                time.map_or(0.0, |time| time.saturating_sub(self.origin) as f64)
            }
        }
    }

    /// Number of instants left of a position, and whether one is right there.
    fn before(&self, axis: XAxis, position: f64) -> (Instant, bool) {
        match axis {
            XAxis::Entry => {
                let count = position.ceil().clamp(0.0, f64::from(self.entries) + 1.0);
                (count as Instant, position >= count && position <= f64::from(self.entries))
            }
            XAxis::Time => {
                let at = |time: i64| time.saturating_sub(self.origin) as f64;
                let before = self.times.partition_point(|&time| at(time) < position);
                let is_there = self.times.get(before).is_some_and(|&time| at(time) <= position);
                // The state before the first entry is at the position of that entry.
                let first = Instant::from(before > 0 || (self.times.is_empty() && position > 0.0));
                (before as Instant + first, is_there)
            }
        }
    }
}

/// The instants of a column.
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
    /// The instants of each column of a part.
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
