//! Maps instants to columns.

use super::axis::Axis;
use super::focus::StepSpan;
use super::idle::{Gap, common, gaps};
use super::parts::{Column, OomMark, Ribbon, XAxis};
use crate::facts::time::annotations::Annotations;
use crate::model::Action;
use crate::replay::{Instant, Metric, Track};

#[derive(Clone, Debug)]
pub(super) struct Scale {
    counts: XAxis,
    origin: i64,
    pub range: (i64, i64),
    /// The start of the first step, and the end of the last one.
    steps: Option<(i64, i64)>,
    /// Where nothing happens.
    gaps: Vec<Gap>,
    entries: usize,
}

impl Scale {
    pub fn of(
        track: Track<'_>,
        counts: XAxis,
        origin: i64,
        (from, to): (Instant, Instant),
        steps: Option<&StepSpan>,
    ) -> Self {
        let counts = if track.has_times() { counts } else { XAxis::Entry };
        let mut scale = Self { counts, origin, range: (0, 0), steps: None, gaps: Vec::new(), entries: 0 };
        let times = track.times();
        let x = |instant| scale.x(times, instant);
        // The state before the first entry has no time of its own, so the axis starts at the first entry.
        let start = if from == 0 && counts == XAxis::Time { x(1) } else { x(from) };
        let range = (start, x(to).max(start));
        let steps = steps.map(|steps| (x(steps.start + 1), x(steps.end())));
        let entries = times.get(from.saturating_sub(1) as usize..to as usize).unwrap_or(&[]);
        let idle = match counts {
            XAxis::Time => gaps(entries.iter().map(|time| time.saturating_sub(origin)), range),
            XAxis::Entry => Vec::new(),
        };
        (scale.range, scale.steps, scale.gaps, scale.entries) = (range, steps, idle, entries.len());
        scale
    }

    pub fn x(&self, times: &[i64], instant: Instant) -> i64 {
        match self.counts {
            XAxis::Entry => i64::from(instant),
            XAxis::Time => {
                let entry = (instant as usize).saturating_sub(1).min(times.len().saturating_sub(1));
                times.get(entry).map_or(0, |time| time.saturating_sub(self.origin))
            }
        }
    }

    /// One scale for all devices, if they measure time.
    pub fn together(all: &[&Self]) -> Option<Self> {
        let (first, others) = all.split_first()?;
        if all.iter().any(|scale| scale.counts != XAxis::Time) {
            return None;
        }
        let widest = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        let range = others.iter().fold(first.range, |range, scale| widest(range, scale.range));
        let steps = all.iter().filter_map(|scale| scale.steps).reduce(widest);
        let gaps = others.iter().fold(first.gaps_within(range), |gaps, scale| common(&gaps, &scale.gaps_within(range)));
        let entries = all.iter().map(|scale| scale.entries).sum();
        Some(Self { range, steps, gaps, entries, ..(*first).clone() })
    }

    /// Whether there is an x that all of them contain.
    pub fn overlap(all: &[&Self]) -> bool {
        let last_start = all.iter().map(|scale| scale.range.0).max();
        let first_end = all.iter().map(|scale| scale.range.1).min();
        last_start <= first_end
    }

    /// The gaps within a longer range, including the parts around this one.
    fn gaps_within(&self, (first, last): (i64, i64)) -> Vec<Gap> {
        let before = Gap { from: first, to: self.range.0 };
        let after = Gap { from: self.range.1.saturating_add(1), to: last.saturating_add(1) };
        let all = [before].into_iter().chain(self.gaps.iter().copied()).chain([after]);
        all.filter(|gap| gap.from < gap.to).collect()
    }

    pub fn axis(&self, columns: usize) -> Axis {
        Axis::new(self.counts, self.range, self.steps, &self.gaps, self.entries, columns)
    }
}

/// Whether an instant is between a request to free a block and its completion at the next entry.
fn completes_next(track: Track<'_>, instant: Instant) -> bool {
    let entries = [instant - 1, instant];
    let addresses = || entries.map(|entry| track.entry(entry).map(|entry| entry.addr));
    entries.map(|entry| track.action(entry)) == [Some(Action::FreeRequested), Some(Action::FreeCompleted)]
        && addresses()[0] == addresses()[1]
}

/// Samples and other contents of a part of a history.
pub(super) struct Sampled {
    pub columns: Vec<Column>,
    pub ooms: Vec<OomMark>,
}

impl Sampled {
    /// Picks the highest instant of each column, in one pass.
    pub fn of(track: Track<'_>, metric: Metric, scale: &Scale, axis: &Axis, (from, to): (Instant, Instant)) -> Self {
        let times = track.times();
        let counters = track.counters_at(from);
        let mut now =
            Column { instant: from, counters, max_active: counters.allocated, max_reserved: counters.reserved };
        let mut highest = now;
        let count = axis.columns();
        let mut columns = Vec::with_capacity(count);
        let mut next_starts = axis.start_of(1);
        let mut ooms = Vec::new();
        track.walk_to(to, |instant, counters| {
            if instant <= from {
                return;
            }
            let x = scale.x(times, instant);
            while x >= next_starts && columns.len() + 1 < count {
                columns.push(highest);
                highest = now;
                next_starts = axis.start_of(columns.len() + 1);
            }
            let held = if completes_next(track, instant) { now.counters.allocated } else { counters.allocated };
            let max_active = counters.active.saturating_sub(held.saturating_sub(counters.allocated));
            let max_reserved = counters.reserved;
            now = Column { instant, counters: *counters, max_active, max_reserved };
            let max_active = highest.max_active.max(now.max_active);
            let max_reserved = highest.max_reserved.max(now.max_reserved);
            if counters.get(metric) > highest.counters.get(metric) {
                highest = now;
            }
            (highest.max_active, highest.max_reserved) = (max_active, max_reserved);
            ooms.extend(OomMark::at(track, instant, x, counters));
        });
        while columns.len() < count {
            columns.push(highest);
            highest = now;
        }
        Self { columns, ooms }
    }
}

pub(super) fn ribbons(track: Track<'_>, annotations: &Annotations, scale: &Scale, axis: &Axis) -> Vec<Ribbon> {
    let snapshot = track.snapshot;
    let times = track.times();
    if !snapshot.notes.has_times || times.is_empty() {
        return Vec::new();
    }
    let x = |time: i64| match scale.counts {
        XAxis::Time => time.saturating_sub(scale.origin),
        XAxis::Entry => times.partition_point(|&entry| entry < time) as i64,
    };
    let (first, last) = axis.range();
    let ranges = annotations.ranges.iter().map(|range| Ribbon {
        label: snapshot.strings.get(range.name).to_owned(),
        start: x(range.start_us).max(first),
        end: x(range.end_us).min(last),
        depth: range.depth,
    });
    ranges.filter(|ribbon| ribbon.start < ribbon.end).collect()
}
