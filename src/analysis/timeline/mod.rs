//! Live memory over time, as many samples as a picture has columns.

use crate::analysis::device::{Device, Devices};
use crate::analysis::grouping::attribution::{OTHER, grouped_rows};
use crate::analysis::grouping::{Grouper, Holder, Key};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::analysis::time::annotations::Annotations;
use crate::error::{Error, Result};
use crate::model::Action;
use crate::replay::{Counters, Instant, Metric, Track};
use rayon::prelude::*;
use std::collections::HashMap;

/// Samples when nothing else is asked for: about as many as a wide picture has columns.
pub(crate) const COLUMNS: usize = 1000;

/// What the x axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum XAxis {
    /// Seconds since the first entry.
    ///
    /// Entries of the trace where the recording has no times (PyTorch 2.0).
    #[default]
    Time,
    /// Entries of the trace.
    Entry,
}

/// What to draw.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimelineOptions {
    /// The counter, its groups, the window, filters and devices, as for a peak; `top` is the number of groups with a
    /// band of their own. `at` has no meaning here.
    pub peak: PeakOptions,
    /// What the x axis counts.
    pub axis: XAxis,
    /// Samples per device.
    pub columns: usize,
    /// Whether to add a band of what is reserved and inactive: [`INACTIVE`].
    pub inactive: bool,
}

impl Default for TimelineOptions {
    fn default() -> Self {
        Self { peak: PeakOptions::default(), axis: XAxis::default(), columns: COLUMNS, inactive: false }
    }
}

setters!(TimelineOptions { peak: PeakOptions, axis: XAxis, columns: usize, inactive: bool });

/// All devices.
#[derive(Clone, Debug, Default)]
pub struct TimelineReport {
    /// The devices asked for, in order.
    pub devices: Vec<DeviceTimeline>,
    /// Devices that the window asked for does not exist on, each with the reason.
    pub skipped: Vec<String>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceTimeline {
    /// The peak within the window and what holds it; all rows.
    pub peak: DevicePeak,
    /// What the x axis counts.
    pub axis: XAxis,
    /// First and last x.
    pub range: (i64, i64),
    /// Samples, evenly spaced over the range.
    pub columns: Vec<Column>,
    /// The column with the peak.
    pub peak_column: usize,
    /// Bands, the largest at the peak first, then those that stand for what is not attributed or not shown.
    pub bands: Vec<Band>,
    /// Failed requests.
    pub ooms: Vec<OomMark>,
    /// Where each of the ranges of [`DeviceTimeline::peak`] has its peak, on the x axis, in their order.
    pub range_peaks: Vec<i64>,
    /// Annotations that overlap the window, in order of their starts.
    pub ribbons: Vec<Ribbon>,
}

/// Label of the band on top of all others for what is reserved and in no active block, `reserved - active`. It is no part
/// of the metric.
pub const INACTIVE: &str = "(inactive)";

/// A sample: the instant within a stretch of the x axis at which memory is highest, so that no peak is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The instant; that of the column before when nothing happens in this one.
    pub instant: Instant,
    /// Counters at that instant.
    pub counters: Counters,
    /// The highest `reserved` of the stretch, which may lie at another instant.
    pub max_reserved: i64,
}

/// Bytes of a group over time; of all groups without a band of their own, where the label is [`OTHER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// The group, as in the rows of [`DeviceTimeline::peak`].
    pub label: String,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// Bytes in each column. At the peak they equal the group's row.
    pub bytes: Vec<u64>,
    /// Blocks at the peak.
    pub peak_blocks: u64,
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomMark {
    /// Where it is on the x axis.
    pub x: i64,
    /// The entry, counted within the device's trace.
    pub entry: u32,
    /// Bytes asked for, rounded as the allocator does.
    pub requested: u64,
    /// Bytes the device had free; profiler traces do not tell.
    pub device_free: Option<u64>,
    /// Bytes the allocator had reserved.
    pub reserved: i64,
}

impl OomMark {
    /// What this process could reserve at most then: what it had, and what was free.
    pub fn capacity(&self) -> Option<u64> {
        Some(u64::try_from(self.reserved).unwrap_or(0).saturating_add(self.device_free?))
    }
}

/// A `record_function` range on the x axis, cut at the ends of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ribbon {
    /// Its name.
    pub label: String,
    /// Where it starts.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
    /// Number of ranges around it.
    pub depth: usize,
}

impl TimelineReport {
    /// Samples every device.
    ///
    /// # Errors
    /// As [`PeakReport::of`]; and when groups overlap, which cannot be stacked.
    pub fn of(recording: &Devices<'_>, options: &TimelineOptions) -> Result<Self> {
        let all_rows = PeakOptions { top: None, at: None, ..options.peak.clone() };
        Self::around(recording, PeakReport::of(recording, &all_rows)?, options)
    }

    /// As [`TimelineReport::of`], around peaks that are known.
    pub(crate) fn around(recording: &Devices<'_>, peaks: PeakReport, options: &TimelineOptions) -> Result<Self> {
        if options.peak.by.is_inclusive() {
            let by = options.peak.by.name();
            return Err(Error::Request(format!("groups by {by} overlap, so they cannot be stacked in a timeline")));
        }
        let first_time = recording.all().iter().filter_map(|device| device.track.times().first()).min();
        let find = |peak: DevicePeak| Some((recording.get(peak.device)?, peak));
        let wanted: Vec<(&Device<'_>, DevicePeak)> = peaks.devices.into_iter().filter_map(find).collect();
        let origin = first_time.copied().unwrap_or(0);
        let scales: Vec<Scale> =
            wanted.iter().map(|(device, peak)| Scale::of(device.track, peak, options, origin)).collect();
        // Panels share their time axis, so that what happens at once is drawn at once.
        let shared = scales.iter().map(|scale| scale.range).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let timeline = |((device, peak), mut scale): ((&Device<'_>, DevicePeak), Scale)| {
            if scale.axis == XAxis::Time && options.peak.from.is_none() && options.peak.to.is_none() {
                scale.range = shared.unwrap_or(scale.range);
            }
            DeviceTimeline::of(device, peak, options, &scale)
        };
        let devices = wanted.into_par_iter().zip(scales).map(timeline).collect();
        Ok(Self { devices, skipped: peaks.skipped })
    }
}

/// From instants to columns.
struct Scale {
    axis: XAxis,
    /// Time of x = 0.
    origin: i64,
    /// First and last x.
    range: (i64, i64),
    columns: usize,
    /// First and last instant.
    window: (Instant, Instant),
}

impl Scale {
    fn of(track: Track<'_>, peak: &DevicePeak, options: &TimelineOptions, first_time: i64) -> Self {
        let Track { snapshot, history } = track;
        let window = peak.window.unwrap_or((0, history.entries()));
        let axis = if snapshot.notes.has_times { options.axis } else { XAxis::Entry };
        let columns = options.columns.max(1);
        let mut scale = Self { axis, origin: first_time, range: (0, 0), columns, window };
        let x = |instant| scale.x(track.times(), instant);
        // The state before the first entry has no time of its own, so the axis starts at the first entry.
        let start = if window.0 == 0 && axis == XAxis::Time { x(1) } else { x(window.0) };
        scale.range = (start, x(window.1).max(start));
        scale
    }

    /// Where an instant is on the axis.
    fn x(&self, times: &[i64], instant: Instant) -> i64 {
        match self.axis {
            XAxis::Entry => i64::from(instant),
            XAxis::Time => {
                let entry = (instant as usize).saturating_sub(1).min(times.len().saturating_sub(1));
                times.get(entry).map_or(0, |time| time.saturating_sub(self.origin))
            }
        }
    }

    /// The column that an x falls into.
    fn column(&self, x: i64) -> usize {
        let (first, last) = self.range;
        let width = i128::from(last) - i128::from(first) + 1;
        let offset = (i128::from(x) - i128::from(first)).clamp(0, width - 1);
        (offset * self.columns as i128 / width) as usize
    }
}

impl DeviceTimeline {
    fn of(device: &Device<'_>, peak: DevicePeak, options: &TimelineOptions, scale: &Scale) -> Self {
        let (track, metric) = (device.track, options.peak.metric);
        let (columns, ooms) = sample(track, metric, scale);
        let peak_column = columns.iter().position(|column| column.instant >= peak.instant).unwrap_or(0);
        let grouper = Grouper::new(device, device.deep_sites(), &options.peak.filter, options.peak.by).inferring(
            device,
            options.peak.inference,
            metric,
            None,
        );
        let bands = bands(&grouper, &peak, options, &columns);
        let ribbons = ribbons(track, device.annotations(), scale);
        let times = track.times();
        let ranges = peak.ranges.iter().flat_map(|found| &found.ranges);
        let range_peaks = ranges.map(|range| scale.x(times, range.peak.instant)).collect();
        let (axis, range) = (scale.axis, scale.range);
        Self { peak, axis, range, columns, peak_column, bands, ooms, range_peaks, ribbons }
    }
}

/// Picks each column's highest instant, in one pass.
fn sample(track: Track<'_>, metric: Metric, scale: &Scale) -> (Vec<Column>, Vec<OomMark>) {
    let snapshot = track.snapshot;
    let times = track.times();
    let (from, to) = scale.window;
    let counters = track.counters_at(from);
    let mut now = Column { instant: from, counters, max_reserved: counters.reserved };
    let mut highest = now;
    let mut columns = Vec::with_capacity(scale.columns);
    let mut ooms = Vec::new();
    track.walk_to(to, |instant, counters| {
        if instant <= from {
            return;
        }
        let x = scale.x(times, instant);
        while columns.len() < scale.column(x) {
            columns.push(highest);
            highest = now;
        }
        now = Column { instant, counters: *counters, max_reserved: counters.reserved };
        let max_reserved = highest.max_reserved.max(now.max_reserved);
        if counters.get(metric) > highest.counters.get(metric) {
            highest = now;
        }
        highest.max_reserved = max_reserved;
        if track.action(instant - 1) == Some(Action::Oom)
            && let Some(entry) = track.entry(instant - 1)
        {
            ooms.push(OomMark {
                x,
                entry: instant - 1,
                requested: entry.size,
                device_free: snapshot.notes.format.has_segments().then_some(entry.addr),
                reserved: counters.reserved,
            });
        }
    });
    while columns.len() < scale.columns {
        columns.push(highest);
        highest = now;
    }
    (columns, ooms)
}

/// Adds up every group's bytes in every column: each block enters the sum where it is born and leaves where it goes.
fn bands(grouper: &Grouper<'_>, peak: &DevicePeak, options: &TimelineOptions, columns: &[Column]) -> Vec<Band> {
    let metric = options.peak.metric;
    let (_, rows) = grouped_rows(grouper, (metric, peak.instant));
    let top = options.peak.top.unwrap_or(usize::MAX);
    let at_peak: Vec<Key> = rows.iter().map(|(key, _)| key.clone()).collect();
    let (mut own, apart): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(key, _)| !key.stands_apart());
    let hidden = own.split_off(top.min(own.len()));
    let mut bands: Vec<Band> = Vec::new();
    let mut by_key: HashMap<Key, usize> = HashMap::new();
    let mut add = |key: Option<Key>, label, peak_blocks| {
        let inferred = key.as_ref().is_some_and(Key::is_inferred);
        by_key.extend(key.map(|key| (key, bands.len())));
        bands.push(Band { label, inferred, bytes: Vec::new(), peak_blocks });
    };
    // Where there are few groups, those that hold nothing at the peak have bands, too.
    let few = grouper.by.all_groups().into_iter().map(Key::Special).filter(|key| !at_peak.contains(key));
    let absent = few.take(top.saturating_sub(own.len()));
    for (key, row) in own {
        add(Some(key), row.label, row.blocks);
    }
    for key in absent {
        let label = grouper.label(&key, false);
        add(Some(key), label, 0);
    }
    add(None, OTHER.to_owned(), hidden.iter().map(|(_, row)| row.blocks).sum());
    // What cannot be attributed may appear at other times only, and has a band all the same. What was there before
    // comes last: it changes least, and makes the best ground.
    for key in Key::APART {
        let row = apart.iter().find(|(known, _)| *known == key);
        let label = grouper.label(&key, false);
        add(Some(key), label, row.map_or(0, |(_, row)| row.blocks));
    }
    let other = bands.iter().position(|band| band.label == OTHER).unwrap_or(0);

    let mut changes = vec![0u64; bands.len() * (columns.len() + 1)];
    let ColumnOf { first, table } = ColumnOf::new(columns);
    let column_of = |instant: Instant| match instant.checked_sub(first) {
        None => 0,
        Some(offset) => table.get(offset as usize).map_or(columns.len(), |&column| column as usize),
    };
    let mut known: HashMap<_, usize> = HashMap::new();
    let band_of = |holder: &Holder| {
        let keys = grouper.keys(holder);
        keys.first().and_then(|key| by_key.get(key)).copied().unwrap_or(other)
    };
    let seen = |born, gone| column_of(born) < column_of(gone);
    Holder::visit(grouper.track, metric, seen, |holder| {
        let band = match grouper.shared(holder) {
            Some(shared) => *known.entry(shared).or_insert_with(|| band_of(holder)),
            None => band_of(holder),
        };
        let start = band * (columns.len() + 1);
        let enters = &mut changes[start + column_of(holder.born)];
        *enters = enters.wrapping_add(holder.bytes);
        let leaves = &mut changes[start + column_of(holder.gone)];
        *leaves = leaves.wrapping_sub(holder.bytes);
    });
    for (band, changes) in bands.iter_mut().zip(changes.chunks_exact(columns.len() + 1)) {
        let running = changes[..columns.len()].iter().scan(0u64, |sum, &change| {
            *sum = sum.wrapping_add(change);
            Some(*sum)
        });
        band.bytes = running.collect();
    }
    if options.inactive {
        let inactive = |column: &Column| {
            let Counters { reserved, active, .. } = column.counters;
            u64::try_from(reserved.saturating_sub(active)).unwrap_or(0)
        };
        let bytes = columns.iter().map(inactive).collect();
        bands.insert(0, Band { label: INACTIVE.to_owned(), inferred: false, bytes, peak_blocks: 0 });
    }
    bands.retain(|band| band.bytes.iter().any(|&bytes| bytes > 0));
    bands
}

/// For each instant, the first column that shows it or a later one.
struct ColumnOf {
    /// The instant of the first row of the table.
    first: Instant,
    table: Vec<u32>,
}

impl ColumnOf {
    fn new(columns: &[Column]) -> Self {
        let first = columns.first().map_or(0, |column| column.instant);
        let mut table = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            let length = (column.instant - first) as usize + 1;
            if length > table.len() {
                table.resize(length, index as u32);
            }
        }
        Self { first, table }
    }
}

fn ribbons(track: Track<'_>, annotations: &Annotations, scale: &Scale) -> Vec<Ribbon> {
    let snapshot = track.snapshot;
    let times = track.times();
    if !snapshot.notes.has_times || times.is_empty() {
        return Vec::new();
    }
    let x = |time: i64| match scale.axis {
        XAxis::Time => time.saturating_sub(scale.origin),
        XAxis::Entry => times.partition_point(|&entry| entry < time) as i64,
    };
    let (first, last) = scale.range;
    let ranges = annotations.ranges.iter().map(|range| Ribbon {
        label: snapshot.strings.get(range.name).to_owned(),
        start: x(range.start_us).max(first),
        end: x(range.end_us).min(last),
        depth: range.depth,
    });
    ranges.filter(|ribbon| ribbon.start < ribbon.end).collect()
}
