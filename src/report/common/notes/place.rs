//! Where an instant is in a recording.

use super::text::{device_name, duration, safe, signed};
use crate::analysis::peak::DevicePeak;
use crate::facts::time::moment::Moment;
use crate::replay::{Completeness, History, Instant};

/// What is held on a device at the selected instant: `Device 0: peak allocated 4.15 GiB`.
pub fn headline(device: &DevicePeak) -> String {
    let metric = device.metric;
    if device.is_empty() {
        return format!("{}: nothing was allocated", device_name(device.device));
    }
    // If the kept history starts at its maximum, or nothing was recorded, that instant is an ordinary state.
    let is_known = !device.completeness.no_entries && !device.is_early(metric);
    let is_peak = is_known && device.maxima[metric as usize].instant == device.instant;
    let peak = if is_peak { "peak " } else { "" };
    format!("{}: {peak}{} {}", device_name(device.device), metric.name(), signed(device.at.get(metric)))
}

/// Where that instant is: `entry 2939 of 9107, after 690.5 ms, in step_1 / backward`.
pub fn place(device: &DevicePeak) -> String {
    let moment = Moment {
        instant: device.instant,
        entry: device.entry,
        time_us: device.time_us,
        since_start_us: device.since_start_us,
        annotations: device.annotations.clone(),
    };
    position(&moment, device.entries, &device.completeness)
}

/// The instant before the first entry, in words.
pub const START: &str = "the start of the recording";

/// An instant in words.
pub(super) fn instant_name(instant: Instant) -> String {
    match History::entry_before(instant) {
        Some(entry) => format!("entry {entry}"),
        None => START.to_owned(),
    }
}

/// The place of an instant, in words: `entry 41 of 60, after 3.4 ms, in step_1 / backward`.
pub fn position(moment: &Moment, entries: u32, completeness: &Completeness) -> String {
    let mut text = match moment.entry {
        // Entries are numbered from 0.
        Some(entry) if entry.checked_add(1) == Some(entries) => format!("entry {entry}, the last of {entries}"),
        Some(entry) => format!("entry {entry} of {entries}"),
        None if completeness.no_entries => "at dump time".to_owned(),
        None => format!("at {START}"),
    };
    if let Some(since) = moment.since_start_us {
        text += &format!(", after {}", duration(since));
    }
    if !moment.annotations.is_empty() {
        text += &format!(", in {}", safe(&moment.annotations.join(" / ")));
    }
    text
}
