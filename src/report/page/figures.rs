//! The figures that a report starts with, a row per device.

use super::Page;
use crate::analysis::{DevicePeak, DeviceSegmentMap, Figures};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::notes::{self, device_name, signed};
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
    let maps = &page.overview.segments.devices;
    let map_of = |peak: &DevicePeak| maps.iter().find(|map| map.peak.device == peak.device);
    page.overview.peak.devices.iter().map(|peak| row(peak, map_of(peak))).collect()
}

/// Stands for a figure that the recording does not hold.
const UNKNOWN: &str = "not recorded";

fn row(peak: &DevicePeak, map: Option<&DeviceSegmentMap>) -> [String; COLUMNS.len()] {
    let maximum = |metric: Metric| signed(peak.maxima[metric as usize].bytes);
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let [inactive, pinned, rounding, largest] = match map {
        Some(map) => {
            let figures = Figures::sum(&map.figures);
            let inactive = format!("{} ({:.1}%)", Bytes(figures.inactive), percent(figures.inactive, figures.reserved));
            [inactive, bytes(figures.pinned_free), signed(figures.rounding()), bytes(figures.largest_free_block)]
        }
        // Without segments the counters are all there is; the CPU has no reserved memory either.
        None if peak.at.reserved > 0 => {
            let inactive = peak.at.reserved.wrapping_sub(peak.at.allocated);
            let share = inactive as f64 * 100.0 / peak.at.reserved as f64;
            let inactive = format!("{} ({share:.1}%)", signed(inactive));
            [inactive, UNKNOWN.to_owned(), UNKNOWN.to_owned(), UNKNOWN.to_owned()]
        }
        None => [UNKNOWN; 4].map(str::to_owned),
    };
    [
        device_name(peak.device),
        match () {
            () if peak.completeness.no_entries => UNKNOWN.to_owned(),
            () if peak.is_early(Metric::Allocated) => format!("at least {}", maximum(Metric::Allocated)),
            () => maximum(Metric::Allocated),
        },
        if is_reserved_known(peak) { maximum(Metric::Reserved) } else { UNKNOWN.to_owned() },
        signed(peak.baseline.allocated),
        signed(peak.end.allocated),
        inactive,
        pinned,
        rounding,
        largest,
        history(peak),
    ]
}

/// Whether there is reserved memory: the memory of the CPU and memory timelines have none.
fn is_reserved_known(peak: &DevicePeak) -> bool {
    !peak.completeness.blocks_only || peak.maxima[Metric::Reserved as usize].bytes != 0
}

fn history(peak: &DevicePeak) -> String {
    let complete = match () {
        () if peak.completeness.no_entries => "none",
        () if peak.completeness.is_complete() => "complete",
        () => "incomplete",
    };
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
