//! Steps and phases in words, for text and Markdown.

use super::notes;
use super::words::count;
use crate::analysis::info::DeviceInfo;
use crate::facts::training::PhaseSummary;
use crate::facts::training::iterations::IterationKind;
use crate::facts::training::steps::{StepSource, Steps};
use crate::report::percent;

pub fn steps(steps: &Steps) -> String {
    let number = count(steps.len(), "step");
    let what = match &steps.source {
        StepSource::Annotations(name) => {
            // Programs count steps from 0 or from another number.
            let is_numbered = name.strip_suffix('N').is_some_and(|front| !front.ends_with(char::is_alphanumeric));
            let from = if is_numbered { "; memviz numbers steps from 1, whatever N is" } else { "" };
            format!("{number}, annotated as {name}{from}")
        }
        StepSource::Requested(pattern) => format!("{number}: annotations that match {pattern}"),
        StepSource::Inferred { kind: IterationKind::Loop, site } => {
            let site = site.as_ref().map(|site| format!(" at {site}")).unwrap_or_default();
            format!("{} of a loop{site} that calls no model", count(steps.len(), "iteration"))
        }
        StepSource::Inferred { kind, site } => {
            let site = site.as_ref().map(|site| format!(" from {site}")).unwrap_or_default();
            let (event, more) = turn(*kind);
            format!("{number}, inferred: one for each {event}{site}{more}")
        }
    };
    match steps.left_out {
        0 => what,
        1 => format!("{what}; 1 more such range contains no backward pass"),
        more => format!("{what}; {more} more such ranges contain no backward pass"),
    }
}

/// The event that counts as a step, and what belongs to it.
fn turn(kind: IterationKind) -> (&'static str, &'static str) {
    match kind {
        IterationKind::Optimizer => ("backward pass", ", with its optimizer step"),
        IterationKind::Backward => ("backward pass", ""),
        IterationKind::Forward => ("call to the model", ""),
        IterationKind::Loop => ("iteration", ""),
    }
}

/// Why a recording with entries has no steps, and how to mark them.
pub const NO_STEPS: &str = "no annotation marks the steps, and no loop around forward and backward was found; record at \
     least four steps, each in torch.profiler.record_function(f\"step_{n}\")";

pub const COLUMNS: [&str; 6] = ["phase", "count", "entries", "time", "share", "source"];

/// What the column of counts is.
pub const COUNT: &str = "count: unbroken stretches of entries; for optimizer, only those that follow a backward pass";

/// The same with the column of times.
pub const COUNT_AND_TIME: &str = "count: unbroken stretches of entries; for optimizer, only those that follow a backward pass; \
                                  time: from each entry to the next one, so work without entries, \
                                  such as an optimizer step that allocates nothing, is counted in the phase before it";

/// The rows of a table of phases; empty if the recording contains only other entries.
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
        let count = phase.times.to_string();
        [
            phase.phase.name().to_owned(),
            count,
            phase.entries.to_string(),
            time,
            share.unwrap_or_default(),
            source(phase),
        ]
    };
    device.phases.iter().map(row).collect()
}

fn source(phase: &PhaseSummary) -> String {
    match phase.recorded_entries {
        0 => "inferred".to_owned(),
        all if all == phase.entries => "annotations".to_owned(),
        some => format!("annotations ({some}), the rest inferred"),
    }
}
