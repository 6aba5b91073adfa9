//! The engine of the page, in Node, compared with the library: it gives the same answers as the commands.
//!
//! The engine exists once `viewer/build` has run. Without it, or without Node, nothing is compared.

use crate::support::{FIXTURES, MALFORMED, cases, corpus_cases, memviz, names, skipped};
use memviz::Recording;
use memviz::analysis::fragmentation::FragmentationOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::private_pools::PrivatePool;
use memviz::facts::time::when::When;
use memviz::input::ReadOptions;
use memviz::model::CPU_DEVICE;
use memviz::model::View;
use memviz::replay::{Metric, Track};
use memviz::report::{Answer, Source, safe};
use rayon::prelude::*;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// When this is 1, a missing engine, or Node, is a failure.
const REQUIRE: &str = "MEMVIZ_REQUIRE_VIEWER";
const ENGINE: &str = "viewer/engine/pkg/engine_bg.wasm";

/// The output of the engine for each file; `None` if there is none.
fn asked(paths: &[String]) -> Option<Vec<Value>> {
    let missing = if !Path::new(ENGINE).exists() {
        "no engine, which viewer/build makes"
    } else if Command::new("node").arg("--version").stdout(Stdio::null()).status().is_err() {
        "no Node"
    } else {
        let node = |paths: &[String]| {
            let mut node = Command::new("node")
                .args(["--no-warnings", "viewer/engine/test/answers.mjs"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            node.stdin.take().unwrap().write_all((paths.join("\n") + "\n").as_bytes()).unwrap();
            let output = node.wait_with_output().unwrap();
            assert!(output.status.success(), "node ended with {}", output.status);
            let lines = String::from_utf8(output.stdout).unwrap();
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        };
        // Each process keeps what it has read until it ends.
        let answers: Vec<Value> = paths.par_chunks(16).flat_map(node).collect();
        assert_eq!(answers.len(), paths.len());
        return Some(answers);
    };
    assert!(std::env::var(REQUIRE).as_deref() != Ok("1"), "{REQUIRE}=1, but there is {missing}");
    skipped(&format!("there is {missing}; {REQUIRE}=1 makes that a failure"));
    None
}

/// Differences between the engine's answers about a recording and those of commands.
fn differences(path: &str, said: &Value) -> Vec<String> {
    let mut options = ReadOptions::default();
    options.view = View::default().library_lines(true);
    let recording = match Recording::open(path.as_ref(), &options) {
        Ok(recording) => recording,
        Err(error) => {
            let expected = safe(&format!("{path}: {error}"));
            // Objects are smaller with 32-bit pointers, so their limit is reached later, and perhaps another one first.
            let is_memory = expected.contains("bytes of objects from");
            let same = said["error"] == expected.as_str() || (is_memory && said["error"].is_string());
            return if same { Vec::new() } else { vec![format!("{}, expected {expected}", said["error"])] };
        }
    };
    if let Some(error) = said["error"].as_str() {
        return vec![error.to_owned()];
    }
    let source = Source { path, recording: &recording };
    let mut problems = Vec::new();
    let mut same = |what: &str, found: &Value, expected: &Value| {
        if found != expected {
            let shown = |value: &Value| value.to_string().chars().take(300).collect::<String>();
            problems.push(format!("{what}: {}, expected {}", shown(found), shown(expected)));
        }
    };
    let devices = recording.devices();
    let wanted = devices.wanted(&[]).unwrap();
    same("devices", &said["devices"].as_array().unwrap().len().into(), &wanted.len().into());
    for (device, said) in wanted.iter().zip(said["devices"].as_array().unwrap()) {
        let (id, track, history) = (device.id(), device.track, device.history());
        same("device", &said["device"], &id.into());
        for metric in Metric::ALL {
            let highest = &said["highest"][metric.name()];
            let expected = Value::from(history.maxima[metric as usize].bytes as f64);
            same(&format!("device {id}, highest {}", metric.name()), &highest[0].as_f64().into(), &expected);
            if track.has_times() && track.entries() > 0 {
                same(
                    &format!("device {id}, highest {} in time", metric.name()),
                    &highest[1].as_f64().into(),
                    &expected,
                );
            }
        }
        let instant = history.maxima[Metric::Allocated as usize].instant;
        let at = Some(instant.checked_sub(1).map_or(When::Start, When::Entry));
        let of = |by, top| {
            let options = PeakOptions::default().by(by).at(at.clone()).top(top).devices(vec![id]);
            memviz::analysis::peak::PeakReport::of(&devices, &options)
        };
        for by in GroupBy::ALL {
            let expected = of(by, Some(10)).map_or(Value::Null, |report| text(&report, source).into());
            same(&format!("device {id}, rows by {}", by.name()), &said["attributions"][by.name()], &expected);
        }
        let rows = of(GroupBy::Site, None).unwrap().devices.remove(0).attribution;
        // Pictures split memory from before the recording by category.
        let older = ["(before the recording", "(not recorded"];
        let is_older = |label: &str| older.iter().any(|begin| label.starts_with(begin));
        let bands = || said["bands"].as_array().unwrap().iter().filter(|band| band[0] != "(other)");
        let parts = bands().filter(|band| band[0].as_str().is_some_and(is_older));
        let found: f64 = parts.filter_map(|band| band[1].as_f64()).sum();
        let expected: u64 = rows.rows.iter().filter(|row| is_older(&row.label)).map(|row| row.bytes).sum();
        let is_part = found <= expected as f64;
        same(&format!("device {id}, {found} of {expected} from before the recording"), &is_part.into(), &true.into());
        for band in bands().filter(|band| !band[0].as_str().is_some_and(is_older)) {
            let row = rows.rows.iter().find(|row| band[0] == row.label.as_str());
            let expected = Value::from(row.map_or(0.0, |row| row.bytes as f64));
            same(&format!("device {id}, band {}", band[0]), &band[1].as_f64().into(), &expected);
        }
        let sum: i128 = said["difference"]["rows"].as_array().unwrap().iter().map(bytes).sum();
        same(&format!("device {id}, difference"), &said["difference"]["bytes"], &Value::from(sum as i64));
        let pools = of(GroupBy::Pool, None)
            .map_or_else(|_| Vec::new(), |mut it| it.devices.remove(0).attribution.private_pools);
        let kind = |pool: &PrivatePool| {
            format!("private pool ({}, {}): {}", pool.pool_id.0, pool.pool_id.1, pool.kind.words())
        };
        let pools: Vec<String> = pools.iter().map(kind).collect();
        let notes: Vec<&str> = said["pools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let agree =
            notes.len() == pools.len() && notes.iter().zip(&pools).all(|(note, pool)| note.starts_with(pool.as_str()));
        same(&format!("device {id}, private pools {notes:?} and {pools:?}"), &agree.into(), &true.into());
        if recording.snapshot.notes.format.has_segments() {
            segments(&recording, track, at, &said["segments"], &mut same);
        }
    }
    same("verdicts", &verdicts(&said["findings"]), &triage(source));
    problems
}

fn bytes(row: &Value) -> i128 {
    i128::from(row["bytes"].as_i64().unwrap())
}

/// The segments of `memviz fragmentation`.
fn segments(
    recording: &Recording,
    track: Track<'_>,
    at: Option<When>,
    said: &Value,
    same: &mut impl FnMut(&str, &Value, &Value),
) {
    let options = FragmentationOptions::default().at(at).devices(vec![track.device()]);
    let Ok(report) = recording.fragmentation(&options) else { return };
    let figures = report.devices[0].figures;
    same("reserved in segments", &said["reserved_bytes"], &figures.reserved.into());
    same(
        "number of segments",
        &said["segments"].as_array().unwrap().len().into(),
        &report.devices[0].segments.len().into(),
    );
}

/// The sentences of all verdicts, in the order of devices.
fn verdicts(findings: &Value) -> Value {
    let verdicts = findings.as_array().unwrap().iter().filter(|finding| finding["kind"] == "verdict");
    let mut all: Vec<(i64, Value)> =
        verdicts.map(|finding| (finding["device"].as_i64().unwrap(), finding["sentence"].clone())).collect();
    all.sort_by_key(|verdict| verdict.0);
    all.into_iter().map(|(_, sentence)| sentence).collect()
}

/// The same from `memviz triage`. The page has no verdict on CPU memory next to that of a GPU.
fn triage(source: Source<'_>) -> Value {
    let report = source.recording.triage(&memviz::analysis::triage::TriageOptions::default()).unwrap();
    let json: Value = serde_json::from_str(&text(&report, source)).unwrap();
    let mut all: Vec<(i64, Value)> = json["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| (device["device"].as_i64().unwrap(), device["verdict"].clone()))
        .collect();
    if all.iter().any(|verdict| verdict.0 >= 0) {
        all.retain(|verdict| verdict.0 != i64::from(CPU_DEVICE));
    }
    all.sort_by_key(|verdict| verdict.0);
    all.into_iter().map(|(_, sentence)| sentence).collect()
}

/// An answer as `--format json` has it.
fn text<'s, A: Answer<About<'s> = Source<'s>>>(answer: &A, source: Source<'s>) -> String {
    let mut out = Vec::new();
    answer.json(source, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Fails and prints the differences of all files.
fn compare(paths: &[String]) {
    let Some(answers) = asked(paths) else { return };
    let problems: Vec<String> = answers
        .par_iter()
        .flat_map(|said| {
            let path = said["path"].as_str().unwrap();
            differences(path, said).into_iter().map(|problem| format!("{path}: {problem}")).collect::<Vec<_>>()
        })
        .collect();
    crate::support::assert_none(&problems);
}

#[test]
fn the_engine_says_what_commands_say_of_fixtures() {
    let traces = "fixtures/traces/profiler_traces";
    let traces =
        names(traces).into_iter().filter(|name| name.contains(".json.")).map(|name| format!("{traces}/{name}"));
    compare(&cases(FIXTURES).into_iter().map(|case| case.path).chain(traces).collect::<Vec<_>>());
}

#[test]
fn the_engine_says_what_commands_say_of_the_corpus() {
    let Some(cases) = corpus_cases() else { return };
    compare(&cases.into_iter().map(|case| case.path).collect::<Vec<_>>());
}

#[test]
fn the_engine_refuses_what_commands_refuse() {
    compare(&names(MALFORMED).into_iter().map(|name| format!("{MALFORMED}/{name}")).collect::<Vec<_>>());
}

/// What is compared above is the library; this is the binary.
#[test]
fn the_engine_says_what_the_binary_says() {
    let path = crate::support::fixture("gpt_train");
    let Some(answers) = asked(std::slice::from_ref(&path)) else { return };
    let said = answers[0]["devices"][0]["attributions"]["site"].as_str().unwrap().to_owned();
    let args = ["peak", &path, "--device", "0", "--at", "peak", "--top", "10", "--format", "json"];
    assert_eq!(said, memviz(&args).expect(0).stdout);
}
