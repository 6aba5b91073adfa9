//! The phases of a recording in a few figures.

use super::phases::{Phase, Phases};
use crate::replay::Track;
use serde::Serialize;

/// All entries of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PhaseRow"))]
pub struct PhaseSummary {
    pub phase: Phase,
    /// How often it occurs; an optimizer step counts only after a backward pass: `zero_grad` at the start of a step does
    /// not count.
    pub times: usize,
    pub entries: u32,
    /// Those of its entries whose phase an annotation names; the phase of the others is inferred.
    pub recorded_entries: u32,
    /// Time from each of its entries to the next one; null if the file has no times. Phases sum to the total.
    pub time_us: Option<i64>,
}

impl PhaseSummary {
    /// Sums over the phases that occur, in the order of a step.
    pub fn all(track: Track<'_>, phases: &Phases) -> Vec<Self> {
        let snapshot = track.snapshot;
        let times = track.times();
        let time = |entry: u32| times.get(entry as usize).or(times.last()).copied().unwrap_or(0);
        let mut all = Phase::ALL.map(|phase| {
            let time_us = snapshot.notes.has_times.then_some(0);
            Self { phase, times: 0, entries: 0, recorded_entries: 0, time_us }
        });
        let mut before = None;
        let mut last_pass = Phase::Other;
        for span in &phases.spans {
            let Some(summary) = all.iter_mut().find(|summary| summary.phase == span.phase) else { continue };
            let entries = span.end - span.start;
            summary.entries += entries;
            summary.recorded_entries += if span.recorded { entries } else { 0 };
            if let Some(sum) = &mut summary.time_us {
                *sum = sum.saturating_add(time(span.end).saturating_sub(time(span.start)));
            }
            let counts = span.phase != Phase::Optimizer || last_pass == Phase::Backward;
            if before != Some(span.phase) && counts {
                summary.times += 1;
            }
            before = Some(span.phase);
            if matches!(span.phase, Phase::Forward | Phase::Backward | Phase::Optimizer) {
                last_pass = span.phase;
            }
        }
        all.into_iter().filter(|summary| summary.entries > 0).collect()
    }
}
