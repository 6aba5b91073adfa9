//! The figures that a report starts with, a row per device.

use super::Page;
use crate::analysis::{DevicePeak, DeviceSegmentMap, Figures};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::notes::{self, device_name, signed};
use crate::report::percent;

/// Names of the columns.
pub const COLUMNS: [&str; 10] = [
    "device",
    "peak allocated",
    "max reserved",
    "baseline",
    "allocated at the end",
    "inactive at the peak",
    "pinned",
    "rounding loss",
    "largest free block",
    "history",
];

/// The figures of every device.
pub fn rows(page: &Page<'_>) -> Vec<[String; COLUMNS.len()]> {
    let maps = page.overview.segments.devices.iter();
    page.overview.peak.devices.iter().zip(maps).map(|(peak, map)| row(peak, map)).collect()
}

fn row(peak: &DevicePeak, map: &DeviceSegmentMap) -> [String; COLUMNS.len()] {
    let figures = Figures::sum(&map.figures);
    let maximum = |metric: Metric| signed(peak.maxima[metric as usize].bytes);
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let inactive = format!("{} ({:.1}%)", Bytes(figures.inactive), percent(figures.inactive, figures.reserved));
    [
        device_name(peak.device),
        maximum(Metric::Allocated),
        maximum(Metric::Reserved),
        signed(peak.baseline.allocated),
        signed(peak.end.allocated),
        inactive,
        bytes(figures.pinned_free),
        signed(figures.rounding()),
        bytes(figures.largest_free_block),
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
