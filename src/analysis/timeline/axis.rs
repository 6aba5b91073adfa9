//! The x axis: steps to scale, startup compressed, and periods without activity folded.

use super::idle::{Gap, folded};
use super::parts::XAxis;

/// Maps x, in microseconds or entries, to columns.
///
/// The part of the program between its first and its last step takes most of the columns: the part before it takes at most a
/// tenth of them, the part after it an eighth. The axis is folded where nothing happens for a long time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    pub counts: XAxis,
    /// Parts of the axis, each with its own scale. They are adjacent, in x and in columns.
    pub periods: Vec<Period>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// First x.
    pub from: i64,
    /// The x after the last one.
    pub to: i64,
    pub start: usize,
    /// The column after the last one.
    pub end: usize,
    pub shows: Shows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    StartUp,
    /// The time between the first and the last step; the whole range if there are no steps.
    Steps,
    After,
    /// Nothing happens: the axis is folded.
    Idle,
}

/// The part before the first step takes at most one column in this many, and so does the part after the last step.
const START_UP_PART: usize = 10;
const AFTER_PART: usize = 8;
/// With fewer columns, there is no room for parts.
const LEAST_COLUMNS: usize = 40;

impl Axis {
    /// An axis over `range` (first and last x), with steps between the two values of `steps`, folded at gaps, which are in
    /// order.
    pub(super) fn new(
        counts: XAxis,
        range: (i64, i64),
        steps: Option<(i64, i64)>,
        gaps: &[Gap],
        entries: usize,
        columns: usize,
    ) -> Self {
        let (first, end) = (range.0, range.1.saturating_add(1).max(range.0.saturating_add(1)));
        let whole = Period { from: first, to: end, start: 0, end: columns.max(1), shows: Shows::Steps };
        if columns < LEAST_COLUMNS {
            return Self { counts, periods: vec![whole] };
        }
        let inside = |x: i64| x.clamp(first, end);
        let (from, to) = steps.map_or((first, end), |(from, to)| (inside(from), inside(to.saturating_add(1))));
        let zones = [(first, from, Shows::StartUp), (from, to, Shows::Steps), (to, end, Shows::After)];
        let zones = zones.into_iter().filter(|(from, to, _)| from < to);
        let parts: Vec<Zone> = zones.map(|(from, to, shows)| Zone::new(from, to, shows, gaps, entries)).collect();
        let widths = widths(&parts, columns);
        let mut periods = Vec::new();
        let mut start = 0;
        for (zone, width) in parts.iter().zip(widths) {
            zone.place(start, width, &mut periods);
            start += width;
        }
        Self { counts, periods }
    }

    pub fn range(&self) -> (i64, i64) {
        let first = self.periods.first().map_or(0, |period| period.from);
        let last = self.periods.last().map_or(0, |period| period.to.saturating_sub(1));
        (first, last)
    }

    pub fn columns(&self) -> usize {
        self.periods.last().map_or(0, |period| period.end)
    }

    /// The part that contains an x; positions outside the axis count as in the first or last part.
    fn period(&self, x: i64) -> Option<&Period> {
        let next = self.periods.partition_point(|period| period.to <= x);
        self.periods.get(next).or(self.periods.last())
    }

    pub fn column(&self, x: i64) -> usize {
        self.period(x).map_or(0, |period| {
            let offset = period.offset(x).min(period.length() - 1);
            period.start + (offset * (period.end - period.start) as i128 / period.length()) as usize
        })
    }

    /// The first x that is in this column or in a later one; `i64::MAX` if there is none. Ordered values are assigned
    /// to columns by comparing with it, which needs no division.
    pub(super) fn start_of(&self, column: usize) -> i64 {
        let next = self.periods.partition_point(|period| period.end <= column);
        let Some(period) = self.periods.get(next) else { return i64::MAX };
        let width = (period.end - period.start) as i128;
        let offset = ((column - period.start) as i128 * period.length() + width - 1) / width;
        // With more columns than x values, the last columns are empty, and there may be no later ones.
        let is_behind_all = offset == period.length() && next + 1 == self.periods.len();
        let x = i64::try_from(i128::from(period.from) + offset).unwrap_or(i64::MAX);
        if is_behind_all { i64::MAX } else { x }
    }

    pub fn position(&self, x: i64) -> f64 {
        self.period(x).map_or(0.0, |period| {
            let share = period.offset(x) as f64 / period.length() as f64;
            period.start as f64 + share * (period.end - period.start) as f64
        })
    }

    pub fn columns_of_steps(&self) -> usize {
        let (first, last) = self.periods.iter().fold((usize::MAX, 0), |(first, last), period| match period.shows {
            Shows::Steps => (first.min(period.start), last.max(period.end)),
            _ => (first, last),
        });
        last.saturating_sub(first)
    }
}

impl Period {
    fn length(&self) -> i128 {
        (i128::from(self.to) - i128::from(self.from)).max(1)
    }

    fn offset(&self, x: i64) -> i128 {
        (i128::from(x) - i128::from(self.from)).clamp(0, self.length())
    }
}

/// The part before, between or after steps.
struct Zone {
    from: i64,
    to: i64,
    shows: Shows,
    /// The folded gaps, in order.
    gaps: Vec<Gap>,
}

impl Zone {
    fn new(from: i64, to: i64, shows: Shows, gaps: &[Gap], entries: usize) -> Self {
        Self { from, to, shows, gaps: folded(gaps, (from, to), entries) }
    }

    /// The length of the part that is drawn to scale.
    fn extent(&self) -> i128 {
        let idle: i128 = self.gaps.iter().map(Gap::length).sum();
        i128::from(self.to) - i128::from(self.from) - idle
    }

    /// Adds its parts, which take `width` columns from `start` on.
    fn place(&self, start: usize, width: usize, out: &mut Vec<Period>) {
        let mut gaps = self.gaps.as_slice();
        // Each part has at least one column, and each gap one more if there is room.
        let fold = (width / 80).clamp(1, 10);
        while (fold + 1) * gaps.len() + 1 > width / 2 && !gaps.is_empty() {
            gaps = &gaps[..gaps.len() - 1];
        }
        let idle: i128 = gaps.iter().map(Gap::length).sum();
        let extent = (i128::from(self.to) - i128::from(self.from) - idle).max(1);
        let room = width - fold * gaps.len();
        let plain = gaps.len() + 1;
        let (mut from, mut column, mut scaled) = (self.from, start, 0i128);
        for index in 0..plain {
            let to = gaps.get(index).map_or(self.to, |gap| gap.from);
            scaled += i128::from(to) - i128::from(from);
            let spread = (scaled * (room - plain) as i128 / extent) as usize;
            let end = start + fold * index + index + 1 + spread.min(room - plain);
            if from < to {
                out.push(Period { from, to, start: column, end, shows: self.shows });
                column = end;
            }
            if let Some(gap) = gaps.get(index) {
                out.push(Period { from: gap.from, to: gap.to, start: column, end: end + fold, shows: Shows::Idle });
                (from, column) = (gap.to, end + fold);
            }
        }
        // If the zone ends with a gap, the gap includes the column after it.
        if let Some(last) = out.last_mut() {
            last.end = start + width;
        }
    }
}

fn widths(zones: &[Zone], columns: usize) -> Vec<usize> {
    let total = zones.iter().map(Zone::extent).sum::<i128>().max(1);
    let share = |zone: &Zone| (zone.extent() * columns as i128 / total) as usize;
    let width = |zone: &Zone| match zone.shows {
        Shows::StartUp => share(zone).clamp(columns / 100 + 1, columns / START_UP_PART),
        Shows::After => share(zone).clamp(columns / 100 + 1, columns / AFTER_PART),
        Shows::Steps | Shows::Idle => 0,
    };
    let mut widths: Vec<usize> = zones.iter().map(width).collect();
    let rest = columns - widths.iter().sum::<usize>();
    // If steps are unknown, everything is one zone.
    let main = zones.iter().position(|zone| zone.shows == Shows::Steps).unwrap_or(0);
    widths[main] += rest;
    widths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::timeline::idle::gaps;

    fn axis(times: &[i64], steps: Option<(i64, i64)>) -> Axis {
        let range = (times[0], times[times.len() - 1]);
        Axis::new(XAxis::Time, range, steps, &gaps(times.iter().copied(), range), times.len(), 800)
    }

    #[test]
    fn parts_abut_and_cover_everything() {
        let times: Vec<i64> = (0..500).map(|n| n * 10 + if n > 200 { 90_000 } else { 0 } + n % 7).collect();
        for steps in [None, Some((3000, 94_000)), Some((0, 1)), Some((93_000, 93_001)), Some((-5, 1_000_000))] {
            let axis = axis(&times, steps);
            assert_eq!((axis.periods[0].from, axis.periods[0].start), (0, 0));
            assert_eq!((axis.range(), axis.columns()), ((times[0], times[499]), 800));
            for pair in axis.periods.windows(2) {
                assert_eq!((pair[0].to, pair[0].end), (pair[1].from, pair[1].start), "{axis:?}");
            }
            assert!(axis.periods.iter().all(|part| part.from < part.to && part.start < part.end), "{axis:?}");
            let columns: Vec<usize> = times.iter().map(|&time| axis.column(time)).collect();
            assert!(columns.is_sorted() && columns[499] == 799, "{axis:?}");
            for column in 0..=800 {
                let start = axis.start_of(column);
                assert!(start == i64::MAX || axis.column(start) >= column, "{column} of {axis:?}");
                assert!(axis.column(start.saturating_sub(1).min(times[499])) < column.max(1), "{column} of {axis:?}");
            }
            assert!(axis.periods.iter().any(|part| part.shows == Shows::Idle), "{axis:?}");
        }
    }

    #[test]
    fn steps_take_most_of_the_axis_after_a_long_start_up() {
        let start_up = (0..1000).map(|n| n * 5000);
        let times: Vec<i64> = start_up.chain((0..1000).map(|n| 6_000_000 + n * 3)).collect();
        let axis = axis(&times, Some((6_000_000, 6_003_000)));
        assert!(axis.columns_of_steps() >= 720, "{axis:?}");
        assert!(axis.position(6_000_000) <= 80.0, "{axis:?}");
    }

    #[test]
    fn evenly_spread_entries_are_drawn_to_scale() {
        let times: Vec<i64> = (0..10).map(|n| n * 1000).collect();
        assert_eq!(axis(&times, None).periods.len(), 1);
    }
}
