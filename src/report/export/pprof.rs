//! A profile in the format of pprof: `go tool pprof`, Pyroscope, Polar Signals and others read it.
//!
//! Values are those of Go's heap profiles: `alloc_objects` and `alloc_space` for memory allocated in the window,
//! `inuse_objects` and `inuse_space` for memory held at the instant. A recording of one instant only has the latter.

use super::message::Message;
use crate::analysis::export::{DeviceSamples, Label, Sample, SamplesReport};
use crate::facts::code::sites::Place;
use crate::facts::training::steps::StepSource;
use crate::report::Source;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::source::file_names;
use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::io::{self, Write};

/// Fields of the profile.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING: u32 = 6;
    pub const TIME: u32 = 9;
    pub const DURATION: u32 = 10;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_TYPE: u32 = 14;
}

/// The units of samples: allocated memory, then held memory.
const ALLOCATED: [(&str, &str); 2] = [("alloc_objects", "count"), ("alloc_space", "bytes")];
const HELD: [(&str, &str); 2] = [("inuse_objects", "count"), ("inuse_space", "bytes")];

/// Writes a profile of all devices, compressed with gzip.
pub fn write(source: Source<'_>, report: &SamplesReport, out: &mut dyn Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::fast());
    let has_history = report.devices.iter().any(DeviceSamples::has_history);
    let mut strings = Strings::default();
    let mut message = Message::default();
    let types = ALLOCATED.into_iter().filter(|_| has_history).chain(HELD);
    for (name, unit) in types {
        let (name, unit) = (strings.of(name), strings.of(unit));
        message.message(field::SAMPLE_TYPE, |value| {
            value.number(1, name).number(2, unit);
        });
    }
    // Functions have names already, so pprof need not search the file.
    let file = strings.of(file_names(&[source.path]).first().copied().unwrap_or_default());
    message.message(field::MAPPING, |mapping| {
        mapping.number(1, 1).number(5, file).number(7, 1).number(8, 1).number(9, 1);
    });
    message.write(&mut out)?;

    let mut locations = IndexSet::<&Place, RandomState>::default();
    for device in &report.devices {
        write_samples(device, has_history, &mut strings, &mut locations, &mut out)?;
    }
    for (index, place) in locations.iter().enumerate() {
        // Numbers start at 1.
        let number = index as u64 + 1;
        let [function, name, file] = [&place.function, &place.name, &place.file].map(|text| strings.of(&safe(text)));
        let line = place.line.filter(|&line| i64::try_from(line).is_ok()).unwrap_or(0);
        message.message(field::FUNCTION, |value| {
            value.number(1, number).number(2, function).number(3, name).number(4, file);
        });
        message.message(field::LOCATION, |location| {
            location.number(1, number).number(2, 1).message(4, |value| {
                value.number(1, number).number(2, line);
            });
        });
    }
    let (time, duration) = time(source, report);
    message.number(field::TIME, time).number(field::DURATION, duration);
    for comment in comments(source, report) {
        message.number(field::COMMENT, strings.of(&comment));
    }
    message.number(field::DEFAULT_TYPE, strings.of(HELD[1].0));
    for text in &strings.0 {
        message.text(field::STRING, text);
    }
    message.write(&mut out)?;
    out.finish()?.flush()
}

fn write_samples<'a>(
    device: &'a DeviceSamples,
    has_history: bool,
    strings: &mut Strings,
    locations: &mut IndexSet<&'a Place, RandomState>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let places: Vec<u64> = device.places.iter().map(|place| locations.insert_full(place).0 as u64 + 1).collect();
    let label = |label: u64, value: u64| {
        let mut pair = Message::default();
        pair.message(3, |message| {
            message.number(1, label).number(2, value);
        });
        pair
    };
    let (key, value) = (strings.of("device"), strings.of(&device.peak.device.to_string()));
    let of_device = label(key, value);
    let step = strings.of("step");
    let mut values = Vec::new();
    for (kind, texts) in &device.labels {
        let key = strings.of(kind.name());
        values.push(texts.iter().map(|text| label(key, strings.of(&safe(text)))).collect::<Vec<_>>());
    }
    let stack = |stack: &Vec<u32>| {
        let mut message = Message::default();
        message.numbers(1, stack.iter().filter_map(|&place| places.get(place as usize).copied()));
        message
    };
    let stacks: Vec<Message> = device.stacks.iter().map(stack).collect();
    let mut message = Message::default();
    for Sample { stack, labels, step: number, allocated, held, .. } in &device.samples {
        let allocated = [allocated.blocks, allocated.bytes].into_iter().filter(|_| has_history);
        message.message(field::SAMPLE, |sample| {
            if let Some(stack) = stacks.get(*stack) {
                sample.append(stack);
            }
            sample.numbers(2, allocated.chain([held.blocks, held.bytes]));
            sample.append(&of_device);
            for label in labels.iter().zip(&values).filter_map(|(&value, values)| values.get(value as usize)) {
                sample.append(label);
            }
            if let Some(number) = number {
                sample.message(3, |label| {
                    label.number(1, step).number(3, u64::from(*number));
                });
            }
        });
        message.write(out)?;
    }
    Ok(())
}

/// The texts of a profile, each stored once. The first one is empty.
struct Strings(IndexSet<String, RandomState>);

impl Default for Strings {
    fn default() -> Self {
        Self([String::new()].into_iter().collect())
    }
}

impl Strings {
    fn of(&mut self, text: &str) -> u64 {
        let known = self.0.get_index_of(text);
        known.unwrap_or_else(|| self.0.insert_full(text.to_owned()).0) as u64
    }
}

/// The time of the latest instant, and the length of the devices' windows, in nanoseconds; 0 if that is not recorded.
fn time(source: Source<'_>, report: &SamplesReport) -> (u64, u64) {
    let nanoseconds = |micros: i64| u64::try_from(micros).ok().and_then(|micros| micros.checked_mul(1000)).unwrap_or(0);
    let instant = report.devices.iter().filter_map(|device| device.peak.time_us).max();
    let duration = |device: &DeviceSamples| {
        let history = source.recording.history(device.peak.device)?;
        let times = source.recording.snapshot.entries.times().get(history.rows.clone())?;
        let (from, to) = device.peak.window.unwrap_or((0, history.entries()));
        let time = |instant: u32| times.get(instant.saturating_sub(1) as usize);
        time(to)?.checked_sub(*time(from)?)
    };
    let has_times = source.recording.snapshot.notes.has_times;
    let duration = report.devices.iter().filter(|_| has_times).filter_map(duration).max();
    (nanoseconds(instant.unwrap_or(0)), nanoseconds(duration.unwrap_or(0)))
}

/// Notes about the values: their source, and why they are not exact.
fn comments(source: Source<'_>, report: &SamplesReport) -> Vec<String> {
    let mut lines = vec![format!("written by memviz {}", env!("CARGO_PKG_VERSION"))];
    lines.extend(notes::source(source.recording));
    for device in &report.devices {
        let (name, peak) = (device_name(device.peak.device), &device.peak);
        lines.push(format!("{} ({})", notes::headline(peak), notes::place(peak)));
        let (held, allocated) = device.totals();
        lines.push(format!("{name}: inuse_space sums to {} bytes", held.bytes));
        if device.has_history() {
            lines.push(format!("{name}: alloc_space sums to {} bytes", allocated.bytes));
        }
        lines.extend(notes::device(peak).into_iter().map(|note| format!("{name}: {note}")));
        if device.steps.as_ref().is_some_and(StepSource::is_inferred) {
            lines.push(format!("{name}: steps are inferred"));
        }
    }
    let is_inferred = |(label, _): &(Label, _)| matches!(label, Label::Category | Label::Phase);
    let told = |device: &DeviceSamples| device.labels.iter().any(is_inferred);
    if report.devices.iter().any(told) {
        lines.push("category and phase are inferred where the recording does not contain them".to_owned());
    }
    lines.extend(report.skipped.iter().map(|reason| format!("left out: {reason}")));
    lines.iter().map(|line| safe(line)).collect()
}
