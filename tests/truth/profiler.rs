//! Profiler traces and memory timelines against what PyTorch itself counted, and against a plain reading of the JSON.

use crate::support::{self, CORPUS, assert_none, corpus, names, open, read_text, read_unpacked};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::BASELINE;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::attribution::Row;
use memviz::model::profile::CATEGORIES;
use memviz::model::{CPU_DEVICE, DeviceId, Format};
use memviz::replay::{History, Metric};
use memviz::replay::{NO_OPERATOR, Track};
use rayon::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Traces that belong to the repository.
const TRACES: &str = "fixtures/traces";

/// A trace, what PyTorch reported about it, and the same JSON read by another reader.
struct Trace {
    stem: String,
    truth: Value,
    recording: Recording,
    /// `[memory]` events in chronological order, read by another reader.
    events: Vec<Value>,
}

impl Trace {
    fn open(folder: &str, name: &str) -> Self {
        let path = format!("{folder}/{name}.trace.json.gz");
        let mut json: Value = serde_json::from_slice(&read_unpacked(&path)).unwrap();
        let Value::Array(mut events) = json["traceEvents"].take() else { panic!("{path} has no events") };
        events.retain(|event| event["name"] == "[memory]");
        events.sort_by(|a, b| a["ts"].as_f64().unwrap().total_cmp(&b["ts"].as_f64().unwrap()));
        Self {
            stem: format!("{folder}/{name}"),
            truth: serde_json::from_str(&read_text(&format!("{folder}/truth_{name}.json"))).unwrap(),
            recording: open(&path),
            events,
        }
    }

    /// `[memory]` events of a device: signed bytes, total allocated, total reserved.
    fn events(&self, device: DeviceId) -> Vec<(i64, i64, i64)> {
        let device_type = i64::from(device != CPU_DEVICE);
        let events = self.events.iter().filter(|event| event["args"]["Device Type"] == device_type);
        let number = |event: &Value, key: &str| event["args"][key].as_i64().unwrap();
        let figures =
            |event: &Value| (number(event, "Bytes"), number(event, "Total Allocated"), number(event, "Total Reserved"));
        events.map(figures).collect()
    }

    /// The device that the profiled program ran on.
    fn device(&self) -> DeviceId {
        if self.truth["where"] == "cpu" { CPU_DEVICE } else { 0 }
    }

    fn history(&self) -> &History {
        self.recording.history(self.device()).expect("the device was recorded")
    }

    /// Whether the trace has times below a microsecond, so that nothing is ambiguous.
    fn is_fine(&self) -> bool {
        !self.recording.snapshot.notes.coarse_times
    }
}

/// Every trace of the repository and of the corpus, opened once.
static ALL: LazyLock<Vec<Trace>> = LazyLock::new(|| {
    let mut found = Vec::new();
    for folder in folders() {
        for file in names(&folder) {
            let Some(name) = file.strip_suffix(".trace.json.gz") else { continue };
            if !is_in_corpus(&format!("{folder}/{file}")) {
                found.push((folder.clone(), name.to_owned()));
            }
        }
    }
    found.par_iter().map(|(folder, name)| Trace::open(folder, name)).collect()
});

/// Whether the corpus has a trace of the repository, with more files next to it.
fn is_in_corpus(path: &str) -> bool {
    let twin = path.replacen(TRACES, CORPUS, 1);
    twin != path && fs::read(twin).is_ok_and(|bytes| bytes == fs::read(path).unwrap())
}

/// Looks at every trace.
fn for_each_trace(check: impl Fn(&Trace) -> Vec<String> + Sync) {
    assert!(ALL.len() >= 5, "only {} traces were found", ALL.len());
    let problems = |trace: &Trace| -> Vec<String> {
        check(trace).into_iter().map(|problem| format!("{}: {problem}", trace.stem)).collect()
    };
    assert_none(&ALL.par_iter().flat_map_iter(problems).collect::<Vec<_>>());
}

fn folders() -> Vec<String> {
    let roots = [Some(TRACES), corpus()].into_iter().flatten();
    let folders = |root| names(root).into_iter().map(move |name| format!("{root}/{name}"));
    roots.flat_map(folders).filter(|folder| folder.contains("/profiler_traces")).collect()
}

/// A problem, if two values differ.
#[allow(clippy::needless_pass_by_value, reason = "most values are made for the call")]
fn differ<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, truth: T) -> Option<String> {
    (ours != truth).then(|| format!("{what}: {ours:?}, but PyTorch says {truth:?}"))
}

#[test]
fn maxima_and_ends_are_those_of_pytorch() {
    for_each_trace(|trace| {
        let mut problems: Vec<Option<String>> = Vec::new();
        assert_eq!(trace.recording.snapshot.notes.format, Format::ProfilerTrace);
        problems.push(differ("anomalies", trace.recording.anomalies(), 0));
        let events = trace.truth["memory_events"].as_u64().unwrap();
        let ours = trace.recording.histories.iter().map(|history| {
            let counts = Track::new(&trace.recording.snapshot, history).action_counts();
            counts[0] + counts[2]
        });
        problems.push(differ("memory events", ours.sum(), events));
        if trace.device() == 0 {
            let (history, truth) = (trace.history(), |key: &str| trace.truth[key].as_i64().unwrap());
            let maximum = |metric: Metric| history.maxima[metric as usize].bytes;
            problems.push(differ("max_memory_allocated", maximum(Metric::Allocated), truth("max_memory_allocated")));
            problems.push(differ("memory_allocated", history.end.allocated, truth("memory_allocated")));
            problems.push(differ("memory_reserved", history.end.reserved, truth("memory_reserved")));
            let reserved = trace.events(0).into_iter().map(|(_, _, reserved)| reserved).max().unwrap();
            problems.push(differ("max reserved", maximum(Metric::Reserved), reserved));
        }
        problems.into_iter().flatten().collect()
    });
}

#[test]
fn counters_follow_the_totals_of_the_trace() {
    for_each_trace(|trace| {
        let mut problems = Vec::new();
        for history in &trace.recording.histories {
            let events = trace.events(history.device);
            let (bytes, allocated, reserved) = events[0];
            let start = (history.start.allocated, history.start.reserved);
            // Totals of the CPU go on from earlier sessions, and never lose what was freed in between.
            let before = if history.device < 0 { (allocated - bytes - start.0).max(0) } else { 0 };
            problems.extend(differ("baseline", start, (allocated - bytes - before, reserved)));
            let mut totals = events.into_iter();
            Track::new(&trace.recording.snapshot, history).walk(|instant, counters| {
                // Changes of reserved memory are separate entries, right before the event that shows them.
                let entry = history.rows.start + instant as usize - 1;
                if history.allocation_of(instant - 1).is_some() {
                    let (_, allocated, reserved) = totals.next().unwrap();
                    let ours = (counters.allocated, counters.reserved);
                    problems.extend(differ(&format!("totals after row {entry}"), ours, (allocated - before, reserved)));
                }
            });
            problems.extend(differ("events left over", totals.count(), 0));
        }
        problems
    });
}

#[test]
fn operators_add_up_to_key_averages() {
    for_each_trace(|trace| {
        let mut problems = Vec::new();
        for history in &trace.recording.histories {
            // Whatever the resolution of the clock, every byte is somewhere.
            let operators = &history.operators;
            let own: i64 = operators.iter().map(|operator| operator.usage.self_increase).sum();
            let moved = trace.events(history.device).iter().map(|(bytes, _, _)| bytes).sum();
            problems.extend(differ("self increase of all operators", own, moved));
            let allocations: u64 = operators.iter().map(|operator| operator.usage.self_allocations).sum();
            let made = Track::new(&trace.recording.snapshot, history).action_counts()[0];
            problems.extend(differ("self allocations of all operators", allocations, made));
            if !trace.is_fine() {
                continue;
            }
            let kind = if history.device == CPU_DEVICE { "cpu" } else { "device" };
            let rows = trace.truth["key_averages"].as_array().unwrap();
            let mut compared = 0;
            for operator in operators.iter().filter(|operator| operator.name != NO_OPERATOR) {
                let Some(row) = rows.iter().find(|row| row["key"] == operator.name.as_str()) else {
                    problems.push(format!("key_averages has no {}", operator.name));
                    continue;
                };
                let ours = (operator.usage.increase, operator.usage.self_increase, operator.calls as i64);
                let truth = |key: String| row[key].as_i64().unwrap();
                // PyTorch 2.15 attributes everything that aten::bmm allocates to a callee, which it neither exports nor
                // lists.
                let is_hidden = operator.name == "aten::bmm" && kind == "device" && trace.stem.contains("_t215");
                let ours = if is_hidden { (ours.0, ours.1 - ours.0, ours.2) } else { ours };
                let truth = (
                    truth(format!("{kind}_memory_usage")),
                    truth(format!("self_{kind}_memory_usage")),
                    truth("count".to_owned()),
                );
                problems.extend(differ(&operator.name, ours, truth));
                compared += 1;
            }
            let is_main = history.device == trace.device();
            problems.extend((is_main && compared < 50).then(|| format!("only {compared} operators were compared")));
        }
        problems
    });
}

#[test]
fn memory_has_a_line_or_an_operator() {
    for_each_trace(|trace| {
        let device = trace.device();
        let mut problems = Vec::new();
        for by in [GroupBy::Site, GroupBy::Operator] {
            let options = PeakOptions::default().devices(vec![device]).by(by);
            let report = trace.recording.peak(&options).unwrap();
            let peak = &report.devices[0];
            let rows = &peak.attribution.rows;
            let bytes =
                |keep: &dyn Fn(&Row) -> bool| -> u64 { rows.iter().filter(|row| keep(row)).map(|row| row.bytes).sum() };
            problems.extend(differ("sum of rows", bytes(&|_| true) as i64, peak.at.allocated));
            // The origin of memory from before the trace is unknown.
            let known = bytes(&|row| row.label != BASELINE);
            let charged = match by {
                GroupBy::Site => bytes(&|row| row.label.contains(".py:")),
                _ => bytes(&|row| row.label.starts_with("aten::")),
            };
            if charged * 100 < known * 95 {
                problems.push(format!("{charged} of {known} bytes are charged by {}", by.name()));
            }
            if by == GroupBy::Site {
                let backward = bytes(&|row| row.label.starts_with("backward of minigpt.py:"));
                problems.extend((backward * 10 < known).then(|| format!("backward holds only {backward}")));
                problems.extend(rows.iter().any(|row| row.inferred).then(|| "a row is inferred".to_owned()));
            }
        }
        problems
    });
}

#[test]
fn backward_lines_are_those_of_their_forward_operators() {
    // The gradient of the token embedding, 2000 rows of 128 floats, can come from one line only.
    let recording = open(&format!("{TRACES}/profiler_traces/fake_cuda_modules.trace.json.gz"));
    let options = PeakOptions::default().devices(vec![0]).by(GroupBy::Stack);
    let report = recording.peak(&options).unwrap();
    let rows = &report.devices[0].attribution.rows;
    let row = rows.iter().find(|row| row.stack.iter().any(|frame| frame == "EmbeddingBackward0")).unwrap();
    assert_eq!((row.bytes, row.label.as_str()), (1_024_000, "backward of minigpt.py:69 hidden"));
    let inner = ["aten::empty", "aten::zeros", "aten::embedding_dense_backward", "aten::embedding_backward"];
    let node = ["EmbeddingBackward0", "autograd::engine::evaluate_function: EmbeddingBackward0", "(backward)"];
    assert_eq!(row.stack[..7], [&inner[..], &node[..]].concat());
    assert_eq!(row.stack[7], "aten::embedding");
    assert!(row.stack.contains(&"nn.Module: Embedding_0".to_owned()), "{:?}", row.stack);

    let options = PeakOptions::default().devices(vec![0]).by(GroupBy::NnModule);
    let report = recording.peak(&options).unwrap();
    let embedding = report.devices[0].attribution.rows.iter().find(|row| row.label == "GPT_0 / Embedding_0").unwrap();
    assert_eq!(embedding.bytes, 1_024_000);
}

#[test]
fn timelines_agree_with_the_trace() {
    for_each_trace(|trace| {
        let path = format!("{}.timeline.raw.json.gz", trace.stem);
        if !Path::new(&path).exists() {
            return Vec::new();
        }
        let mut problems = Vec::new();
        let raw = open(&path);
        let sums = open(&format!("{}.timeline.json.gz", trace.stem));
        assert_eq!(raw.snapshot.notes.format, Format::MemoryTimeline);
        let json: Vec<(i64, i64, i64, usize)> = serde_json::from_slice(&read_unpacked(&path)).unwrap();
        let changes = |history: &History, recording: &Recording| -> Vec<i64> {
            let mut before = history.start.allocated;
            let mut changes = Vec::new();
            Track::new(&recording.snapshot, history).walk(|_, now| {
                changes.push(now.allocated - before);
                before = now.allocated;
            });
            changes
        };
        // Every event of the trace is one of the timeline; a timeline moves bytes between categories besides.
        let theirs: Vec<i64> = json.iter().filter(|step| step.1 == 2 || step.1 == 4).map(|step| step.2).collect();
        let mut ours = changes(trace.history(), &trace.recording);
        ours.retain(|&change| change != 0);
        problems.extend(differ("changes", ours, theirs));
        let all: Vec<i64> = json.iter().filter(|step| step.0 >= 0).map(|step| step.2).collect();
        problems.extend(differ("steps of the timeline", changes(&raw.histories[0], &raw), all));
        let rise = |history: &History| history.maxima[0].bytes - history.start.allocated;
        problems.extend(differ("rise to the peak", rise(&raw.histories[0]), rise(trace.history())));

        let (times, rows): (Vec<i64>, Vec<Vec<i64>>) =
            serde_json::from_slice(&read_unpacked(&format!("{}.timeline.json.gz", trace.stem))).unwrap();
        let highest = rows.iter().map(|row| row.iter().sum()).max().unwrap();
        problems.extend(differ("highest sum", sums.histories[0].maxima[0].bytes, highest));
        problems.extend(differ("last sum", sums.histories[0].end.allocated, rows.last().unwrap().iter().sum()));
        problems.extend(differ("ends", sums.histories[0].end.allocated, raw.histories[0].end.allocated));
        assert_eq!(times.len(), rows.len());
        // At the peak, every category holds the value of the last row of sums up to that point.
        let highest_row = rows.iter().find(|row| row.iter().sum::<i64>() == highest).unwrap();
        let mut at_peak = [0; 8];
        for &(_, _, bytes, category) in &json {
            at_peak[category] += bytes;
            if at_peak.iter().sum::<i64>() == raw.histories[0].maxima[0].bytes {
                break;
            }
        }
        for (recording, truth) in [(&raw, &at_peak[..]), (&sums, &highest_row[1..])] {
            problems.extend(differ("anomalies", recording.anomalies(), 0));
            let report = recording.peak(&PeakOptions::default()).unwrap();
            let rows = &report.devices[0].attribution.rows;
            let held = CATEGORIES.iter().map(|category| rows.iter().find(|row| row.label == *category));
            let held: Vec<i64> = held.map(|row| row.map_or(0, |row| row.bytes as i64)).collect();
            problems.extend(differ("categories at the peak", &held[..], truth));
        }
        problems
    });
}

#[cfg(feature = "cli")]
#[test]
fn every_command_answers_or_says_why_not() {
    let path = format!("{TRACES}/profiler_traces/fake_cuda_modules.trace.json.gz");
    let raw = format!("{TRACES}/profiler_traces/fake_cuda_modules.timeline.raw.json.gz");
    let sums = format!("{TRACES}/profiler_traces/fake_cuda_modules.timeline.json.gz");
    for (path, format) in [(&path, "profiler_trace"), (&raw, "memory_timeline"), (&sums, "memory_timeline")] {
        for command in ["info", "peak"] {
            let answer = support::memviz(&[command, path, "--format", "json"]).json();
            assert_eq!(answer["input"]["format"], format);
            for format in ["text", "csv", "markdown"] {
                support::memviz(&[command, path, "--format", format, "--strict"]).expect(0);
            }
        }
        for format in ["svg", "markdown", "html"] {
            let report = support::memviz(&["report", path, "--format", format]);
            assert!(report.expect(0).stdout.contains("not recorded"), "{format}");
        }
        support::memviz(&["timeline", path]).expect(0);
        support::memviz(&["flamegraph", path, "--format", "folded"]).expect(0);
        support::memviz(&["fragmentation", path]).expect_error("records no segments");
    }
    let answer = support::memviz(&["peak", &path, "--by", "operator", "--device", "0", "--format", "json"]).json();
    let operators = answer["devices"][0]["operators"].as_array().unwrap();
    assert_eq!(operators[0]["name"], "aten::mm");
    assert_eq!(operators[0]["self_allocation_count"], 57);
    assert_eq!(answer["devices"][0]["bounds"]["requested_bytes"], "unknown");
    let snapshot = support::fixture("tiny");
    support::memviz(&["peak", &snapshot, "--by", "operator"]).expect_error("which --by operator needs");
    let answer = support::memviz(&["peak", &snapshot, "--format", "json"]).json();
    assert!(answer["devices"][0].get("operators").is_none());
}
