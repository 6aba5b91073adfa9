//! What memviz computes, compared with what PyTorch counted while the recordings were made: equal to the byte.
//!
//! A recording is either exact in every respect, or listed in [`PARTIAL`] with the reason, and the rest is still checked.

use crate::support::{self, Case, assert_none, cases, fixture, open};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::facts::time::when::When;
use memviz::replay::{Counters, History, Metric, Track};
use memviz::report::CounterBytes;
use memviz::report::Source;
use memviz::report::peak::json::{self, PeakDevice};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Pinned host memory.
const HOST: i32 = -1;

/// What remains exact for a device whose recording is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Maxima and end are exact, and so is the baseline, as rebuilt from the entries.
    Late,
    /// Maxima and end are exact. The baseline is less than PyTorch's: some of it was freed without an entry.
    LateWithUnrecordedFrees,
    /// Maxima and end are exact. The baseline is that of the first kept entry, which PyTorch did not count.
    LostBeginning,
    /// Only the end is known; the maxima are unknown beyond that.
    OnlyEnd,
    /// As [`Known::OnlyEnd`], although the history has an entry.
    OnlyEndAndAnEntry,
    /// `allocated` is unknown, `active` is its upper bound; everything else is exact.
    AllocatedIsBound,
    /// Pinned host memory, which PyTorch counts in other terms.
    HostMemory,
}

/// Devices without a complete history: case, device, what is known, and why the rest is not.
const PARTIAL: &[(&str, i32, Known, &str)] = &[
    ("no_history", 0, Known::OnlyEnd, "history was never recorded"),
    ("no_history_t201", 0, Known::OnlyEnd, "history was never recorded"),
    ("no_history_t231", 0, Known::OnlyEnd, "history was never recorded"),
    ("multi_gpu_t201", 1, Known::OnlyEnd, "PyTorch 2.0 records the current device alone"),
    ("pinned_only_t215", 0, Known::OnlyEnd, "device memory was not recorded"),
    ("state_only", 0, Known::OnlyEndAndAnEntry, "enabled=\"state\" keeps stacks of blocks, but no history"),
    ("encoder_late", 0, Known::Late, "recording began after the first step"),
    ("gpt_late", 0, Known::Late, "recording began after the first step"),
    ("gpt_late_alloc_only", 0, Known::Late, "recording began after the first step"),
    ("gpt_late_t212", 0, Known::Late, "recording began after the first step"),
    ("gpt_late_t215", 0, Known::Late, "recording began after the first step"),
    ("gpt_late_t231", 0, Known::Late, "recording began after the first step"),
    ("cuda_graph", 0, Known::Late, "recording began after the warm-up"),
    ("cuda_graph_t215", 0, Known::Late, "recording began after the warm-up"),
    ("cuda_graph_t231", 0, Known::Late, "recording began after the warm-up"),
    ("gpt_late_t201", 0, Known::LateWithUnrecordedFrees, "PyTorch 2.0 records no frees of older blocks"),
    ("cuda_graph_t201", 0, Known::LateWithUnrecordedFrees, "PyTorch 2.0 records no frees of older blocks"),
    ("ring", 0, Known::LostBeginning, "max_entries=2000 dropped the beginning"),
    ("paused", 0, Known::LostBeginning, "stopping the recording cleared what was there"),
    ("skip_actions", 0, Known::AllocatedIsBound, "free_requested was not recorded"),
    ("pinned_t215", HOST, Known::HostMemory, "host_memory_stats has other counters"),
    ("pinned_only_t215", HOST, Known::HostMemory, "host_memory_stats has other counters"),
];

/// Cases that run through the real binary as well, next to all of [`PARTIAL`].
#[cfg(feature = "cli")]
const THROUGH_BINARY: &[&str] = &[
    "annotated_t201",
    "big_1m",
    "compiled_fx_t215",
    "conf_roundup_random",
    "empty",
    "expandable",
    "expandable_live_t231",
    "fragmented",
    "gpt_train",
    "llama_hf_all_t215",
    "multi_gpu",
    "oom",
    "oom_caught",
    "protocols",
    "side_stream",
    "tiny_t201",
];

#[test]
fn fixtures_equal_what_pytorch_counted() {
    let cases = cases(support::FIXTURES);
    assert!(cases.len() > 100, "only {} fixtures were found", cases.len());
    let mut check = Check::default();
    for case in &cases {
        check.in_process(case);
    }
    assert_none(&check.problems);
    assert!(check.complete > 90, "only {} devices are exact in every respect", check.complete);
    let unused: Vec<_> = PARTIAL.iter().filter(|row| !check.partial.contains(&(row.0, row.1))).collect();
    assert!(unused.is_empty(), "no fixture is like this any more: {unused:?}");
}

#[test]
fn corpus_equals_what_pytorch_counted() {
    let Some(cases) = support::corpus_cases() else { return };
    let mut check = Check::default();
    for case in &cases {
        check.in_process(case);
    }
    assert_none(&check.problems);
}

#[cfg(feature = "cli")]
#[test]
fn the_binary_says_the_same() {
    let partial = |case: &Case| PARTIAL.iter().any(|row| row.0 == case.name);
    let mut check = Check::default();
    let mut names = BTreeSet::new();
    for case in cases(support::FIXTURES) {
        if partial(&case) || THROUGH_BINARY.contains(&case.name.as_str()) {
            let run = support::memviz(&["peak", "--format", "json", &case.path]);
            assert_eq!(run.stderr, "", "{}", case.path);
            let json = run.json();
            check.case(&case, &from_json(&json));
            for device in json["devices"].as_array().unwrap() {
                let attribution = &device["attribution"];
                let bytes = |row: &Value| row["bytes"].as_u64().unwrap();
                let sum: u64 = attribution["rows"].as_array().unwrap().iter().map(bytes).sum();
                assert_eq!(attribution["total_bytes"], sum, "{}", case.path);
                assert_eq!(device["peak"]["allocated_bytes"], sum, "{}", case.path);
            }
            names.insert(case.name);
        }
    }
    assert_none(&check.problems);
    let missing: Vec<_> = THROUGH_BINARY.iter().filter(|name| !names.contains(**name)).collect();
    assert!(missing.is_empty(), "no such fixtures: {missing:?}");
}

#[cfg(feature = "cli")]
#[test]
fn an_empty_recording_is_not_an_error() {
    for name in ["empty", "empty_t201", "empty_t215", "empty_t231"] {
        let path = fixture(name);
        let text = support::memviz(&["peak", &path]);
        text.expect(0);
        assert_eq!(text.stdout, format!("{path}: no GPU memory was allocated while recording, or recording was off\n"));
        let json = support::memviz(&["peak", "--format", "json", &path]).json();
        assert_eq!(json["devices"], Value::Array(Vec::new()), "{path}");
        assert_eq!(json["input"]["complete_history"], false, "{path}: recording may have been off");
        support::memviz(&["info", &path]).expect(0);
    }
}

/// `ring` is the program of `gpt_train` with the first 7107 entries dropped, so the baseline that memviz infers can be
/// compared with the known history.
#[test]
fn a_lost_beginning_is_rebuilt() {
    let [whole, ring] = ["gpt_train", "ring"].map(|name| open(&fixture(name)));
    let [whole_history, ring_history] = [&whole.histories[0], &ring.histories[0]];
    let lost = whole_history.entries() - ring_history.entries();
    assert_eq!(lost, 7107);
    assert_eq!(ring_history.start, Track::new(&whole.snapshot, whole_history).counters_at(lost));
    let mut expected = Vec::new();
    Track::new(&whole.snapshot, whole_history).walk(|instant, counters| {
        if instant > lost {
            expected.push(*counters);
        }
    });
    let mut found = Vec::new();
    Track::new(&ring.snapshot, ring_history).walk(|_, counters| found.push(*counters));
    assert_eq!(found.len(), 2000);
    assert_eq!(found.iter().zip(&expected).position(|(found, expected)| found != expected), None);
}

/// `paused` stops between two steps, and every step of its program leaves the same memory behind.
#[test]
fn a_paused_recording_starts_where_a_step_ended() {
    let paused = open(&fixture("paused"));
    assert_eq!(paused.histories[0].start.allocated, paused.histories[0].end.allocated);
}

/// The answer of memviz about one device.
#[derive(Clone, Debug)]
struct Answer {
    device: i32,
    complete: bool,
    baseline: i64,
    /// Not part of the JSON.
    baseline_reserved: Option<i64>,
    maxima: Counters,
    end: Counters,
    notes: Vec<String>,
    bounds: BTreeMap<String, String>,
    /// Sum over power-of-two sizes of the largest number of bytes active in that size. Not part of the JSON.
    active_peaks_by_size: Option<i64>,
}

/// The answer of memviz about one file.
#[derive(Clone, Debug)]
struct Answers {
    entries: u64,
    anomalies: u64,
    complete: bool,
    notes: Vec<String>,
    devices: Vec<Answer>,
}

fn answers(case: &Case, recording: &Recording) -> Answers {
    let report = recording.peak(&PeakOptions::default()).unwrap_or_else(|error| panic!("{}: {error}", case.path));
    let devices = report.devices.iter().map(|device| {
        let history = recording.history(device.device).unwrap();
        let written = PeakDevice::of(device);
        Answer {
            device: device.device,
            complete: device.completeness.is_complete(),
            baseline: written.baseline_bytes,
            baseline_reserved: Some(device.baseline.reserved),
            maxima: counters(&written.maxima),
            end: device.end,
            notes: written.notes,
            bounds: written.bounds.into_iter().map(|(metric, bound)| (metric, bound.name().to_owned())).collect(),
            active_peaks_by_size: Some(active_peaks_by_size(history)),
        }
    });
    let source = Source { path: &case.path, recording };
    Answers {
        entries: recording.histories.iter().map(|history| u64::from(history.entries())).sum(),
        anomalies: recording.anomalies(),
        complete: recording.is_complete(),
        notes: json::peak(source, &report).input.notes,
        devices: devices.collect(),
    }
}

fn counters(bytes: &CounterBytes) -> Counters {
    Counters {
        allocated: bytes.allocated_bytes,
        active: bytes.active_bytes,
        requested: bytes.requested_bytes,
        reserved: bytes.reserved_bytes,
    }
}

#[cfg(feature = "cli")]
fn from_json(json: &Value) -> Answers {
    let counters = |values: &Value| {
        let bytes = |metric: &str| values[format!("{metric}_bytes")].as_i64().expect("an integer");
        Counters {
            allocated: bytes("allocated"),
            active: bytes("active"),
            requested: bytes("requested"),
            reserved: bytes("reserved"),
        }
    };
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").iter().map(text).collect::<Vec<_>>();
    let devices = json["devices"].as_array().expect("a list").iter().map(|device| {
        let bounds = device.get("bounds").and_then(Value::as_object).into_iter().flatten();
        Answer {
            device: device["device"].as_i64().expect("an integer") as i32,
            complete: device["complete_history"].as_bool().expect("a boolean"),
            baseline: device["baseline_bytes"].as_i64().expect("an integer"),
            baseline_reserved: None,
            maxima: counters(&device["maxima"]),
            end: counters(&device["end"]),
            notes: list(&device["notes"]),
            bounds: bounds.map(|(metric, bound)| (metric.clone(), text(bound))).collect(),
            active_peaks_by_size: None,
        }
    });
    let input = &json["input"];
    Answers {
        entries: input["entries"].as_u64().expect("an integer"),
        anomalies: input["anomalies"]["total"].as_u64().expect("an integer"),
        complete: input["complete_history"].as_bool().expect("a boolean"),
        notes: list(&input["notes"]),
        devices: devices.collect(),
    }
}

/// PyTorch's host allocator counts each power of two on its own, and the peak it reports is the sum of their peaks,
/// reached at different times (`getStats` in `CachingHostAllocator.h`).
fn active_peaks_by_size(history: &History) -> i64 {
    let mut changes: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
    for allocation in &history.allocations {
        let of_size = changes.entry(allocation.size.next_power_of_two().trailing_zeros()).or_default();
        of_size.push((allocation.born, allocation.size as i64));
        of_size.push((allocation.completed, -(allocation.size as i64)));
    }
    let peak = |changes: &mut Vec<(u32, i64)>| {
        changes.sort_unstable();
        let running = changes.iter().scan(0, |active, &(_, bytes)| {
            *active += bytes;
            Some(*active)
        });
        running.max().unwrap_or(0)
    };
    changes.values_mut().map(peak).sum()
}

/// Collects what does not agree.
#[derive(Debug, Default)]
struct Check {
    problems: Vec<String>,
    /// Devices that are exact in every respect.
    complete: usize,
    /// Rows of [`PARTIAL`] that were met.
    partial: BTreeSet<(&'static str, i32)>,
}

impl Check {
    /// Checks the results of the library. A recording is opened once for everything, since that takes most of the time.
    fn in_process(&mut self, case: &Case) {
        let recording = open(&case.path);
        self.case(case, &answers(case, &recording));
        rows_sum_to_the_counter(case, &recording, &mut self.problems);
    }

    fn case(&mut self, case: &Case, answers: &Answers) {
        let truth = &case.truth;
        self.equal(case, "anomalies", answers.anomalies, 0);
        // Allocator settings are part of a snapshot since PyTorch 2.3, and needed where entries are replayed.
        let torch = truth["torch"].as_str().unwrap();
        let without = answers.entries > 0 && ["2.0.", "2.1."].iter().any(|old| torch.starts_with(old));
        let expected = without.then_some("settings were not recorded");
        let as_expected = match expected {
            Some(part) => answers.notes.len() == 1 && answers.notes[0].contains(part),
            None => answers.notes.is_empty(),
        };
        if !as_expected {
            self.problems.push(format!("{}: expected {expected:?} noted, found {:?}", case.path, answers.notes));
        }
        // Without entries, recording may have been off.
        let all_complete = answers.entries > 0 && answers.devices.iter().all(|answer| answer.complete);
        self.equal(case, "completeness of the file", answers.complete, all_complete);
        if case.own_truth && !answers.devices.iter().any(|answer| answer.device == HOST) {
            let entries = truth["trace_entries"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
            self.equal(case, "entries", answers.entries, entries);
        }
        let devices = truth["devices"].as_array().unwrap();
        for (device, counted) in devices.iter().enumerate() {
            let stats = &counted["memory_stats"];
            let answer = answers.devices.iter().find(|answer| answer.device == device as i32);
            let unused = Metric::ALL.iter().all(|&metric| stat(stats, metric, "peak") == 0);
            match answer {
                Some(_) if unused => self.problems.push(format!("{}: device {device} was not used", case.path)),
                None if !unused => self.problems.push(format!("{}: device {device} is missing", case.path)),
                None => {}
                Some(answer) => {
                    let baseline = |key: &str| truth[key][device].as_i64().unwrap();
                    let counted = Counted {
                        peak: of_each(|metric| stat(stats, metric, "peak")),
                        current: of_each(|metric| stat(stats, metric, "current")),
                        baseline: baseline("baseline_allocated"),
                        baseline_reserved: baseline("baseline_reserved"),
                    };
                    self.device(case, answer, &counted);
                }
            }
        }
        for answer in answers.devices.iter().filter(|answer| !(0..devices.len() as i32).contains(&answer.device)) {
            match self.known(case, answer.device) {
                Some(Known::HostMemory) => self.host_memory(case, answer),
                _ => self.problems.push(format!("{}: device {} is not in the truth", case.path, answer.device)),
            }
        }
    }

    fn known(&mut self, case: &Case, device: i32) -> Option<Known> {
        let row = PARTIAL.iter().find(|row| row.0 == case.name && row.1 == device)?;
        self.partial.insert((row.0, row.1));
        Some(row.2)
    }

    fn equal<T: Copy + PartialEq + std::fmt::Debug>(&mut self, case: &Case, what: &str, found: T, expected: T) {
        if found != expected {
            self.problems.push(format!("{}: {what}: expected {expected:?}, found {found:?}", case.path));
        }
    }

    fn holds(&mut self, case: &Case, answer: &Answer, what: &str, holds: bool) {
        if !holds {
            self.problems.push(format!("{}: not so: {what}, in {answer:?}", case.path));
        }
    }

    fn device(&mut self, case: &Case, answer: &Answer, counted: &Counted) {
        let known = self.known(case, answer.device);
        let name = |what: &str| format!("device {} {what}", answer.device);
        self.equal(case, &name("complete"), answer.complete, known.is_none());

        // The values that an upper bound allows are checked below.
        let mut end = answer.end;
        let mut maxima = answer.maxima;
        if known == Some(Known::AllocatedIsBound) {
            end.allocated = counted.current.allocated;
            maxima.allocated = counted.peak.allocated;
        }
        self.equal(case, &name("end"), end, counted.current);
        if !matches!(known, Some(Known::OnlyEnd | Known::OnlyEndAndAnEntry)) {
            self.equal(case, &name("maxima"), maxima, counted.peak);
        }

        let noted = |part: &str| answer.notes.iter().any(|note| note.contains(part));
        let bounded = |metric: &str| answer.bounds.get(metric).map(String::as_str);
        match known {
            None => {
                self.complete += 1;
                self.equal(case, &name("baseline"), (answer.baseline, counted.baseline), (0, 0));
                self.equal(case, &name("notes"), answer.notes.len(), 0);
                self.equal(case, &name("bounds"), answer.bounds.len(), 0);
            }
            Some(Known::Late) => {
                self.holds(case, answer, "it says so", noted("incomplete history"));
                self.equal(case, &name("baseline"), answer.baseline, counted.baseline);
                if let Some(reserved) = answer.baseline_reserved {
                    self.equal(case, &name("baseline reserved"), reserved, counted.baseline_reserved);
                }
                self.bounds_are_in_words(case, answer);
            }
            Some(Known::LateWithUnrecordedFrees) => {
                self.holds(case, answer, "it says so", noted("incomplete history") && noted("lower bound"));
                let less = 0 < answer.baseline && answer.baseline < counted.baseline;
                self.holds(case, answer, "the baseline is a lower bound", less);
                self.equal(case, &name("bound of the baseline"), bounded("baseline_bytes"), Some("lower"));
            }
            Some(Known::LostBeginning) => {
                self.holds(case, answer, "it says so", noted("incomplete history"));
                self.holds(case, answer, "something was there at the first kept entry", answer.baseline > 0);
                self.bounds_are_in_words(case, answer);
            }
            Some(Known::OnlyEnd | Known::OnlyEndAndAnEntry) => {
                let entry = known == Some(Known::OnlyEndAndAnEntry);
                let note = if entry { "incomplete history" } else { "no history was recorded" };
                self.holds(case, answer, "it says so", noted(note));
                self.equal(case, &name("baseline"), answer.baseline, answer.end.allocated);
                for metric in Metric::ALL {
                    let range = answer.end.get(metric)..=counted.peak.get(metric);
                    let inside = range.contains(&answer.maxima.get(metric));
                    self.holds(case, answer, "maxima lie between the end and PyTorch's", inside);
                }
            }
            Some(Known::AllocatedIsBound) => {
                self.holds(case, answer, "it says so", noted("free_requested was not recorded"));
                self.equal(case, &name("baseline"), answer.baseline, 0);
                self.equal(case, &name("bound of allocated"), bounded("allocated_bytes"), Some("upper"));
                self.equal(case, &name("number of bounds"), answer.bounds.len(), 1);
                self.equal(case, &name("end allocated"), answer.end.allocated, answer.end.active);
                self.equal(case, &name("maximum allocated"), answer.maxima.allocated, answer.maxima.active);
                let above = answer.maxima.allocated >= counted.peak.allocated;
                self.holds(case, answer, "allocated is an upper bound", above);
            }
            Some(Known::HostMemory) => {
                self.problems.push(format!("{}: device {} is no host memory", case.path, answer.device));
            }
        }
    }

    /// Bounds of an uncertain baseline are in JSON exactly if they are in the text.
    fn bounds_are_in_words(&mut self, case: &Case, answer: &Answer) {
        let bound = |holds: bool| holds.then_some("lower");
        let words = answer
            .notes
            .iter()
            .find(|note| note.contains("the figure for the memory allocated at the start of the recording may be"));
        let of_peak = words.is_some_and(|note| !note.contains("the peak of the recorded part is exact"));
        let expected = [("baseline_bytes", words.is_some()), ("allocated_bytes", of_peak), ("active_bytes", of_peak)];
        for (key, holds) in expected {
            let found = answer.bounds.get(key).map(String::as_str);
            self.equal(case, &format!("device {} bound of {key}", answer.device), found, bound(holds));
        }
    }

    /// What PyTorch calls `allocated_bytes` of the host is what memviz calls reserved.
    fn host_memory(&mut self, case: &Case, answer: &Answer) {
        let stats = &case.truth["host_memory_stats"];
        let stat = |name: &str| stats[name].as_i64().unwrap_or_else(|| panic!("{}: no {name}", case.path));
        self.equal(case, "host complete", answer.complete, true);
        self.equal(case, "host baseline", answer.baseline, 0);
        self.equal(case, "host reserved at the end", answer.end.reserved, stat("allocated_bytes.current"));
        self.equal(case, "host reserved maximum", answer.maxima.reserved, stat("allocated_bytes.peak"));
        self.equal(case, "host active at the end", answer.end.active, stat("active_bytes.current"));
        self.holds(case, answer, "the peak is no sum of peaks", answer.maxima.active <= stat("active_bytes.peak"));
        if let Some(peaks) = answer.active_peaks_by_size {
            self.equal(case, "sum of the peaks of each size", peaks, stat("active_bytes.peak"));
        }
    }
}

/// What PyTorch counted on one device.
struct Counted {
    peak: Counters,
    current: Counters,
    baseline: i64,
    baseline_reserved: i64,
}

/// `<metric>_bytes.all.<what>`; devices that were never used have no statistics at all.
fn stat(stats: &Value, metric: Metric, what: &str) -> i64 {
    let touched = stats.as_object().is_some_and(|stats| !stats.is_empty());
    let name = format!("{}_bytes.all.{what}", metric.name());
    let value = stats[&name].as_i64();
    assert!(value.is_some() || !touched, "the truth lacks {name}");
    value.unwrap_or(0)
}

fn of_each(value: impl Fn(Metric) -> i64) -> Counters {
    Counters {
        allocated: value(Metric::Allocated),
        active: value(Metric::Active),
        requested: value(Metric::Requested),
        reserved: value(Metric::Reserved),
    }
}

const GROUPS: [GroupBy; 8] = [
    GroupBy::Site,
    GroupBy::Stack,
    GroupBy::Function,
    GroupBy::File,
    GroupBy::Module,
    GroupBy::Stream,
    GroupBy::Pool,
    GroupBy::Annotation,
];

/// Reserved memory is held by segments, everything else by blocks: two ways to rows, each used by every group.
fn rows_sum_to_the_counter(case: &Case, recording: &Recording, problems: &mut Vec<String>) {
    for metric in Metric::ALL {
        for by in GROUPS {
            if by == GroupBy::Site || matches!(metric, Metric::Allocated | Metric::Reserved) {
                rows_sum(case, recording, &PeakOptions::default().metric(metric).by(by), problems);
            }
        }
        let at_end = PeakOptions::default().metric(metric).at(Some(When::End)).top(Some(2));
        rows_sum(case, recording, &at_end, problems);
    }
}

fn rows_sum(case: &Case, recording: &Recording, options: &PeakOptions, problems: &mut Vec<String>) {
    let (metric, by, top) = (options.metric, options.by, options.top);
    let report = match recording.peak(options) {
        Ok(report) => report,
        Err(error) => {
            let of_code = matches!(by, GroupBy::Stack | GroupBy::Function | GroupBy::File | GroupBy::Module);
            let may_lack = matches!(by, GroupBy::Stream | GroupBy::Pool | GroupBy::Annotation)
                || (of_code && recording.snapshot.stacks.frame_count() == 0);
            assert!(may_lack && error.to_string().contains(", which --by "), "{}: {error}", case.path);
            return;
        }
    };
    for device in &report.devices {
        let attribution = &device.attribution;
        let total = attribution.total_bytes;
        let mut hold = |holds: bool, what: &str| {
            if !holds {
                let place = format!("{} device {}", case.path, device.device);
                problems.push(format!("{place}: {} by {}: {what}", metric.name(), by.name()));
            }
        };
        hold(i64::try_from(total) == Ok(device.at.get(metric)), "the total is the counter at the instant");
        let rows = &attribution.rows;
        let sum: u64 = rows.iter().map(|row| row.bytes).sum();
        if by.is_inclusive() {
            hold(rows.iter().all(|row| row.bytes <= total), "no row exceeds the total");
            hold(sum >= total, "inclusive rows cover the total");
        } else {
            hold(sum == total, &format!("rows sum to {sum}, not to the total of {total}"));
        }
        hold(rows.iter().all(|row| row.blocks > 0 && !row.label.is_empty()), "rows have blocks and a label");
        let named = if top.is_some_and(|top| rows.len() > top) { &rows[..rows.len() - 1] } else { &rows[..] };
        hold(named.is_sorted_by(|a, b| a.bytes >= b.bytes), "the largest row comes first");
        let labels: BTreeSet<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        hold(by == GroupBy::Stack || labels.len() == rows.len(), "labels differ");
    }
}
