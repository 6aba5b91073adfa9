//! Both recordings' memory over time on one axis.

use super::parting::Parting;
use super::{DeviceDiff, DiffInputDevice, DiffReport};
use crate::error::{Error, Result};
use crate::facts::device::Devices;
use crate::replay::{Instant, Metric, Track};

/// How two timelines are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Align {
    /// By time since the first entry.
    ///
    /// If a recording has no times (PyTorch 2.0), by the number of entries since the first.
    #[default]
    Time,
    /// By number of entries since the first.
    Entry,
    /// By step.
    ///
    /// The position within a step is in thousandths of the step.
    Step,
}

#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub devices: Vec<DeviceOverlay>,
}

#[derive(Clone, Debug)]
pub struct DeviceOverlay {
    pub align: Align,
    /// The last x; the first is 0.
    pub last: i64,
    pub columns: usize,
    pub base: Curve,
    pub new: Curve,
    /// Where the two recordings diverge, with its column, if they do.
    pub parting: Option<(usize, Parting)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// The highest value of the metric in each column, from the first to the one that the recording ends in.
    pub highest: Vec<i64>,
    pub mark: usize,
}

impl Overlay {
    /// Samples both sides of every device. If nothing is requested, devices whose steps are known in both recordings
    /// are aligned by step, so that startup is as wide as a step; all others by time, unless one recording takes so
    /// much longer than the other that the other would have no room: these by entry.
    ///
    /// # Errors
    /// Under [`Align::Step`], when a recording has no steps.
    pub fn of(
        base: &Devices<'_>,
        new: &Devices<'_>,
        report: &DiffReport,
        align: Option<Align>,
        columns: usize,
    ) -> Result<Self> {
        let has_times = base.snapshot().notes.has_times && new.snapshot().notes.has_times;
        let columns = columns.max(1);
        let device = |device: &DeviceDiff| {
            let has_steps = |recording: &Devices<'_>, side: &DiffInputDevice| {
                recording
                    .get(side.device())
                    .and_then(|device| device.steps().ok())
                    .is_some_and(|it| !it.ends.is_empty())
            };
            let by_step = || has_steps(base, &device.base) && has_steps(new, &device.new);
            let both = base.get(device.base.device()).zip(new.get(device.new.device()));
            let last_times = || both.map(|(base, new)| [last_time(base.track), last_time(new.track)]);
            let are_alike = || last_times().is_none_or(|[a, b]| a.max(b) / LONGER <= a.min(b));
            let align = align.unwrap_or_else(|| {
                if by_step() {
                    Align::Step
                } else if are_alike() {
                    Align::Time
                } else {
                    Align::Entry
                }
            });
            let align = if align == Align::Time && !has_times { Align::Entry } else { align };
            let base = Sampled::of(base, &device.base, align, "base")?;
            let new = Sampled::of(new, &device.new, align, "new recording")?;
            let last = base.last().max(new.last());
            let metric = device.metric();
            let scale = Columns { last, columns };
            let part = both.filter(|_| device.lives.is_none()).and_then(|(base, new)| Parting::of(base, new));
            let column = |parting: &Parting| match (&parting.new, &parting.base) {
                (Some(asked), _) => Some(scale.of(new.x(asked.instant))),
                (None, asked) => asked.as_ref().map(|asked| scale.of(base.x(asked.instant))),
            };
            let parting = part.and_then(|parting| Some((column(&parting)?, parting)));
            let (base, new) = (base.curve(&scale, metric), new.curve(&scale, metric));
            Ok(DeviceOverlay { align, last, columns, base, new, parting })
        };
        Ok(Self { devices: report.devices.iter().map(device).collect::<Result<_>>()? })
    }
}

/// If one recording is this many times as long as the other, they share no time axis: the other would be a line.
const LONGER: i64 = 10;

/// Microseconds from the first entry of a recording to the last one of a device.
fn last_time(track: Track<'_>) -> i64 {
    let last = track.times().last().copied();
    last.zip(track.snapshot.first_time()).map_or(0, |(last, first)| last.saturating_sub(first))
}

pub(in crate::analysis) struct Columns {
    /// The last x; the first is 0.
    pub last: i64,
    pub columns: usize,
}

impl Columns {
    fn of(&self, x: i64) -> usize {
        let width = i128::from(self.last) + 1;
        (i128::from(x).clamp(0, width - 1) * self.columns as i128 / width) as usize
    }
}

/// Picks each column's highest value from values in order of time.
pub(in crate::analysis) struct Sampler<'s> {
    scale: &'s Columns,
    highest: Vec<i64>,
    now: i64,
}

impl<'s> Sampler<'s> {
    pub fn new(scale: &'s Columns, start: i64) -> Self {
        Self { scale, highest: vec![start], now: start }
    }

    /// A value that lasts until the next one.
    pub fn add(&mut self, x: i64, value: i64) {
        self.raise(x, value);
        self.now = value;
    }

    /// A value that lasts only for a moment.
    pub fn raise(&mut self, x: i64, value: i64) {
        let column = self.scale.of(x);
        // The value at the end of a column continues in the next. Times in a damaged file can go backwards.
        if column >= self.highest.len() {
            self.highest.resize(column + 1, self.now);
        }
        if let Some(top) = self.highest.last_mut() {
            *top = value.max(*top);
        }
    }

    pub fn finish(self, mark: i64) -> Curve {
        let mark = self.scale.of(mark).min(self.highest.len() - 1);
        Curve { highest: self.highest, mark }
    }
}

struct Sampled<'a> {
    track: Track<'a>,
    instant: Instant,
    axis: Axis<'a>,
}

enum Axis<'a> {
    Time(&'a [i64], Option<i64>),
    Entry,
    Step(Vec<Instant>),
}

const STEP: i64 = 1000;

impl<'a> Sampled<'a> {
    fn of(recording: &Devices<'a>, side: &DiffInputDevice, align: Align, name: &str) -> Result<Self> {
        let id = side.device();
        let none = |what: &str| Error::Request(format!("expected {what} of device {id} in the {name}, found none"));
        let device = recording.get(id).ok_or_else(|| none("a history"))?;
        let axis = match align {
            Align::Time => Axis::Time(device.track.times(), device.track.snapshot.first_time()),
            Align::Entry => Axis::Entry,
            Align::Step => {
                let ends = device.steps().map(|steps| steps.ends.clone()).ok().filter(|ends| !ends.is_empty());
                Axis::Step(ends.ok_or_else(|| none("steps"))?)
            }
        };
        Ok(Self { track: device.track, instant: side.peak.instant, axis })
    }

    fn x(&self, instant: Instant) -> i64 {
        match &self.axis {
            Axis::Entry => i64::from(instant),
            // The state before the first entry has no time of its own.
            Axis::Time(times, first) => {
                let time = times.get((instant as usize).saturating_sub(1)).or(times.last());
                time.zip(*first).map_or(0, |(time, first)| time.saturating_sub(first))
            }
            Axis::Step(ends) => {
                let step = ends.partition_point(|&end| end <= instant);
                let start = step.checked_sub(1).map_or(0, |before| ends[before]);
                // The part after the last step extends to the end of the recording.
                let end = ends.get(step).copied().unwrap_or(self.track.history.entries() + 1).max(start + 1);
                step as i64 * STEP + i64::from(instant - start) * STEP / i64::from(end - start)
            }
        }
    }

    fn last(&self) -> i64 {
        self.x(self.track.history.entries()).max(0)
    }

    /// Picks each column's highest value, in one pass.
    fn curve(&self, scale: &Columns, metric: Metric) -> Curve {
        let mut sampler = Sampler::new(scale, self.track.history.start.get(metric));
        self.track.walk(|instant, counters| sampler.add(self.x(instant), counters.get(metric)));
        sampler.finish(self.x(self.instant))
    }
}
