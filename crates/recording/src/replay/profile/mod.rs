//! Converts what `torch.profiler` wrote to the model and histories of a snapshot, so that every analysis works on it.
//!
//! In: a [`Profile`] or a [`crate::model::MemoryTimeline`]. Out: a [`Snapshot`] without segments, and one [`History`] per
//! device. Sizes are those of blocks, and a trace contains the allocator's own totals, so no simulation is needed.

mod enclosure;
mod frames;
mod gaps;
mod ledger;
mod live;
mod operators;
mod timeline;

pub use live::convert_live;
pub use timeline::convert_timeline;

use super::history::{Completeness, History};
use super::{AnomalyKind, Maximum, Metric, count};
use crate::model::profile::{Profile, SpanKind};
use crate::model::{
    Annotation, CPU_DEVICE, DeviceId, DeviceTrace, EntryContext, Snapshot, SourceNotes, Stage, Strings,
};
use enclosure::Enclosures;
use frames::Frames;
use ledger::Ledger;
use std::collections::{BTreeMap, HashSet};

/// Converts a trace to a snapshot and its histories, in the order of [`Snapshot::traces`].
pub fn convert(mut profile: Profile) -> (Snapshot, Vec<History>) {
    let mut frames = Frames::new(&mut profile.strings);
    let enclosures = Enclosures::of(&mut profile, &mut frames);
    let annotations = annotations(&profile);
    let mut snapshot = begin(profile.strings, profile.notes, annotations);
    snapshot.stacks = frames.into_stacks();
    let mut devices: BTreeMap<DeviceId, Vec<u32>> = BTreeMap::new();
    for (index, event) in profile.memory.iter().enumerate() {
        devices.entry(event.device).or_default().push(index as u32);
    }
    let context = snapshot.contexts.intern(EntryContext::default());
    let mut histories = Vec::new();
    for (device, mut events) in devices {
        // Threads are written one after the other. The totals are consistent only in chronological order.
        events.sort_by_key(|&event| profile.memory[event as usize].time_ns);
        let first_row = snapshot.entries.len();
        let mut ledger = Ledger::new(&mut snapshot.entries, context);
        let while_profiling = device == CPU_DEVICE && !snapshot.notes.no_totals;
        if while_profiling {
            ledger = ledger.with_stale_totals();
        }
        gaps::fill(&mut profile.memory, &events, &snapshot.notes);
        let events = events.iter().map(|&event| event as usize);
        ledger.write(events.map(|event| (&profile.memory[event], enclosures.stacks[event])), profile.base_time_ns);
        let mut history = close(ledger, device, first_row);
        history.completeness.no_totals = snapshot.notes.no_totals;
        history.completeness.while_profiling = while_profiling;
        history.operators = enclosures.operators.of(device, |name| snapshot.strings.get(name).to_owned());
        finish(&mut snapshot, &mut history);
        histories.push(history);
    }
    (snapshot, histories)
}

/// A snapshot without traces.
fn begin(strings: Strings, notes: SourceNotes, annotations: Vec<Annotation>) -> Snapshot {
    Snapshot { strings, annotations, notes, ..Snapshot::default() }
}

fn close(ledger: Ledger<'_>, device: DeviceId, first_row: usize) -> History {
    let baseline = ledger.origins();
    History {
        device,
        rows: first_row..first_row + ledger.links.len(),
        allocations: ledger.allocations,
        baseline,
        segments: ledger.segments,
        start: ledger.start,
        end: ledger.start,
        maxima: [Maximum::default(); 4],
        at_maxima: None,
        anomalies: ledger.anomalies,
        completeness: Completeness {
            has_baseline: ledger.start.allocated != 0 || ledger.start.reserved != 0,
            blocks_only: true,
            ..Completeness::default()
        },
        counted: Vec::new(),
        operators: Vec::new(),
        links: ledger.links,
        corrections: ledger.corrections,
    }
}

/// Computes the counters, and adds the device to the snapshot.
fn finish(snapshot: &mut Snapshot, history: &mut History) {
    let truncated = snapshot.notes.truncated_at.is_some();
    history.completeness.truncated = truncated;
    let times = snapshot.entries.times().get(history.rows.clone()).unwrap_or(&[]);
    for (index, _) in times.windows(2).enumerate().filter(|(_, pair)| pair[1] < pair[0]) {
        history.anomalies.add(AnomalyKind::TimeReversed, Some(index as u32 + 1), 0);
    }
    count(snapshot, history, &HashSet::default());
    history.completeness.no_reserved = history.maxima[Metric::Reserved as usize].bytes == 0;
    snapshot.traces.push(DeviceTrace { device: history.device, rows: history.rows.clone(), truncated });
}

/// Both ends of every `record_function` range, in chronological order.
fn annotations(profile: &Profile) -> Vec<Annotation> {
    let spans = profile.threads.iter().flat_map(|thread| &thread.spans);
    let mut ends: Vec<(i64, u8, Annotation)> = Vec::new();
    for span in spans.filter(|span| span.kind == SpanKind::Annotation) {
        let mut end = |time_ns: i64, order, stage| {
            let time_us = profile.base_time_ns.saturating_add(time_ns).div_euclid(1000);
            ends.push((time_ns, order, Annotation { stage, name: span.name, device: 0, time_us }));
        };
        // If one range ends when another starts, the end comes first, unless both belong to the same range.
        end(span.start_ns, 1, Stage::Start);
        end(span.end_ns, if span.end_ns > span.start_ns { 0 } else { 2 }, Stage::End);
    }
    ends.sort_by_key(|&(time, order, _)| (time, order));
    ends.into_iter().map(|(_, _, annotation)| annotation).collect()
}
