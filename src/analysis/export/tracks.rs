//! Counters over time, with annotations, steps, phases and failed requests.

use crate::error::{Error, Result};
use crate::facts::code::sites::clipped;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::time::annotations::AnnotationRange;
use crate::facts::time::when::{Purpose, When};
use crate::facts::training::Phase;
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, DeviceId, StrId, device_words};
use crate::replay::{Anomalies, Bound, Completeness, Counters, Instant, Metric, Track};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct TracksOptions {
        pub from: Option<When>,
        pub to: Option<When>,
        /// Number of blocks of each device to follow, the largest ones.
        pub blocks: usize,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
    }
}

#[derive(Clone, Debug, Default)]
pub struct TracksReport {
    pub devices: Vec<DeviceTracks>,
    /// The `record_function` ranges that overlap the windows of the devices, in order of their starts, enclosing ones
    /// first.
    pub annotations: Vec<Slice>,
    /// Whether times are microseconds since the epoch; otherwise the file has none, and they are entry numbers.
    pub has_times: bool,
    /// Devices and ranges that are left out, each with the reason.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceTracks {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: DeviceId,
    /// The counters that the recording shows, of [`COUNTERS`].
    pub metrics: Vec<Metric>,
    /// Counters at the start of the window, and wherever one of them changes in it.
    pub points: Vec<Point>,
    /// How many of them were recorded with an earlier time than the previous one, and are shown at the time of that
    /// one: the clocks of several cores differ slightly.
    pub moved: usize,
    /// The steps in the window, by their numbers.
    pub steps: Vec<Slice>,
    pub phases: Vec<Slice>,
    /// The largest blocks that are allocated in the window, in the order of their starts.
    pub blocks: Vec<BlockSlice>,
    pub failures: Vec<FailedRequest>,
    pub baseline: Counters,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

pub const COUNTERS: [Metric; 3] = [Metric::Allocated, Metric::Requested, Metric::Reserved];

/// The last time that fits in nanoseconds.
const LAST_TIME: i64 = i64::MAX / 1000;

/// Whether a time is plausible for a clock.
fn is_time(time_us: i64) -> bool {
    (0..=LAST_TIME).contains(&time_us)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub time_us: i64,
    pub counters: Counters,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its name. Shared, because names repeat and may be long.
    pub name: Arc<str>,
    /// When it starts; `None` before the recording.
    pub start_us: Option<i64>,
    /// When it ends; `None` after the recording.
    pub end_us: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSlice {
    pub slice: Slice,
    /// Its place among all blocks of the device.
    pub id: usize,
    pub bytes: u64,
    pub category: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    pub time_us: i64,
    /// Requested bytes, rounded as the allocator does.
    pub bytes: u64,
    pub device_free_bytes: u64,
}

impl TracksReport {
    /// Follows every device's counters.
    ///
    /// # Errors
    /// If a device does not exist, the window exists on none, or none has entries.
    pub fn of(recording: &Devices<'_>, options: &TracksOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let (devices, mut skipped) = ask_each(&wanted, |device| DeviceTracks::of(device, options))?;
        let snapshot = recording.snapshot();
        let times = || devices.iter().flat_map(DeviceTracks::span);
        let mut annotations = Vec::new();
        if let Some((first, last)) = times().min().zip(times().max()).filter(|_| snapshot.notes.has_times) {
            let within = |range: &&AnnotationRange| range.start_us <= last && range.end_us >= first;
            let within: Vec<&AnnotationRange> = recording.annotations().ranges.iter().filter(within).collect();
            let mut names: HashMap<StrId, Arc<str>, RandomState> = HashMap::default();
            let mut name = |id| names.entry(id).or_insert_with(|| clipped(snapshot.strings.get(id)).into()).clone();
            let all: Vec<Slice> = within.into_iter().map(|range| Slice::annotation(range, &mut name)).collect();
            let number = all.len();
            annotations = all.into_iter().filter(Slice::is_possible).collect();
            if annotations.len() < number {
                skipped.push(match number - annotations.len() {
                    1 => "1 annotation has impossible times".to_owned(),
                    several => format!("{several} annotations have impossible times"),
                });
            }
        }
        Ok(Self { devices, annotations, has_times: snapshot.notes.has_times, skipped })
    }
}

impl DeviceTracks {
    fn of(device: &Device<'_>, options: &TracksOptions) -> Result<Self> {
        let (track, history) = (device.track, device.history());
        let resolve = |when: &Option<When>, purpose, default| match when {
            Some(when) => device.instant(when, Metric::Allocated, purpose),
            None => Ok(default),
        };
        if history.entries() == 0 {
            let message = format!("{}: expected a history, found the state at one instant", device_words(device.id()));
            return Err(Error::Request(message));
        }
        let from = resolve(&options.from, Purpose::From, 0)?;
        let to = resolve(&options.to, Purpose::To, history.entries())?;
        if from > to {
            return Err(Error::Request(format!("expected --from before --to on {}", device_words(device.id()))));
        }
        let times = track.times().get(from as usize..to as usize).unwrap_or(&[]);
        if let Some(time) = times.iter().find(|&&time| !is_time(time)) {
            return Err(Error::Request(format!(
                "{}: expected times since 1970, found {time} us",
                device_words(device.id())
            )));
        }
        let completeness = history.completeness;
        let (points, moved) = points(track, &metrics_of(&completeness), from, to);
        Ok(Self {
            device: device.id(),
            metrics: metrics_of(&completeness),
            points,
            moved,
            steps: steps(device, from, to),
            phases: phases(device, from, to),
            blocks: blocks(device, (from, to), options.blocks),
            failures: failures(track, from, to),
            baseline: history.start,
            completeness,
            anomalies: history.anomalies.clone(),
        })
    }

    /// The first and last time at which it is followed.
    fn span(&self) -> impl Iterator<Item = i64> {
        let ends = [self.points.first(), self.points.last()];
        ends.into_iter().flatten().map(|point| point.time_us)
    }
}

impl Slice {
    fn annotation(range: &AnnotationRange, name: impl FnOnce(StrId) -> Arc<str>) -> Self {
        Self {
            name: name(range.name),
            start_us: (range.start_us != i64::MIN).then_some(range.start_us),
            end_us: (range.end_us != i64::MAX).then_some(range.end_us),
        }
    }

    /// Whether it lasts from one time to a later one.
    fn is_possible(&self) -> bool {
        let (start, end) = (self.start_us.unwrap_or(0), self.end_us.unwrap_or(LAST_TIME));
        is_time(start) && is_time(end) && start <= end
    }

    /// The entries from one instant to another; empty if there are none.
    fn of_entries(track: Track<'_>, name: Arc<str>, from: Instant, to: Instant) -> Option<Self> {
        let times = track.times().get(from as usize..to as usize)?;
        let (&first, &last) = times.first().zip(times.last())?;
        // Times in a damaged file can go backwards.
        (first <= last).then_some(Self { name, start_us: Some(first), end_us: Some(last) })
    }
}

/// The time of the entry that leads to an instant; for instant 0, the time of the first entry.
fn time(track: Track<'_>, instant: Instant) -> i64 {
    track.times().get(instant.saturating_sub(1) as usize).copied().unwrap_or(0)
}

/// The counters of [`COUNTERS`] that are known.
fn metrics_of(completeness: &Completeness) -> Vec<Metric> {
    COUNTERS.into_iter().filter(|&metric| completeness.bound(metric) != Some(Bound::Unknown)).collect()
}

/// Counters wherever one of the metrics changes, in order of entries and of times, and how many times were moved for that.
fn points(track: Track<'_>, metrics: &[Metric], from: Instant, to: Instant) -> (Vec<Point>, usize) {
    let first = Point { time_us: time(track, from), counters: track.counters_at(from) };
    let (mut points, mut last, mut moved) = (vec![first], first, 0);
    track.walk_to(to, |instant, counters| {
        let has_changed = metrics.iter().any(|&metric| counters.get(metric) != last.counters.get(metric));
        // Values last until the end of the window.
        if instant > from && (has_changed || instant == to) {
            let time = time(track, instant);
            moved += usize::from(time < last.time_us);
            last = Point { time_us: time.max(last.time_us), counters: *counters };
            points.push(last);
        }
    });
    (points, moved)
}

fn steps(device: &Device<'_>, from: Instant, to: Instant) -> Vec<Slice> {
    let Some(steps) = device.steps().ok().filter(|steps| steps.are_steps()) else { return Vec::new() };
    let starts = [0].into_iter().chain(steps.ends.iter().copied());
    let slice = |(index, (start, &end)): (usize, (Instant, &Instant))| {
        Slice::of_entries(device.track, format!("step {}", index + 1).into(), start.max(from), end.min(to))
    };
    starts.zip(&steps.ends).enumerate().filter_map(slice).collect()
}

fn phases(device: &Device<'_>, from: Instant, to: Instant) -> Vec<Slice> {
    let spans = device.phases().spans.iter().filter(|span| span.phase != Phase::Other);
    let slice = |phase: Phase, start: u32, end: u32| {
        Slice::of_entries(device.track, phase.name().into(), start.max(from), end.min(to))
    };
    spans.filter_map(|span| slice(span.phase, span.start, span.end)).collect()
}

/// The largest blocks that are allocated in a window.
fn blocks(device: &Device<'_>, (from, to): (Instant, Instant), most: usize) -> Vec<BlockSlice> {
    if most == 0 {
        return Vec::new();
    }
    let (track, sites) = (device.track, device.sites());
    let all = &track.history.allocations;
    let mut wanted: Vec<usize> =
        (0..all.len()).filter(|&index| all[index].born <= to && all[index].freed > from).collect();
    wanted.sort_by_key(|&index| std::cmp::Reverse(all[index].size));
    wanted.truncate(most);
    wanted.sort_by_key(|&index| (all[index].born, index));
    let mut names: HashMap<_, Arc<str>, RandomState> = HashMap::default();
    let block = |index: usize| {
        let (block, stack) = (&all[index], track.stack_of(index));
        let name = names.entry(stack).or_insert_with(|| clipped(&sites.site(stack)).into()).clone();
        let slice = Slice {
            name,
            start_us: (block.born > from).then(|| time(track, block.born)),
            end_us: (block.freed <= to).then(|| time(track, block.freed)),
        };
        let category = device.categories().get(index).category.name();
        BlockSlice { slice, id: index, bytes: block.size, category }
    };
    let blocks = wanted.into_iter().map(block);
    // Times in a damaged file can go backwards.
    blocks.filter(|block| block.slice.is_possible()).collect()
}

fn failures(track: Track<'_>, from: Instant, to: Instant) -> Vec<FailedRequest> {
    let entries = (from..to).filter(|&entry| track.action(entry) == Some(Action::Oom));
    let failure =
        |entry: TraceEntry| FailedRequest { time_us: entry.time_us, bytes: entry.size, device_free_bytes: entry.addr };
    entries.filter_map(|entry| track.entry(entry)).map(failure).collect()
}
