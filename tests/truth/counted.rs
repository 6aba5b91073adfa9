//! PyTorch's own counters in a recording: they equal the figures, and no part of the recording can be lost without a mark.

use crate::support::{Case, FIXTURES, assert_none, cases, open};
use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckKind, CheckOptions, CheckReport, CheckVerdict};
use memviz::model::memory_stats::MemoryStats;
use memviz::model::trace_entry::TraceEntries;
use memviz::model::{DeviceTrace, Snapshot};
use memviz::replay::{Metric, replay};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// What `torch_memviz` would have written: the counters of the truth at the end, and at the start those of an empty allocator,
/// if it was empty.
fn counters(case: &Case, recording: &Recording) -> MemoryStats {
    let devices = case.truth["devices"].as_array().unwrap();
    let of = |(number, device): (usize, &Value)| {
        let is_complete = |device: i32| {
            let history = recording.histories.iter().find(|history| history.device == device);
            history.is_none_or(|history| history.completeness.is_complete())
        };
        let end = &device["memory_stats"];
        let zeros = |stats: &Value| -> Value { stats.as_object().unwrap().keys().map(|key| (key.clone(), json!(0))).collect() };
        json!({"start": is_complete(number as i32).then(|| zeros(end)), "end": end})
    };
    let devices: Vec<Value> = devices.iter().enumerate().map(of).collect();
    MemoryStats::of_json(&json!({"version": 1, "devices": devices}).to_string()).unwrap()
}

fn replayed(snapshot: Snapshot) -> Recording {
    let histories = replay(&snapshot);
    Recording { snapshot, histories, compression: memviz::input::Compression::None, bytes: 0, device_file: None }
}

/// All fixtures, with PyTorch's counters in them.
fn recordings() -> impl Iterator<Item = (String, Recording)> {
    cases(FIXTURES).into_iter().filter(|case| case.own_truth && case.truth["devices"][0]["memory_stats"].is_object()).map(|case| {
        let mut snapshot = open(&case.path).snapshot;
        snapshot.notes.memory_stats = Some(counters(&case, &open(&case.path)));
        (case.path, replayed(snapshot))
    })
}

#[test]
fn counters_of_pytorch_equal_the_replayed_ones() {
    let (mut problems, mut equal) = (Vec::new(), 0);
    for (path, recording) in recordings() {
        for history in &recording.histories {
            for compared in history.counted.iter().filter(|compared| compared.differs()) {
                problems.push(format!("{path}, device {}: {compared:?}", history.device));
            }
            equal += history.counted.len();
        }
    }
    assert_none(&problems);
    assert!(equal > 1000, "only {equal} counters were compared");
}

/// A part of a recording that can be lost. Numbers count modulo the number of parts.
#[derive(Clone, Copy, Debug)]
enum Part {
    Entries { device: usize, from: usize, count: usize },
    /// The first entries, and the first segment.
    Beginning { device: usize, count: usize },
    Segment(usize),
    Block(usize, usize),
    /// Entries and segments of a device.
    Device(usize),
    Trace(usize),
    Settings,
    Annotations,
    Overflowed,
    Counters,
}

impl Part {
    fn pick(random: &mut impl FnMut(usize) -> usize) -> Self {
        match random(16) {
            0..5 => Self::Entries { device: random(8), from: random(1 << 20), count: 1 + random(6) },
            5 => Self::Entries { device: random(8), from: random(1 << 20), count: 1 + random(1 << 12) },
            6..8 => Self::Entries { device: random(8), from: 0, count: 1 + random(12) },
            8 => Self::Beginning { device: random(8), count: 1 + random(12) },
            9..11 => Self::Segment(random(1 << 12)),
            11 => Self::Block(random(1 << 12), random(1 << 12)),
            12 => Self::Device(random(8)),
            13 => Self::Trace(random(8)),
            14 => [Self::Settings, Self::Annotations, Self::Overflowed][random(3)],
            _ => Self::Counters,
        }
    }

    fn lose(self, snapshot: &mut Snapshot) {
        let traces = snapshot.traces.len();
        match self {
            _ if traces == 0 => {}
            Self::Entries { device, from, count } => {
                let rows = snapshot.traces[device % traces].rows.clone();
                if !rows.is_empty() {
                    let from = rows.start + from % rows.len();
                    lose_rows(snapshot, from..(from + count).min(rows.end));
                }
            }
            Self::Beginning { device, count } => {
                let id = snapshot.traces[device % traces].device;
                Self::Entries { device, from: 0, count }.lose(snapshot);
                if let Some(first) = snapshot.segments.iter().position(|segment| segment.device == id) {
                    snapshot.segments.remove(first);
                }
            }
            Self::Segment(_) | Self::Block(..) if snapshot.segments.is_empty() => {}
            Self::Segment(number) => drop(snapshot.segments.remove(number % snapshot.segments.len())),
            Self::Block(segment, number) => {
                let segment = segment % snapshot.segments.len();
                let blocks = &mut snapshot.segments[segment].blocks;
                if !blocks.is_empty() {
                    blocks.remove(number % blocks.len());
                }
            }
            Self::Device(number) => {
                let id = snapshot.traces[number % traces].device;
                snapshot.segments.retain(|segment| segment.device != id);
                snapshot.traces.remove(number % traces);
            }
            Self::Trace(number) => {
                let trace = &mut snapshot.traces[number % traces];
                trace.rows.end = trace.rows.start;
            }
            Self::Settings => snapshot.settings = memviz::model::AllocatorSettings::default(),
            Self::Annotations => snapshot.annotations.clear(),
            Self::Overflowed => snapshot.notes.trace_overflowed = None,
            Self::Counters => snapshot.notes.memory_stats = None,
        }
    }
}

fn lose_rows(snapshot: &mut Snapshot, lost: Range<usize>) {
    let mut kept = TraceEntries::default();
    for (row, entry) in snapshot.entries.rows(0..snapshot.entries.len()).enumerate() {
        if !lost.contains(&row) {
            kept.push(entry);
        }
    }
    let moved = |row: usize| row - lost.len().min(row.saturating_sub(lost.start));
    for DeviceTrace { rows, .. } in &mut snapshot.traces {
        *rows = moved(rows.start)..moved(rows.end);
    }
    snapshot.entries = kept;
}

/// Which budgets are met on all devices: each just below what the whole recording needs.
fn met(recording: &Recording, budgets: &Budgets) -> BTreeMap<String, bool> {
    let report: CheckReport = recording.check(&CheckOptions::default().budgets(vec![budgets.clone()]).top(1));
    let mut met = BTreeMap::new();
    for check in report.checks {
        let kind = match check.kind {
            CheckKind::MaxPeak => "peak",
            _ => "reserved",
        };
        *met.entry(kind.to_owned()).or_insert(true) &= check.verdict == CheckVerdict::Passed;
    }
    met
}

/// Loses so many pairs of parts, and returns those after which a budget that the whole exceeds is met.
fn passing(pairs: usize, keeps_counters: bool) -> Vec<String> {
    let mut state = 64u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let whole: Vec<_> = recordings().filter(|(_, recording)| recording.snapshot.entries.len() < 4000).collect();
    let mut problems = Vec::new();
    for number in 0..pairs {
        let (path, whole) = &whole[number % whole.len()];
        let highest = |metric: Metric| {
            let device = whole.histories.iter().filter(|history| history.device >= 0);
            let bytes = device.map(|history| history.maxima[metric as usize].bytes).max().unwrap_or(0);
            Some(u64::try_from(bytes).unwrap().saturating_sub(1)).filter(|&below| below > 0)
        };
        let budgets = Budgets::default().max_peak(highest(Metric::Allocated)).max_reserved(highest(Metric::Reserved));
        let parts = [(); 2].map(|()| loop {
            let part = Part::pick(&mut random);
            if !keeps_counters || !matches!(part, Part::Counters) {
                break part;
            }
        });
        let mut left = whole.snapshot.clone();
        if !keeps_counters {
            left.notes.memory_stats = None;
        }
        parts.iter().for_each(|part| part.lose(&mut left));
        for (kind, is_met) in met(&replayed(left), &budgets) {
            if is_met {
                problems.push(format!("{path}: {kind} without {parts:?}"));
            }
        }
    }
    problems
}

/// Without PyTorch's counters, some of what is left after two losses is the recording of a smaller program.
#[test]
fn no_two_parts_of_a_recording_with_counters_keep_a_budget_by_being_lost() {
    assert_none(&passing(2000, true));
}
