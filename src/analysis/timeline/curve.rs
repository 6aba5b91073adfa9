//! The curve as data: counters and groups at the highest instant of each part of a history.

use super::{Band, bands, require_parts};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::Grouper;
use crate::facts::grouping::attribution::OTHER;
use crate::facts::time::moment::Moment;
use crate::parallel;
use crate::replay::{Bound, Counters, Instant, Metric, Track};
use crate::sorting::SortRows;
use std::cmp::Reverse;

options! {
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct CurveOptions {
        /// The counter, its groups, the window, filters and devices, as for a peak; `top` is the number of groups that are
        /// not summed into one, those that hold the most over the curve.
        pub peak: PeakOptions,
        /// The most points of a device.
        pub points: usize,
    }
}

impl Default for CurveOptions {
    fn default() -> Self {
        Self { peak: PeakOptions::default(), points: super::COLUMNS }
    }
}

#[derive(Clone, Debug, Default)]
pub struct CurveReport {
    pub devices: Vec<DeviceCurve>,
    /// Devices without the requested window, each with the reason.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceCurve {
    /// The peak within the window, and its memory by group.
    pub peak: DevicePeak,
    /// Number of consecutive instants of which a point is the highest; 1 if every change is a point.
    pub instants_per_point: usize,
    pub points: Vec<Point>,
    /// Groups, those that hold the most at the peak first, with the bytes at each point. They add up to the counter.
    pub bands: Vec<Band>,
}

#[derive(Clone, Debug)]
pub struct Point {
    pub moment: Moment,
    /// The step that contains its entry, counted from 1; `None` outside of steps, or if they are unknown.
    pub step: Option<usize>,
    pub counters: Counters,
}

impl CurveReport {
    /// Samples every device.
    ///
    /// # Errors
    /// Like [`PeakReport::of`]; also if groups overlap, so that they do not add up.
    pub fn of(recording: &Devices<'_>, options: &CurveOptions) -> Result<Self> {
        require_parts(options.peak.by)?;
        let all_rows = PeakOptions { top: None, ..options.peak.clone() };
        let PeakReport { devices, skipped, .. } = PeakReport::of(recording, &all_rows)?;
        let known: Vec<_> = devices.into_iter().filter_map(|peak| Some((recording.get(peak.device)?, peak))).collect();
        let devices = parallel::map(known, |(device, peak)| DeviceCurve::of(device, peak, options));
        Ok(Self { devices, skipped })
    }
}

impl DeviceCurve {
    fn of(device: &Device<'_>, peak: DevicePeak, options: &CurveOptions) -> Self {
        let (track, metric) = (device.track, options.peak.metric);
        let (from, to) = peak.window.unwrap_or((0, track.entries()));
        let instants_per_point = ((to - from) as usize + 1).div_ceil(options.points.max(1));
        let highest = highest(track, metric, (from, to), instants_per_point);
        let instants: Vec<Instant> = highest.iter().map(|&(instant, _)| instant).collect();
        let grouper = Grouper::new(device, device.deep_sites(), &options.peak.filter, options.peak.by).inferring(
            device,
            options.peak.inference,
            metric,
        );
        let top = options.peak.top.unwrap_or(usize::MAX);
        let mut bands = bands::bands(&grouper, None, &instants, (metric, peak.instant), top);
        bands.sort_rows_by_key(|band| (band.label == OTHER, Reverse(band.bytes_there)));
        let steps = device.steps().ok().filter(|steps| steps.are_steps());
        let point = |(instant, counters)| {
            let moment = Moment::of(track, device.annotations(), instant);
            let step = moment.entry.and_then(|entry| steps?.containing(entry));
            Point { moment, step, counters }
        };
        Self { peak, instants_per_point, points: highest.into_iter().map(point).collect(), bands }
    }

    /// Whether a counter's values are known.
    pub(crate) fn knows(&self, metric: Metric) -> bool {
        self.peak.completeness.bound(metric) != Some(Bound::Unknown)
    }
}

impl Point {
    /// The open annotations, as `--by annotation` names them.
    pub(crate) fn annotation(&self) -> String {
        self.moment.annotations.join(" / ")
    }
}

/// The highest instant of each `length` consecutive ones, the first of equal ones, with its counters.
fn highest(
    track: Track<'_>,
    metric: Metric,
    (from, to): (Instant, Instant),
    length: usize,
) -> Vec<(Instant, Counters)> {
    let mut highest = vec![(from, track.counters_at(from))];
    track.walk_to(to, |instant, counters| {
        if instant <= from {
            return;
        }
        let part = (instant - from) as usize / length;
        match highest.get_mut(part) {
            Some(known) if known.1.get(metric) < counters.get(metric) => *known = (instant, *counters),
            Some(_) => {}
            None => highest.push((instant, *counters)),
        }
    });
    highest
}
