//! Recordings from real programs on real GPUs, which only some machines have, against a second way to the same figures:
//! traces are summed up from their JSON, snapshots are played backwards from their segments.

use crate::support::{REQUIRE_CORPUS, assert_none, names, read_unpacked, skipped};
use memviz::Recording;
use memviz::input::ReadOptions;
use memviz::model::{Action, BlockState, CPU_DEVICE, Format};
use memviz::replay::{History, Metric};
use serde_json::Value;
use std::path::Path;

const REAL: &str = "../shared/real";

/// Names of the recordings; none where a machine does not have them, which is announced.
fn recordings() -> Vec<String> {
    if !Path::new(REAL).is_dir() {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {REAL}");
        skipped(&format!("there is no {REAL}; {REQUIRE_CORPUS}=1 makes that a failure"));
        return Vec::new();
    }
    let is_recording = |name: &String| ![".md", ".py"].iter().any(|extension| name.ends_with(extension));
    names(REAL).into_iter().filter(is_recording).map(|name| format!("{REAL}/{name}")).collect()
}

/// Highest and last value of a curve that is known backwards from its end; `change` is what each entry added.
fn backwards(end: i64, changes: impl DoubleEndedIterator<Item = i64>) -> (i64, i64) {
    let (mut highest, mut now) = (end, end);
    for change in changes.rev() {
        now -= change;
        highest = highest.max(now);
    }
    (highest, end)
}

/// What differs between a history and the same played backwards from the segments.
fn compare_snapshot(recording: &Recording, history: &History) -> Vec<String> {
    let snapshot = &recording.snapshot;
    let segments = snapshot.segments_of(history.device);
    let blocks = || segments.iter().flat_map(|segment| &segment.blocks);
    let sum = |size: fn(&memviz::model::Block) -> u64, states: &[BlockState]| {
        blocks().filter(|block| states.contains(&block.state)).map(size).sum::<u64>() as i64
    };
    let active = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
    let reserved = segments.iter().map(|segment| segment.total_size).sum::<u64>() as i64;
    let mut problems = Vec::new();
    let mut compare = |what: &str, ours: i64, theirs: i64| {
        if ours != theirs {
            problems.push(format!("device {}: {what} is {ours}, played backwards {theirs}", history.device));
        }
    };
    let entries = || snapshot.entries.rows(history.rows.clone());
    let of_reserved = entries().map(|entry| match entry.action {
        Action::SegmentAlloc | Action::SegmentMap => entry.size as i64,
        Action::SegmentFree | Action::SegmentUnmap => -(entry.size as i64),
        _ => 0,
    });
    let (highest, end) = backwards(reserved, of_reserved.collect::<Vec<_>>().into_iter());
    compare("max reserved", history.maxima[Metric::Reserved as usize].bytes, highest);
    compare("reserved at the end", history.end.reserved, end);
    compare("active at the end", history.end.active, sum(|block| block.size, &active));
    compare("allocated at the end", history.end.allocated, sum(|block| block.size, &active[..1]));
    let requested = sum(|block| block.requested_size, &active);
    let of_requested = entries().map(|entry| match entry.action {
        Action::Alloc => entry.size as i64,
        Action::FreeCompleted => -(entry.size as i64),
        _ => 0,
    });
    let (highest, end) = backwards(requested, of_requested.collect::<Vec<_>>().into_iter());
    compare("max requested", history.maxima[Metric::Requested as usize].bytes, highest);
    compare("requested at the end", history.end.requested, end);
    problems
}

/// What differs between a history and the totals that the trace's events state.
fn compare_trace(json: &Value, history: &History) -> Vec<String> {
    let events = json.get("traceEvents").unwrap_or(json).as_array().unwrap();
    let is_ours = |event: &&Value| {
        let args = &event["args"];
        let is_cpu = args["Device Type"] == 0;
        let same = if history.device == CPU_DEVICE { is_cpu } else { !is_cpu && args["Device Id"] == history.device };
        event["name"] == "[memory]" && same
    };
    let mut events: Vec<&Value> = events.iter().filter(is_ours).collect();
    events.sort_by(|a, b| a["ts"].as_f64().unwrap().total_cmp(&b["ts"].as_f64().unwrap()));
    let number = |event: &Value, key: &str| event["args"][key].as_i64().unwrap();
    let before = number(events[0], "Total Allocated") - number(events[0], "Bytes");
    let totals = |key: &'static str| events.iter().map(move |event| number(event, key));
    let highest = [
        ("max allocated", Metric::Allocated, totals("Total Allocated").max().unwrap().max(before)),
        ("max reserved", Metric::Reserved, totals("Total Reserved").max().unwrap()),
    ];
    let mut problems = Vec::new();
    for (what, metric, theirs) in highest {
        let ours = history.maxima[metric as usize].bytes;
        if ours != theirs {
            problems.push(format!("device {}: {what} is {ours}, the trace says {theirs}", history.device));
        }
    }
    let last = totals("Total Allocated").next_back().unwrap();
    if history.end.allocated != last {
        problems
            .push(format!("device {}: {} at the end, the trace says {last}", history.device, history.end.allocated));
    }
    problems
}

#[test]
fn real_recordings_lead_to_the_same_figures_another_way() {
    let (mut problems, mut compared) = (Vec::new(), 0);
    let files = recordings();
    for path in &files {
        let recording = match Recording::open(path.as_ref(), &ReadOptions::default()) {
            Ok(recording) => recording,
            Err(error) => {
                let line = error.to_string();
                // A file that is refused is named, with what to do.
                if line.contains('\n') || !line.contains("; ") {
                    problems.push(format!("{path}: {line}"));
                }
                continue;
            }
        };
        let notes = &recording.snapshot.notes;
        let json = (notes.format == Format::ProfilerTrace && !notes.no_totals)
            .then(|| serde_json::from_slice::<Value>(&read_unpacked(path)).unwrap());
        for history in recording.histories.iter().filter(|history| history.anomalies.total() == 0) {
            let found = match (&json, notes.format) {
                (Some(json), _) => compare_trace(json, history),
                // PyTorch 2.0 states no requested sizes of blocks.
                (None, Format::CudaSnapshot) if notes.has_times => compare_snapshot(&recording, history),
                _ => continue,
            };
            compared += 1;
            problems.extend(found.into_iter().map(|problem| format!("{path}: {problem}")));
        }
    }
    assert_none(&problems);
    assert!(files.is_empty() || compared > 20, "only {compared} devices were compared");
}
