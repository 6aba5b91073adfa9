//! `memviz FILE`: one screen that says what matters, with figures that the other commands give, too.
#![cfg(feature = "cli")]

use crate::support::{FIXTURES, answer, assert_none, cases, fixture, memviz, memviz_reading, names};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// Lines on a screen with three things to change and five commands, without notes about an incomplete or contradictory recording.
const SCREEN: usize = 34;
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";

#[test]
fn a_file_in_place_of_a_command_is_looked_at() {
    let oom = fixture("oom");
    let short = memviz(&[&oom]);
    short.expect(0);
    assert_eq!(short.stdout, memviz(&["triage", &oom]).stdout);
    assert!(short.stdout.starts_with("Out of memory"), "{}", short.stdout);
    assert_eq!(memviz(&[&oom, "--format", "json"]).json()["command"], "triage");

    let bytes = fs::read(&oom).unwrap();
    let piped = memviz_reading(&["-"], &bytes);
    piped.expect(0);
    assert_eq!(piped.stdout.replace("FILE", &oom), short.stdout, "what has to be typed anew is called FILE");
}

#[test]
fn several_files_and_folders_are_ranks() {
    let [a, b] = ["multi_gpu", "gpt_train"].map(fixture);
    assert_eq!(memviz(&[&a, &b]).stdout, memviz(&["ranks", &a, &b]).stdout);
    let folder = "fixtures/snapshots/ranks8";
    assert_eq!(memviz(&[folder]).stdout, memviz(&["ranks", folder]).stdout);
    let pattern = "fixtures/snapshots/ranks8/*.gz";
    assert_eq!(memviz(&[pattern]).stdout, memviz(&["ranks", pattern]).stdout);
}

#[test]
fn a_folder_with_one_recording_is_that_recording() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let of_folder = |args: &[&str]| memviz(&[args, &[folder.path().to_str().unwrap()]].concat()).stdout;
    fs::copy(fixture("oom"), path("run.pickle.gz")).unwrap();
    fs::write(path("config.json"), "{}").unwrap();
    for args in [&[] as &[&str], &["triage"], &["peak"], &["fit", "--capacity", "4GiB"]] {
        assert_eq!(of_folder(args), memviz(&[args, &[path("run.pickle.gz").as_str()]].concat()).expect(0).stdout);
    }
    assert!(!of_folder(&["ranks"]).starts_with("Out of memory"), "ranks are asked for all files");
    fs::copy(fixture("oom"), path("other.pickle.gz")).unwrap();
    memviz(&["peak", folder.path().to_str().unwrap()]).expect_error("memviz ranks");
}

#[test]
fn missing_files_are_one_line() {
    memviz(&["snapshot.pickle"]).expect_error("snapshot.pickle: No such file");
    memviz(&["peek"]).expect_error("unrecognized subcommand 'peek'");
    memviz(&["./peak"]).expect_error("./peak: No such file");
}

#[test]
fn one_screen_is_enough_and_its_figures_are_those_of_peak() {
    let mut recordings: Vec<String> = names(FIXTURES)
        .iter()
        .filter(|name| !name.starts_with("big") && *name != "ranks8")
        .map(|name| fixture(name))
        .collect();
    recordings.push(TRACE.to_owned());
    let mut failed = 0;
    for path in &recordings {
        let run = answer(&["triage", path]);
        if run.code != Some(0) {
            assert_eq!(answer(&["peak", path]).code, run.code, "{path}");
            continue;
        }
        let lines = run.stdout.lines().filter(|line| !line.trim_start().starts_with("! ")).count();
        assert!(lines <= SCREEN, "{path} takes {lines} lines\n{}", run.stdout);
        let json = answer(&["triage", path, "--format", "json"]).json();
        for device in json["devices"].as_array().unwrap() {
            let at = if device["failure"].is_null() { "peak" } else { "oom" };
            failed += usize::from(at == "oom");
            let number = device["device"].to_string();
            let answer = memviz(&["peak", path, "--at", at, "--device", &number, "--format", "json"]).json();
            let peak = &answer["devices"][0];
            for metric in ["allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"] {
                assert_eq!(device["at"][metric], peak["peak"][metric], "{path} {metric}");
            }
            assert_eq!(device["entry"], peak["peak"]["entry"], "{path}");
            for rows in ["categories", "sites"] {
                let sum: i64 = rows_of(&device[rows]).iter().map(|row| row["bytes"].as_i64().unwrap()).sum();
                assert_eq!(device[rows]["total_bytes"], sum, "{path} {rows}");
                assert_eq!(device[rows]["total_bytes"], peak["attribution"]["total_bytes"], "{path} {rows}");
            }
        }
    }
    assert!(failed >= 3, "{failed} devices ran out of memory");
}

/// For a program without mistakes, memviz names at most settings that reserve less. For the others, the output names the
/// command that shows the mistake.
#[test]
fn findings_are_there_where_something_is_wrong() {
    let kinds = |name: &str| -> Vec<String> {
        let json = memviz(&[&fixture(name), "--format", "json"]).json();
        let first = &json["devices"][0];
        rows(&first["findings"]).iter().map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds("gpt_train"), ["activations"]);
    assert_eq!(kinds("leak"), ["leak"]);
    assert_eq!(kinds("fragmented"), ["fragmentation", "growth"]);
    assert_eq!(kinds("tiny"), ["settings"]);
    let text = memviz(&[&fixture("leak")]).stdout;
    assert!(text.contains(&format!("memviz leaks {}", fixture("leak"))), "{text}");
}

/// Suggested commands can be typed, whatever the name of the file.
#[test]
fn commands_name_the_file_as_a_shell_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it's a run; rm -rf.pickle.gz");
    fs::copy(fixture("leak"), &path).unwrap();
    let text = memviz(&[path.to_str().unwrap()]).stdout;
    let quoted = format!("'{}'", path.to_str().unwrap().replace('\'', r"'\''"));
    assert!(text.contains(&format!("memviz leaks {quoted}")), "{text}");
}

fn rows_of(attribution: &Value) -> Vec<Value> {
    rows(&attribution["rows"])
}

fn rows(list: &Value) -> Vec<Value> {
    list.as_array().unwrap().clone()
}

#[test]
fn every_command_that_is_recommended_answers() {
    let mut problems = Vec::new();
    for case in cases(FIXTURES) {
        let triage = answer(&["triage", &case.path, "--format", "json"]).json();
        for device in triage["devices"].as_array().unwrap() {
            for finding in device["findings"].as_array().unwrap() {
                let command = finding["command"].as_str().unwrap();
                let number = device["device"].to_string();
                let answer = memviz(&[command, &case.path, "--device", &number, "--format", "json"]).expect(0).json();
                let answer = &answer["devices"][0];
                let rows = match command {
                    "checkpoint" => &answer["candidates"],
                    "leaks" => &answer["leaks"],
                    "fragmentation" => &answer["pinning"],
                    _ => continue,
                };
                if rows.as_array().is_none_or(Vec::is_empty) {
                    problems.push(format!("{}: {command} is recommended, and has no answer", case.path));
                }
            }
        }
    }
    assert_none(&problems);
}

/// A snapshot of a side stream that freed what it had reserved, before the main stream requests as much again.
fn side_stream(side_bytes: u64) -> Vec<u8> {
    const MIB: u64 = 1 << 20;
    let (side, main, main_bytes) = (1u64 << 40, 2u64 << 40, 400 * MIB);
    let entry = |action: &str, addr: u64, size: u64, stream: u64, line: u64| {
        json!({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": line,
               "frames": [{"filename": "/home/u/run.py", "line": line, "name": "prefetch"}]})
    };
    let trace = [
        entry("segment_alloc", side, side_bytes, 7, 11),
        entry("alloc", side, side_bytes, 7, 11),
        entry("free_requested", side, side_bytes, 7, 12),
        entry("free_completed", side, side_bytes, 7, 12),
        entry("segment_alloc", main, main_bytes, 0, 13),
        entry("alloc", main, main_bytes, 0, 13),
    ];
    let segment = |address: u64, size: u64, stream: u64, state: &str| {
        let used = if state == "inactive" { 0 } else { size };
        json!({"device": 0, "address": address, "total_size": size, "allocated_size": used, "active_size": used,
               "requested_size": used, "stream": stream, "segment_type": "large", "segment_pool_id": [0, 0],
               "is_expandable": false, "frames": [],
               "blocks": [{"address": address, "size": size, "requested_size": size, "state": state, "frames": []}]})
    };
    let segments = [segment(side, side_bytes, 7, "inactive"), segment(main, main_bytes, 0, "active_allocated")];
    let snapshot = json!({"segments": segments, "device_traces": [trace]});
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
}

/// Free memory on a side stream is reported with the line that used the stream first, and only if it is much.
#[test]
fn memory_of_a_side_stream_is_named_with_its_line() {
    let said = |bytes: u64| memviz_reading(&["triage", "-", "--format", "json"], &side_stream(bytes)).json();
    let findings = |answer: &Value| answer["devices"][0]["findings"].as_array().unwrap().clone();
    let much = findings(&said(200 << 20));
    assert_eq!((&much[0]["kind"], &much[0]["label"]), (&json!("stranded"), &json!("run.py:11 prefetch")));
    assert_eq!(much[0]["bytes"], 200 << 20);
    assert!(findings(&said(40 << 20)).iter().all(|finding| finding["kind"] != "stranded"));
    let text = memviz_reading(&["fragmentation", "-"], &side_stream(200 << 20)).stdout;
    let sentence = "200.00 MiB of 600.00 MiB reserved is free on stream 7, first used at run.py:11 prefetch";
    assert!(text.replace("\n  ", " ").contains(sentence), "{text}");
}

#[test]
fn lines_of_code_are_shown_where_they_are_asked_for() {
    let folder = "fixtures/stories/duplicate_model_mlp_flawed";
    let recording = format!("{folder}/snapshot.pickle.gz");
    let line = "9 | best={name:value.clone()";
    let shown = memviz(&[&recording, "--source", folder]);
    assert!(shown.expect(0).stdout.contains(line), "{}", shown.stdout);
    // Output to a file or a pipe may be passed on.
    assert!(!memviz(&[&recording]).expect(0).stdout.contains(line));
    let elsewhere = memviz(&[&recording, "--source", "fixtures/snapshots"]);
    assert!(!elsewhere.expect(0).stdout.contains(" | "), "{}", elsewhere.stdout);
}
