//! Whatever a file loses, the rest never meets a budget that the whole exceeds: the budget is exceeded, or the answer is
//! unknown, or the file is refused.

use super::program::{leaking, pickle, whole};
use crate::support::{assert_none, read_unpacked};
use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckOptions, CheckReport, CheckVerdict, EarlierRun, Tolerance};
use memviz::input::ReadOptions;
use memviz::wire::answers::read_answers;
use serde_json::{Value, json};
use std::io::Cursor;

fn read(bytes: &[u8], allow_truncated: bool) -> Option<Recording> {
    let mut options = ReadOptions::default();
    (options.on_one_thread, options.allow_truncated) = (true, allow_truncated);
    Recording::read(Cursor::new(bytes.to_vec()), &options).ok()
}

/// One budget of each kind.
fn kinds(recording: &Recording, limits: &Limits) -> Vec<Budgets> {
    let base = || Budgets::default().devices(vec![recording.histories.first().map_or(0, |history| history.device)]);
    let mut all = vec![base().max_peak(Some(limits.peak))];
    all.extend(limits.reserved.map(|bytes| base().max_reserved(Some(bytes))));
    all.extend(limits.leak.map(|bytes| base().max_leak(Some(bytes))));
    all.extend(limits.fragmentation.map(|percent| base().max_fragmentation(Some(percent.parse().unwrap()))));
    all.extend(limits.sites.iter().map(|site| base().max_sites(vec![site.parse().unwrap()])));
    all.extend(limits.residues.iter().map(|residue| base().max_residues(vec![residue.parse().unwrap()])));
    all.extend(limits.baseline.clone().map(|earlier| base().baseline(Some(earlier)).tolerance(Tolerance::default())));
    all
}

/// What the whole exceeds.
#[derive(Clone, Default)]
struct Limits {
    peak: u64,
    reserved: Option<u64>,
    leak: Option<u64>,
    fragmentation: Option<&'static str>,
    sites: Vec<&'static str>,
    residues: Vec<&'static str>,
    baseline: Option<EarlierRun>,
}

fn verdicts(recording: &Recording, limits: &Limits) -> Vec<(String, CheckVerdict)> {
    let judged =
        |budgets: Budgets| -> CheckReport { recording.check(&CheckOptions::default().budgets(vec![budgets]).top(1)) };
    let reports = kinds(recording, limits).into_iter().map(judged);
    reports.flat_map(|report| report.checks).map(|check| (format!("{:?}", check.kind), check.verdict)).collect()
}

/// Judges the rest of a file; a met budget is a problem.
struct Losses {
    limits: Limits,
    allow_truncated: bool,
    problems: Vec<String>,
    judged: usize,
}

impl Losses {
    fn of(bytes: &[u8], limits: Limits) -> Self {
        let whole = read(bytes, false).unwrap();
        let failed = verdicts(&whole, &limits);
        let kept: Vec<_> = failed.iter().filter(|(_, verdict)| *verdict != CheckVerdict::Failed).collect();
        assert!(kept.is_empty(), "the whole exceeds everything: {kept:?}");
        Self { limits, allow_truncated: false, problems: Vec::new(), judged: 0 }
    }

    fn judge(&mut self, what: &dyn Fn() -> String, bytes: &[u8]) {
        let Some(recording) = read(bytes, self.allow_truncated) else { return };
        self.judged += 1;
        for (kind, verdict) in verdicts(&recording, &self.limits) {
            if verdict == CheckVerdict::Passed {
                self.problems.push(format!("{}: {kind}", what()));
            }
        }
    }

    fn finish(self, least: usize) {
        assert_none(&self.problems);
        assert!(self.judged >= least, "only {} were read", self.judged);
    }
}

/// Where every value of a tree is.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, part) in parts {
        let place = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        places(part, &place, found);
        found.push(place);
    }
}

/// A copy without the value at a path, and, if it is in a list, one without the rest of the list.
fn without(value: &Value, place: &str) -> Vec<Value> {
    let (parent, key) = place.rsplit_once('/').unwrap();
    let mut copy = value.clone();
    match copy.pointer_mut(parent).unwrap() {
        Value::Object(fields) => drop(fields.remove(&key.replace("~1", "/").replace("~0", "~"))),
        Value::Array(items) => {
            items.remove(key.parse().unwrap());
            let mut shorter = value.clone();
            shorter.pointer_mut(parent).unwrap().as_array_mut().unwrap().truncate(key.parse().unwrap());
            return vec![copy, shorter];
        }
        _ => unreachable!("only these have parts"),
    }
    vec![copy]
}

fn all_parts(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    places(value, "", &mut all);
    all
}

fn limits_of_steps() -> Limits {
    let mib = |mib: u64| (mib << 20) - 1;
    Limits {
        peak: mib(150),
        reserved: Some(mib(160)),
        leak: Some(mib(20)),
        // 10 of 160 MiB at the peak.
        fragmentation: Some("6.2%"),
        sites: vec!["train.py:7=119MiB", "train.py:5=29MiB"],
        residues: vec!["start..end=119MiB", "step:2:start..step:4:end=59MiB", "entry:4..entry:30=99MiB"],
        baseline: Some(earlier(mib(150))),
    }
}

fn earlier(bytes: u64) -> EarlierRun {
    let mut run = EarlierRun::default();
    run.devices.push(memviz::analysis::check::EarlierDevice {
        device: 0,
        allocated: Some(bytes),
        reserved: Some(bytes),
        sites: None,
    });
    run
}

#[test]
fn no_member_of_a_recording_keeps_a_budget_by_being_lost() {
    let whole = leaking();
    let mut losses = Losses::of(&pickle(&whole), limits_of_steps());
    for place in all_parts(&whole) {
        for left in without(&whole, &place) {
            losses.judge(&|| format!("without {place}"), &pickle(&left));
        }
    }
    losses.finish(300);
}

/// Several entries and their segment can be lost so that the rest is the recording of another program: nothing could tell. Any two
/// members can not.
#[test]
fn no_two_members_of_a_recording_keep_a_budget_by_being_lost() {
    let whole = leaking();
    let places = all_parts(&whole);
    let mut losses = Losses::of(&pickle(&whole), limits_of_steps());
    // A full cycle would be millions of pairs.
    let mut state = 1u64;
    let mut pick = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        &places[(state >> 33) as usize % places.len()]
    };
    for _ in 0..2000 {
        let (one, other) = (pick(), pick());
        let left = without(&whole, one).swap_remove(0);
        // The other one may be a part of the first, or in the place of one.
        let Some(_) = left.pointer(other) else { continue };
        losses.judge(&|| format!("without {one} and {other}"), &pickle(&without(&left, other).swap_remove(0)));
    }
    losses.finish(300);
}

#[test]
fn no_range_of_entries_keeps_a_budget_by_being_lost() {
    let whole = leaking();
    let entries = whole["device_traces"][0].as_array().unwrap();
    let mut losses = Losses::of(&pickle(&whole), limits_of_steps());
    for start in 0..entries.len() {
        for end in start + 1..=entries.len() {
            let mut left = whole.clone();
            left["device_traces"][0] = [&entries[..start], &entries[end..]].concat().into();
            losses.judge(&|| format!("without entries {start} to {end}"), &pickle(&left));
        }
    }
    losses.finish(300);
}

#[test]
fn no_byte_of_a_recording_keeps_a_budget_by_being_lost() {
    let bytes = pickle(&whole());
    let limits = Limits {
        peak: (50 << 20) - 1,
        reserved: Some((52 << 20) - 1),
        sites: vec!["train.py:5=29MiB"],
        residues: vec!["start..end=43MiB"],
        ..Limits::default()
    };
    let mut losses = Losses::of(&bytes, limits);
    for length in [1, 2, 9] {
        for at in 0..bytes.len().saturating_sub(length) {
            let left = [&bytes[..at], &bytes[at + length..]].concat();
            losses.judge(&|| format!("without {length} bytes at {at}"), &left);
        }
    }
    losses.allow_truncated = true;
    for length in (0..bytes.len()).step_by(7) {
        losses.judge(&|| format!("the first {length} bytes"), &bytes[..length]);
    }
    losses.finish(20);
}

/// A small profiler trace: memory of a Python function, most of which is freed again.
fn trace() -> Value {
    let mut total = 0i64;
    let mut memory = |time: u64, bytes: i64, addr: u64| {
        total += bytes;
        json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": time,
               "args": {"Total Reserved": 64 << 20, "Total Allocated": total, "Bytes": bytes, "Device Id": 0,
                        "Device Type": 1, "Addr": addr, "Ev Idx": 0}})
    };
    let span = |name: &str, time: u64, duration: u64| {
        json!({"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": time, "dur": duration,
               "args": {"Python id": time, "Python parent id": null}})
    };
    let events = [
        span("train.py(3): step", 10, 40),
        memory(11, 10 << 20, 256),
        memory(20, 20 << 20, 512),
        memory(30, -(20 << 20), 512),
        memory(40, 5 << 20, 768),
        span("train.py(9): step", 60, 20),
        memory(61, 1 << 20, 1024),
    ];
    json!({"schemaVersion": 1, "profile_memory": 1, "with_stack": 1, "traceEvents": events})
}

#[test]
fn no_part_of_a_trace_keeps_a_budget_by_being_lost() {
    let whole = trace();
    let limits = Limits { peak: (30 << 20) - 1, reserved: Some((64 << 20) - 1), ..Limits::default() };
    let bytes = whole.to_string().into_bytes();
    let mut losses = Losses::of(&bytes, limits);
    for place in all_parts(&whole) {
        for left in without(&whole, &place) {
            losses.judge(&|| format!("without {place}"), left.to_string().as_bytes());
        }
    }
    for length in [1, 3] {
        for at in 0..bytes.len() - length {
            let left = [&bytes[..at], &bytes[at + length..]].concat();
            let around =
                String::from_utf8_lossy(&bytes[at.saturating_sub(20)..(at + 20).min(bytes.len())]).into_owned();
            losses.judge(&|| format!("without {length} bytes at {at}: {around}"), &left);
        }
    }
    losses.allow_truncated = true;
    for length in 0..bytes.len() {
        losses.judge(&|| format!("the first {length} bytes"), &bytes[..length]);
    }
    losses.finish(300);
}

/// A real trace, without each of its events of memory.
#[test]
fn no_event_of_a_real_trace_keeps_a_budget_by_being_lost() {
    let bytes = read_unpacked("fixtures/traces/profiler_traces_t231/fake_cuda_modules.trace.json.gz");
    let whole: Value = serde_json::from_slice(&bytes).unwrap();
    let recording = read(&bytes, false).unwrap();
    let history = &recording.histories[0];
    let [peak, .., reserved] = history.maxima.map(|maximum| u64::try_from(maximum.bytes).unwrap().saturating_sub(1));
    let reserved = Some(reserved).filter(|&bytes| bytes > 0);
    let mut losses = Losses::of(&bytes, Limits { peak, reserved, ..Limits::default() });
    let events = whole["traceEvents"].as_array().unwrap();
    let memory: Vec<usize> = (0..events.len()).filter(|&at| events[at]["name"] == "[memory]").collect();
    for &at in memory.iter().step_by(memory.len() / 60 + 1) {
        for left in without(&whole, &format!("/traceEvents/{at}")) {
            losses.judge(&|| format!("without event {at}"), left.to_string().as_bytes());
        }
    }
    losses.finish(20);
}

/// The limit is a part of the question, too.
#[test]
fn no_part_of_a_baseline_keeps_a_budget_by_being_lost() {
    let recording = read(&pickle(&leaking()), false).unwrap();
    let folder = super::Folder::new();
    let path = folder.write("steps.pickle", pickle(&whole()));
    let answer = folder.check(&[&path, "--device", "0", "--max-peak", "1GiB", "--format", "json"]).stdout;
    let whole: Value = serde_json::from_str(&answer).unwrap();
    let judged = |text: &str| -> Vec<CheckVerdict> {
        let Ok(answers) = read_answers(text) else { return Vec::new() };
        let budgets = answers.iter().map(|answer| {
            Budgets::default().baseline(Some(EarlierRun::of_answer(answer))).tolerance(Tolerance::default())
        });
        let report = recording.check(&CheckOptions::default().budgets(budgets.collect()).top(1));
        report.checks.iter().map(|check| check.verdict).collect()
    };
    assert_eq!(judged(&answer), [CheckVerdict::Failed; 2]);
    let mut problems = Vec::new();
    for place in all_parts(&whole) {
        for left in without(&whole, &place) {
            if judged(&left.to_string()).contains(&CheckVerdict::Passed) {
                problems.push(format!("without {place}"));
            }
        }
    }
    assert_none(&problems);
}
