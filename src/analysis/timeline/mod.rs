//! Live memory over time, as many samples as a picture has columns.
//!
//! A device is shown around the instant that matters: its first failed request, or its peak. If the program runs in
//! steps, the step around that instant is shown, with the whole run above it; if memory grows from step to step, or if
//! a part of the history is requested, all of it is shown.

mod axis;
mod bands;
mod column_of;
mod curve;
mod focus;
pub(in crate::analysis) mod idle;
mod parts;
mod sample;

pub use axis::{Axis, Period, Shows};
pub(crate) use column_of::ColumnOf;
pub use curve::{CurveOptions, CurveReport, DeviceCurve, Point};
pub(crate) use focus::peaks_or_failures;
pub use parts::{Band, Column, INACTIVE, LEAKS, OomMark, Ribbon, XAxis};

use crate::analysis::leaks::growth::Verdict;
use crate::analysis::leaks::{LeakOptions, LeakReport};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::{GroupBy, Grouper};
use crate::parallel;
use crate::replay::{Instant, Metric, Track};
use bands::Leaks;
use focus::StepSpan;
use sample::{Sampled, Scale};

/// Default number of samples: about the number of columns of a wide picture.
pub(crate) const COLUMNS: usize = 1000;

/// Growth over the steps is more important than a single step if it is at least this fraction (1/N) of all memory.
const GROWN_PART: u64 = 20;

options! {
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct TimelineOptions {
        /// The counter, its groups, the window, filters and devices, as for a peak; `top` is the number of groups with
        /// their own band, those that hold the most over the picture. `at` is an instant to show instead of the first
        /// failed request or the peak.
        pub peak: PeakOptions,
        pub axis: XAxis,
        pub columns: usize,
        /// Whether to add a band for reserved and inactive memory: [`INACTIVE`].
        pub inactive: bool,
    }
}

impl Default for TimelineOptions {
    fn default() -> Self {
        Self { peak: PeakOptions::default(), axis: XAxis::default(), columns: COLUMNS, inactive: false }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TimelineReport {
    pub devices: Vec<DeviceTimeline>,
    /// Devices without the requested window, each with the reason.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceTimeline {
    /// The selected instant, and its memory by group; all rows. It is the first failed request within the window, or
    /// otherwise the peak.
    pub peak: DevicePeak,
    /// Maps x to columns.
    pub axis: Axis,
    pub columns: Vec<Column>,
    pub column: usize,
    pub peak_column: Option<usize>,
    /// Bands from the top of the stack down. Bands of sites are ordered by category.
    pub bands: Vec<Band>,
    pub ooms: Vec<OomMark>,
    /// The position of the peak of each of the ranges of [`DeviceTimeline::peak`] on the x axis, in their order.
    pub range_peaks: Vec<i64>,
    /// Annotations that overlap the shown range, in order of their starts.
    pub ribbons: Vec<Ribbon>,
    /// The whole run, if the columns show one step of it.
    pub run: Option<Run>,
}

#[derive(Clone, Debug)]
pub struct Run {
    /// Maps x to columns; the same for all devices.
    pub axis: Axis,
    pub columns: Vec<Column>,
    /// First x and last x of the enlarged part.
    pub shown: (i64, i64),
    /// The step that is shown large, counted from 1; `None` for what follows the last step.
    pub step: Option<usize>,
    /// What that step is called, or the last one.
    pub name: String,
    pub steps: Vec<i64>,
    pub ooms: Vec<OomMark>,
    pub peak: i64,
}

impl DeviceTimeline {
    /// Whether the curve is that of allocated memory, and more is active: blocks whose free is pending.
    pub fn has_pending_frees(&self) -> bool {
        let is_more = |column: &Column| column.max_active > column.counters.allocated;
        self.peak.metric == Metric::Allocated && self.columns.iter().any(is_more)
    }
}

impl TimelineReport {
    /// Samples every device.
    ///
    /// # Errors
    /// Like [`PeakReport::of`]; also if groups overlap, which cannot be stacked.
    pub fn of(recording: &Devices<'_>, options: &TimelineOptions) -> Result<Self> {
        let all_rows = PeakOptions { top: None, ..options.peak.clone() };
        let wanted = recording.wanted(&options.peak.devices)?;
        // Bands take longer to compute than everything else.
        let categories = || {
            if options.has_categories() {
                parallel::map(&wanted, |device| _ = device.categories());
            }
        };
        let (leaks, ()) = parallel::join(|| LeakReport::of(recording, &options.leaks()), categories);
        Self::around(recording, peaks_or_failures(recording, &all_rows)?, &leaks?, options)
    }

    /// Like [`TimelineReport::of`], around instants that are known, and with leaks that are.
    pub(crate) fn around(
        recording: &Devices<'_>,
        peaks: PeakReport,
        leaks: &LeakReport,
        options: &TimelineOptions,
    ) -> Result<Self> {
        require_parts(options.peak.by)?;
        let first_time = recording.all().iter().filter_map(|device| device.track.times().first()).min();
        let origin = first_time.copied().unwrap_or(0);
        let of_device = |peak: DevicePeak| Some(Asked::of(recording.get(peak.device)?, peak, leaks, origin, options));
        let asked: Vec<Asked<'_, '_>> = peaks.devices.into_iter().filter_map(of_device).collect();
        let whole = Scale::together(&asked.iter().map(|asked| &asked.whole).collect::<Vec<_>>());
        let steps: Vec<&Scale> =
            asked.iter().filter_map(|asked| asked.focus.as_ref()).map(|focus| &focus.scale).collect();
        // Panels share their time axis, so that simultaneous events are at the same position.
        let step =
            Scale::together(&steps).filter(|_| steps.len() > 1 && steps.len() == asked.len() && Scale::overlap(&steps));
        let devices = parallel::map(asked, |asked| asked.timeline(whole.as_ref(), step.as_ref(), options));
        Ok(Self { devices, skipped: peaks.skipped })
    }
}

impl TimelineOptions {
    fn has_categories(&self) -> bool {
        self.peak.by == GroupBy::Site && self.peak.metric != Metric::Reserved
    }

    fn leaks(&self) -> LeakOptions {
        let PeakOptions { inference, devices, .. } = self.peak.clone();
        LeakOptions { inference, devices, ..LeakOptions::default() }.rows_alone(true)
    }
}

/// Refuses groups that overlap.
fn require_parts(by: GroupBy) -> Result<()> {
    if by.is_inclusive() {
        let by = by.name();
        return Err(Error::Request(format!("groups by {by} overlap, so they cannot be stacked in a timeline")));
    }
    Ok(())
}

struct Asked<'d, 'a> {
    device: &'d Device<'a>,
    peak: DevicePeak,
    /// First and last requested instant.
    window: (Instant, Instant),
    whole: Scale,
    /// The step to show large.
    focus: Option<Focus>,
    leaks: Leaks,
}

struct Focus {
    window: (Instant, Instant),
    /// Counted from 1; `None` after the last step.
    step: Option<usize>,
    span: StepSpan,
    scale: Scale,
}

impl<'d, 'a> Asked<'d, 'a> {
    fn of(
        device: &'d Device<'a>,
        peak: DevicePeak,
        leaks: &LeakReport,
        origin: i64,
        options: &TimelineOptions,
    ) -> Self {
        let window = peak.window.unwrap_or((0, device.history().entries()));
        let span = StepSpan::of(device);
        let whole = Scale::of(device.track, options.axis, origin, window, span.as_ref());
        let rows = leaks.devices.iter().find(|leaks| leaks.device == device.id()).map(|leaks| leaks.rows.iter());
        let (mut leaking, mut grows) = (Leaks::default(), false);
        let held = u64::try_from(peak.at.allocated).unwrap_or(0);
        for row in rows.into_iter().flatten() {
            let is_much = row.live_bytes >= held / GROWN_PART;
            grows |= is_much && matches!(row.verdict, Verdict::Leak | Verdict::Growth);
            if row.verdict == Verdict::Leak {
                leaking.add(row);
            }
        }
        // Growth is visible only over many steps, and the peaks of ranges are meant to be compared.
        let is_whole_asked = peak.window.is_some() || peak.ranges.is_some() || grows;
        let focus = span.filter(|_| !is_whole_asked).and_then(|span| {
            let (step, window) = span.around(peak.instant)?;
            let scale = Scale::of(device.track, options.axis, origin, window, None);
            Some(Focus { window, step, span, scale })
        });
        Self { device, peak, window, whole, focus, leaks: leaking }
    }

    fn timeline(self, whole: Option<&Scale>, step: Option<&Scale>, options: &TimelineOptions) -> DeviceTimeline {
        let Self { device, peak, window, whole: own, focus, leaks } = self;
        let (track, metric) = (device.track, options.peak.metric);
        let whole = whole.filter(|_| peak.window.is_none()).unwrap_or(&own);
        let shown = match &focus {
            Some(focus) => step.unwrap_or(&focus.scale),
            None => whole,
        };
        let axis = shown.axis(options.columns.max(1));
        let window = match (&focus, step) {
            // If devices share the axis, it is longer than the step of this one.
            (Some(_), Some(step)) => instants(track, step, window),
            (Some(focus), None) => focus.window,
            (None, _) => window,
        };
        let Sampled { columns, ooms } = Sampled::of(track, metric, shown, &axis, window);
        let column = columns.iter().position(|column| column.instant >= peak.instant).unwrap_or(columns.len() - 1);
        let highest = peak.maxima[metric as usize].instant;
        let is_shown = window.0 <= highest && highest <= window.1;
        let peak_column = columns.iter().position(|column| column.instant >= highest).filter(|_| is_shown);
        let grouper = Grouper::new(device, device.deep_sites(), &options.peak.filter, options.peak.by).inferring(
            device,
            options.peak.inference,
            metric,
        );
        let top = options.peak.top.unwrap_or(usize::MAX);
        let instants: Vec<Instant> = columns.iter().map(|column| column.instant).collect();
        let bands = || {
            let categories = options.has_categories().then(|| device.categories());
            bands::bands(&grouper, categories.map(|all| (all, &leaks)), &instants, (metric, peak.instant), top)
        };
        let run = || focus.as_ref().map(|focus| run(device, &peak, focus, (whole, &own), &axis, options.columns));
        let (mut bands, run) = parallel::join(bands, run);
        if options.inactive {
            bands.insert(0, bands::inactive(&columns, &peak.at));
        }
        let ribbons = sample::ribbons(track, device.annotations(), shown, &axis);
        let times = track.times();
        let ranges = peak.ranges.iter().flat_map(|found| &found.ranges);
        let range_peaks = ranges.map(|range| shown.x(times, range.peak.instant)).collect();
        DeviceTimeline { peak, axis, columns, column, peak_column, bands, ooms, range_peaks, ribbons, run }
    }
}

fn run(
    device: &Device<'_>,
    peak: &DevicePeak,
    focus: &Focus,
    (whole, own): (&Scale, &Scale),
    shown: &Axis,
    columns: usize,
) -> Run {
    let track = device.track;
    let axis = whole.axis(columns.max(1));
    let window = (0, track.entries());
    let Sampled { columns, ooms } = Sampled::of(track, peak.metric, whole, &axis, window);
    let x = |instant| own.x(track.times(), instant);
    Run {
        columns,
        ooms,
        shown: shown.range(),
        step: focus.step,
        name: device.steps().map(|steps| steps.name(focus.step.unwrap_or(steps.len()))).unwrap_or_default(),
        steps: focus.span.ends.iter().take(focus.span.known).map(|&end| x(end)).collect(),
        peak: x(peak.maxima[peak.metric as usize].instant),
        axis,
    }
}

/// First and last instant of the part of a window that is on an axis.
fn instants(track: Track<'_>, scale: &Scale, (from, to): (Instant, Instant)) -> (Instant, Instant) {
    let times = track.times();
    let (first, last) = scale.range;
    let mut all = (from..=to).filter(|&instant| (first..=last).contains(&scale.x(times, instant)));
    let start = all.next().unwrap_or(from);
    (start, all.next_back().unwrap_or(start))
}
