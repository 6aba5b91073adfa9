//! What reports say about steps and phases, in words; shared by text and Markdown.

use super::notes;
use super::percent;
use super::words::count;
use crate::analysis::{DeviceInfo, PhaseSummary, StepSource, Steps};

/// How many steps there are and what they are.
pub fn steps(steps: &Steps) -> String {
    let number = count(steps.len(), "step");
    match &steps.source {
        StepSource::Annotations(name) => format!("{number}, annotated {name}"),
        StepSource::Requested(pattern) => format!("{number}, annotations that match {pattern}"),
        StepSource::Inferred(site) => format!("{number}, inferred: one ends at each allocation of {site}"),
    }
}

/// The columns of a table of phases.
pub const COLUMNS: [&str; 6] = ["phase", "times", "entries", "time", "share", "known from"];

/// The rows of a table of phases. A recording of nothing but other entries has none.
pub fn phases(device: &DeviceInfo) -> Vec<[String; COLUMNS.len()]> {
    if !device.has_phases() {
        return Vec::new();
    }
    let all: i64 = device.phases.iter().filter_map(|phase| phase.time_us).sum();
    let row = |phase: &PhaseSummary| {
        let time = phase.time_us.map(notes::duration).unwrap_or_default();
        let share = phase.time_us.map(|time| {
            let [time, all] = [time, all].map(|time| u64::try_from(time).unwrap_or(0));
            format!("{:.1}%", percent(time, all))
        });
        let times = phase.times.to_string();
        [
            phase.phase.name().to_owned(),
            times,
            phase.entries.to_string(),
            time,
            share.unwrap_or_default(),
            source(phase),
        ]
    };
    device.phases.iter().map(row).collect()
}

/// What says that the entries are of their phase.
fn source(phase: &PhaseSummary) -> String {
    match phase.recorded_entries {
        0 => "inferred".to_owned(),
        all if all == phase.entries => "annotations".to_owned(),
        some => format!("annotations ({some}), the others inferred"),
    }
}
