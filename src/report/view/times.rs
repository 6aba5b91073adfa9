//! Items along the time axis: `record_function` ranges, steps, phases, samples of the device.

use super::json;
use crate::facts::code::sites::clipped;
use crate::facts::device::{Device, Devices};
use crate::facts::training::phases::PhaseSpan;
use crate::facts::training::steps::NoSteps;
use crate::model::DeviceId;
use crate::model::device_file::DeviceSample;
use crate::replay::Instant;
use crate::report::common::palette::{Color, Rgb, hues};
use crate::report::common::training;
use serde::Serialize;

#[derive(Serialize)]
struct Annotation<'a> {
    name: &'a str,
    from_us: i64,
    to_us: i64,
    from: Instant,
    to: Instant,
    depth: usize,
}

#[derive(Serialize)]
struct Steps {
    why: Option<&'static str>,
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    /// What commands call it.
    name: String,
    from: Instant,
    to: Instant,
}

/// The ranges that overlap the entries of a device, in order of their starts, cut at the ends.
pub fn annotations(device: &Device<'_>) -> String {
    let (track, snapshot) = (device.track, device.snapshot());
    let times = track.times();
    let (Some(&first), Some(&last), true) = (times.iter().min(), times.iter().max(), track.has_times()) else {
        return "[]".to_owned();
    };
    let origin = snapshot.first_time().unwrap_or(0);
    let instant = |time| times.partition_point(|&entry| entry < time) as Instant;
    let ranges = device.annotations().ranges.iter().filter(|range| range.start_us <= last && range.end_us >= first);
    let shown: Vec<Annotation<'_>> = ranges
        .map(|range| Annotation {
            name: clipped(snapshot.strings.get(range.name)),
            from_us: range.start_us.max(first).saturating_sub(origin),
            to_us: range.end_us.min(last).saturating_sub(origin),
            from: instant(range.start_us),
            to: instant(range.end_us),
            depth: range.depth,
        })
        .collect();
    json(&shown)
}

fn words(why: NoSteps) -> &'static str {
    match why {
        NoSteps::NoHistory => "no history was recorded",
        NoSteps::Unknown => training::NO_STEPS,
    }
}

/// The steps of the program on a device, or why there are none.
pub fn steps(device: &Device<'_>) -> String {
    let answer = match device.steps() {
        Ok(steps) => {
            let starts = [0].into_iter().chain(steps.ends.iter().copied());
            let step = |(number, (from, &to))| Step { name: steps.name(number), from, to };
            Steps { why: None, steps: (1..).zip(starts.zip(&steps.ends)).map(step).collect() }
        }
        Err(why) => Steps { why: Some(words(why)), steps: Vec::new() },
    };
    json(&answer)
}

#[derive(Serialize)]
struct Span {
    phase: &'static str,
    from: Instant,
    to: Instant,
    recorded: bool,
    light: Rgb,
    dark: Rgb,
}

/// The phases of the program on a device, without gaps.
pub fn phases(device: &Device<'_>) -> String {
    let span = |&PhaseSpan { phase, start, end, recorded }: &PhaseSpan| {
        let Color { light, dark } = hues::of_phase(phase).base;
        Span { phase: phase.name(), from: start, to: end, recorded, light, dark }
    };
    json(&device.phases().spans.iter().map(span).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Sample {
    occasion: &'static str,
    /// The last instant before the sample; `None` if its time is unknown.
    instant: Option<Instant>,
    time_us: Option<i64>,
    used_bytes: u64,
    total_bytes: u64,
    reserved_bytes: u64,
}

/// The samples of a whole device, in their order; empty if none were taken.
pub fn samples(devices: &Devices<'_>, id: DeviceId) -> String {
    let known = devices.device_file().and_then(|file| file.devices.iter().find(|samples| samples.device == id));
    let (Some(known), Some(device)) = (known, devices.get(id)) else { return "[]".to_owned() };
    let origin = device.snapshot().first_time().unwrap_or(0);
    let times = if device.track.has_times() { device.track.times() } else { &[] };
    let instant = |time: i64| (!times.is_empty()).then(|| times.partition_point(|&entry| entry <= time) as Instant);
    let sample = |sample: &DeviceSample| Sample {
        occasion: sample.at.name(),
        instant: sample.time_us.and_then(instant),
        time_us: sample.time_us.map(|time| time.saturating_sub(origin)),
        used_bytes: sample.used_bytes(),
        total_bytes: sample.total_bytes,
        reserved_bytes: sample.reserved_bytes,
    };
    json(&known.samples.iter().map(sample).collect::<Vec<_>>())
}
