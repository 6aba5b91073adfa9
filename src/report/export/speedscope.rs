//! A profile for speedscope: memory held at the instant, and memory allocated in the window, by call stack.

use crate::analysis::export::{DeviceSamples, Sample, SamplesReport, Sums};
use crate::facts::code::sites::Place;
use crate::report::Source;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::source::file_names;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use serde::Serialize;
use std::io::{self, Write};

/// The schema that names the format.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames of each stack, the outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes two profiles for each device: memory held, and memory allocated.
pub fn write(source: Source<'_>, report: &SamplesReport, out: &mut dyn Write) -> io::Result<()> {
    let mut places = IndexSet::<&Place, RandomState>::default();
    let mut profiles = Vec::new();
    for device in &report.devices {
        let numbers: Vec<usize> = device.places.iter().map(|place| places.insert_full(place).0).collect();
        let peak = &device.peak;
        let held = format!("{} ({})", notes::headline(peak), notes::place(peak));
        profiles.push(profile(device, held, &numbers, |sample| sample.held));
        if device.has_history() {
            let allocated = format!("{}: allocated while recording", device_name(peak.device));
            profiles.push(profile(device, allocated, &numbers, |sample| sample.allocated));
        }
    }
    let frame = |place: &&Place| Frame {
        name: safe(&place.function),
        file: (!place.file.is_empty()).then(|| safe(&place.file)),
        line: place.line,
    };
    let file = File {
        schema: SCHEMA,
        name: safe(file_names(&[source.path]).first().copied().unwrap_or_default()),
        exporter: format!("memviz {}", env!("CARGO_PKG_VERSION")),
        shared: Shared { frames: places.iter().map(frame).collect() },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// The stacks of a device that have bytes. Labels do not matter: samples that differ only in labels are one sample.
fn profile(device: &DeviceSamples, name: String, numbers: &[usize], sums: impl Fn(&Sample) -> Sums) -> Profile {
    let mut of_stack = vec![0u64; device.stacks.len()];
    for sample in &device.samples {
        if let Some(bytes) = of_stack.get_mut(sample.stack) {
            *bytes = bytes.wrapping_add(sums(sample).bytes);
        }
    }
    let stack = |stack: &[u32]| stack.iter().rev().filter_map(|&place| numbers.get(place as usize).copied()).collect();
    let (samples, weights): (Vec<Vec<usize>>, Vec<u64>) = of_stack
        .iter()
        .zip(&device.stacks)
        .filter(|&(&bytes, _)| bytes > 0)
        .map(|(&bytes, frames)| (stack(frames), bytes))
        .unzip();
    let end_value = weights.iter().fold(0, |sum: u64, &bytes| sum.wrapping_add(bytes));
    Profile { kind: "sampled", name, unit: "bytes", start_value: 0, end_value, samples, weights }
}
