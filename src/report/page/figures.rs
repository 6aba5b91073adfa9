//! The figures of every device, one row each.

use super::Page;
use crate::analysis::peak::DevicePeak;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::notes::{self, device_name, signed};
use crate::report::percent;

/// Names of the columns. Numbers are between the first and the last of them.
pub const COLUMNS: [&str; 7] = [
    "device",
    "peak allocated",
    "max reserved",
    "allocated at the start",
    "allocated at the end",
    "inactive †",
    "history",
];

/// What the dagger means.
pub const INACTIVE: &str = "† inactive memory, and its share of reserved memory, at the first failed request; if none failed, at the peak; without a history, at dump time";

pub fn rows(page: &Page<'_>) -> Vec<[String; COLUMNS.len()]> {
    page.overview.peak.devices.iter().map(row).collect()
}

/// Marks a figure that the recording does not contain.
const UNKNOWN: &str = "not recorded";
/// Marks a figure that the recording contains with two values.
const CONTRADICTORY: &str = "contradictory";

fn row(peak: &DevicePeak) -> [String; COLUMNS.len()] {
    let has_history = !peak.completeness.no_entries;
    let maximum = |metric: Metric| {
        let bytes = signed(peak.maxima[metric as usize].bytes);
        if !has_history {
            UNKNOWN.to_owned()
        } else if peak.is_early(metric) && peak.is_early(Metric::Allocated) {
            format!("at least {bytes}")
        } else {
            bytes
        }
    };
    // CPU memory and memory timelines have no reserved bytes, and profiler traces do not show active memory. In a
    // recording that contradicts itself, more memory may be active than is reserved.
    let inactive = match peak.at.reserved {
        reserved if reserved > 0 && reserved >= peak.at.active => {
            let inactive = reserved.saturating_sub(peak.at.active);
            let share = percent(inactive.unsigned_abs(), reserved.unsigned_abs());
            format!("{} ({share:.1}%)", signed(inactive))
        }
        reserved if reserved > 0 => CONTRADICTORY.to_owned(),
        _ => UNKNOWN.to_owned(),
    };
    [
        device_name(peak.device),
        maximum(Metric::Allocated),
        if is_reserved_known(peak) { maximum(Metric::Reserved) } else { UNKNOWN.to_owned() },
        if has_history { signed(peak.baseline.allocated) } else { UNKNOWN.to_owned() },
        signed(peak.end.allocated),
        inactive,
        history(peak),
    ]
}

/// Whether there is reserved memory: CPU memory and memory timelines have none.
fn is_reserved_known(peak: &DevicePeak) -> bool {
    !peak.completeness.no_reserved
}

fn history(peak: &DevicePeak) -> String {
    let complete = if peak.completeness.no_entries {
        "none"
    } else if peak.completeness.is_complete() {
        "complete"
    } else {
        "incomplete"
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
    format!("{}, {entries} {noun}; {settings}", Bytes(recording.bytes))
}
