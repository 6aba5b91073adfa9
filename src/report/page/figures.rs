//! The figures that a report starts with, a row per device.

use super::Page;
use crate::analysis::overview::Usage;
use crate::analysis::{DevicePeak, DeviceSegmentMap};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::notes::{self, device_name, signed};

/// Names of the columns.
pub const COLUMNS: [&str; 9] = [
    "device",
    "peak allocated",
    "max reserved",
    "baseline",
    "allocated at the end",
    "inactive at the peak",
    "rounding loss",
    "largest free block",
    "history",
];

/// The figures of every device.
pub fn rows(page: &Page<'_>) -> Vec<[String; COLUMNS.len()]> {
    let maps = &page.overview.segments.devices;
    let map_of = |peak: &DevicePeak| maps.iter().find(|map| map.peak.device == peak.device);
    page.overview.peak.devices.iter().map(|peak| row(peak, map_of(peak))).collect()
}

/// Stands for a figure that the recording does not hold.
const UNKNOWN: &str = "not recorded";

fn row(peak: &DevicePeak, map: Option<&DeviceSegmentMap>) -> [String; COLUMNS.len()] {
    let maximum = |metric: Metric| signed(peak.maxima[metric as usize].bytes);
    let inactive = |bytes: i64, share: f64| format!("{} ({:.1}%)", signed(bytes), share * 100.0);
    let [inactive, rounding, largest] = match map {
        Some(map) => {
            let usage = Usage::of(peak, &map.layout);
            [
                inactive(usage.inactive_bytes, usage.inactive_share),
                signed(usage.rounding_bytes),
                Bytes(usage.largest_free_block_bytes).to_string(),
            ]
        }
        // Without segments the counters are all there is; the CPU has no reserved memory either.
        None if peak.at.reserved > 0 => {
            let bytes = peak.at.reserved.wrapping_sub(peak.at.allocated);
            [inactive(bytes, bytes as f64 / peak.at.reserved as f64), UNKNOWN.to_owned(), UNKNOWN.to_owned()]
        }
        None => [UNKNOWN; 3].map(str::to_owned),
    };
    [
        device_name(peak.device),
        maximum(Metric::Allocated),
        maximum(Metric::Reserved),
        signed(peak.baseline.allocated),
        signed(peak.end.allocated),
        inactive,
        rounding,
        largest,
        history(peak),
    ]
}

fn history(peak: &DevicePeak) -> String {
    let complete = if peak.completeness.is_complete() { "complete" } else { "incomplete" };
    match peak.anomalies.total() {
        0 => complete.to_owned(),
        1 => format!("{complete}, 1 anomaly"),
        count => format!("{complete}, {count} anomalies"),
    }
}

/// The recording in a line: size, entries, settings.
pub fn recording(page: &Page<'_>) -> String {
    let recording = page.source.recording;
    let entries: u64 = recording.histories.iter().map(|history| u64::from(history.entries())).sum();
    let settings = notes::settings(&recording.snapshot.settings).join(", ");
    let noun = if entries == 1 { "entry" } else { "entries" };
    format!("{} with {entries} {noun}; {settings}", Bytes(recording.bytes))
}
