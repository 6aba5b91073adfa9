//! The peak of each step, phase or annotation: its instant, and its memory by group.
//!
//! In: the ranges of a device, which may overlap and nest. Out: a [`RangePeak`] for each. Maxima, counters and leading
//! groups of all ranges take one pass each over the history, however many there are.

mod extents;
mod kind;
mod leaders;
mod maxima;

use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::facts::grouping::Grouper;
use crate::facts::grouping::attribution::Row;
use crate::facts::time::moment::Moment;
use crate::facts::training::steps::Steps;
use crate::model::device_words;
use crate::replay::{Bound, Completeness, Counters, Instant, Maximum, Metric, Track};
use crate::sorting::SortRows;
use extents::{Extent, Extents};
pub use kind::{Each, OUTSIDE};
use leaders::Leaders;
use maxima::Highest;
use std::cmp::Reverse;

/// The most ranges listed: those with the highest peaks. The others are counted.
pub const MAX_RANGES: usize = 100_000;

options! {
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct EachOptions {
        pub each: Each,
        pub top: usize,
    }
}

impl EachOptions {
    /// These ranges, each with the group that holds the most.
    pub fn new(each: Each) -> Self {
        Self { each, top: 1 }
    }
}

#[derive(Clone, Debug)]
pub struct RangePeak {
    /// Its name; if several ranges have one name, from the second on, with its place among them: `forward#2`, as
    /// [`crate::facts::time::when::When`] takes it.
    pub label: String,
    /// Its name without the place. Ranges whose names differ only in their numbers share it: `step_N`.
    pub family: String,
    /// The instant at which it starts: its peak may be what was held then.
    pub from: Instant,
    pub to: Instant,
    pub peak: Moment,
    pub at: Counters,
    /// Whether this range is inferred rather than recorded.
    pub inferred: bool,
    /// Which bound the peak is, if it is not exact: a range that started before the recording, or was still open at its end,
    /// may have had a higher one.
    pub bound: Option<Bound>,
    /// Bytes of the metric that are held at the peak.
    pub total_bytes: u64,
    /// The groups that hold most of it, without stacks, and one for the rest, so that they sum to the total unless
    /// groups overlap.
    pub top: Vec<Row>,
}

impl RangePeak {
    /// Whether memory was highest when the range started, so that nothing in it caused the peak.
    pub fn is_inherited(&self) -> bool {
        self.peak.instant == self.from && self.from < self.to
    }

    /// Whether it represents the history that no range covers: see [`OUTSIDE`].
    pub fn is_outside(&self) -> bool {
        self.label == OUTSIDE
    }
}

#[derive(Clone, Debug)]
pub struct RangePeaks {
    pub each: Each,
    pub steps: Option<Steps>,
    /// In order of their starts, enclosing ones first.
    pub ranges: Vec<RangePeak>,
    /// Number of ranges beyond [`MAX_RANGES`], and the highest peak among them in bytes.
    pub left_out: Option<(usize, i64)>,
}

pub(super) struct Question<'d, 'a> {
    pub(super) device: &'d Device<'a>,
    pub(super) metric: Metric,
    /// First and last instant of the window.
    pub(super) window: (Instant, Instant),
    pub(super) highest: Maximum,
}

impl RangePeaks {
    /// Finds the ranges of a device and the peak of each. `grouper` defines the leading groups, for all instants.
    ///
    /// # Errors
    /// If the device has no such ranges, with a hint how to record them.
    pub(super) fn of(question: &Question<'_, '_>, grouper: &Grouper<'_>, options: &EachOptions) -> Result<Self> {
        let &Question { device, metric, window, highest } = question;
        let Extents { steps, mut extents } = extents::find(device, &options.each)?;
        extents::clip(&mut extents, window);
        if extents.is_empty() {
            let (device, each) = (device.id(), options.each.name());
            return Err(Error::Request(format!("{} has no {each} between --from and --to", device_words(device))));
        }
        extents.extend(extents::outside(&extents, window, highest));
        extents.sort_rows_by_key(|extent| (extent.from, Reverse(extent.to)));
        let Track { snapshot, history } = device.track;
        let spans: Vec<_> = extents.iter().map(|extent| (extent.from, extent.to)).collect();
        let mut found: Vec<(Extent, Highest)> =
            extents.into_iter().zip(maxima::of(device.track, metric, &spans)).collect();
        let left_out = keep_highest(&mut found, metric);
        let instants: Vec<Instant> = found.iter().map(|(_, highest)| highest.instant).collect();
        let leaders = leaders::of(grouper, metric, &instants, options.top);
        let range = |((extent, highest), leaders): ((Extent, Highest), Leaders)| RangePeak {
            label: extent.label(snapshot),
            family: extent.family(snapshot),
            from: extent.from,
            to: extent.to,
            peak: Moment::of(device.track, device.annotations(), highest.instant),
            at: highest.counters,
            inferred: extent.inferred,
            bound: bound(&extent, highest.instant, &history.completeness, metric),
            total_bytes: leaders.total_bytes,
            top: leaders.rows,
        };
        let ranges = found.into_iter().zip(leaders).map(range).collect();
        Ok(Self { each: options.each.clone(), steps, ranges, left_out })
    }
}

/// Which bound the peak of a range is. Gaps of a recording affect every range; a range that was recorded only in part may
/// have been higher in the missing part.
fn bound(extent: &Extent, instant: Instant, completeness: &Completeness, metric: Metric) -> Option<Bound> {
    let is_early = instant == 0 && completeness.has_baseline;
    completeness.bound(metric).or((extent.cut || is_early).then_some(Bound::Lower))
}

/// Keeps the [`MAX_RANGES`] ranges with the highest peaks in their order. Returns the number of the others and their
/// highest peak, if there are any.
fn keep_highest(found: &mut Vec<(Extent, Highest)>, metric: Metric) -> Option<(usize, i64)> {
    let bytes = |(_, highest): &(Extent, Highest)| highest.counters.get(metric);
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_rows_by_key(|&index| Reverse(bytes(&found[index])));
    let others = order.get(MAX_RANGES..).filter(|others| !others.is_empty())?;
    let left_out = (others.len(), bytes(&found[others[0]]));
    let mut keep = vec![true; found.len()];
    for &other in others {
        keep[other] = false;
    }
    let mut keep = keep.into_iter();
    found.retain(|_| keep.next() == Some(true));
    Some(left_out)
}
