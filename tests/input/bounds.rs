//! Derived data is bounded for every recording, and the output says what a bound leaves out.
#![cfg(feature = "cli")]

use crate::support::{self, memviz};
use memviz::Recording;
use memviz::analysis::flame::FlameOptions;
use memviz::analysis::oom::OomOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::input::ReadOptions;
use serde_json::{Value, json};
use std::fs;
use std::io::Cursor;
use tempfile::TempDir;

/// Largest picture.
const LARGEST_SVG: usize = 500 << 10;

/// The first address.
const START: u64 = 1 << 40;

fn frame(file: &str, line: usize, name: &str) -> Value {
    json!({"filename": file, "line": line, "name": name})
}

fn entry(action: &str, addr: u64, size: u64, frames: &Value, time: usize) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames})
}

/// The entries of one live block of 512 bytes for each of these stacks.
fn live(stacks: &[Value]) -> Vec<Value> {
    let mut trace = Vec::new();
    for (index, frames) in stacks.iter().enumerate() {
        let addr = START + 512 * index as u64;
        if index % 4096 == 0 {
            trace.push(entry("segment_alloc", addr, 2 << 20, &json!([]), trace.len()));
        }
        trace.push(entry("alloc", addr, 512, frames, trace.len()));
    }
    trace
}

fn pickle(traces: &[Vec<Value>], annotations: &[Value]) -> Vec<u8> {
    let snapshot = json!({"segments": [], "device_traces": traces, "external_annotations": annotations});
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
}

fn read(bytes: Vec<u8>) -> Recording {
    Recording::read(Cursor::new(bytes), &ReadOptions::default()).unwrap()
}

/// Runs memviz on a file of these bytes.
fn run(bytes: &[u8], args: &[&str]) -> support::Run {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording.pickle");
    fs::write(&path, bytes).unwrap();
    memviz(&[args, &[path.to_str().unwrap()]].concat())
}

#[test]
fn a_loop_of_failed_requests_is_attributed_in_part_and_says_so() {
    let stacks: Vec<Value> = (0..500).map(|line| json!([frame("/home/u/m.py", line, "f")])).collect();
    let mut trace = live(&stacks);
    for _ in 0..100 {
        let time = trace.len();
        trace.push(json!({"action": "oom", "device_free": 5 << 20, "size": 1u64 << 30, "stream": 0, "time_us": time,
                          "frames": [frame("/home/u/m.py", 3, "forward")]}));
    }
    let bytes = pickle(&[trace], &[]);
    let report = read(bytes.clone()).oom(&OomOptions::default()).unwrap();
    let ooms = &report.devices[0].ooms;
    assert_eq!(ooms.len(), 100);
    let rows: Vec<usize> = ooms.iter().map(|oom| oom.attribution.rows.len()).collect();
    assert_eq!((rows[0], rows[9], rows[10], rows[99]), (500, 500, 21, 21));
    for oom in ooms {
        let sum: u64 = oom.attribution.rows.iter().map(|row| row.bytes).sum();
        assert_eq!((sum, oom.attribution.total_bytes), (500 * 512, 500 * 512), "rows sum to the total");
    }
    assert!(ooms[99].attribution.rows.iter().all(|row| row.stack.is_empty()));
    let said = run(&bytes, &["oom"]).expect(0).stdout.replace('\n', " ");
    assert!(said.contains("100 requests failed: memviz shows at most 20 rows for each after the first 10"), "{said}");
}

#[test]
fn a_deep_stack_is_not_copied_into_each_row() {
    let frames: Vec<Value> =
        (0..10_000).map(|depth| frame(&format!("/home/u/f{}.py", depth % 300), depth % 300, "g")).collect();
    let bytes = pickle(&[live(&[json!(frames)])], &[]);
    let options = PeakOptions::default().by(GroupBy::Function);
    let report = read(bytes).peak(&options).unwrap();
    let rows = &report.devices[0].attribution.rows;
    assert_eq!(rows.len(), 300);
    for row in rows {
        assert_eq!((row.stack.len(), row.stack.last().unwrap().as_str()), (513, "(9488 more frames)"));
    }
}

#[test]
fn long_names_fill_neither_memory_nor_pictures() {
    let long = "N".repeat(4096);
    let stack = |line: usize| {
        let mut frames = vec![frame("/home/u/a.py", 1, &long); 100];
        frames.push(frame("/home/u/b.py", line, "x"));
        json!(frames)
    };
    let bytes = pickle(&[live(&(0..60).map(stack).collect::<Vec<_>>())], &[]);
    let flame = read(bytes.clone()).flame(&FlameOptions::default()).unwrap();
    let labels: Vec<&str> =
        flame.devices[0].nodes.iter().map(|node| &*node.label).filter(|it| it.len() > 999).collect();
    assert!(labels.len() > 5000 && labels.iter().all(|label| label.as_ptr() == labels[0].as_ptr()), "one name, once");
    for (args, rows) in
        [(["peak", "--by", "stack", "--format", "json"], 60), (["peak", "--by", "site", "--format", "json"], 1)]
    {
        let answer = run(&bytes, &args).json();
        let found = answer["devices"][0]["attribution"]["rows"].as_array().unwrap();
        assert_eq!(found.len(), rows);
        let length =
            |row: &Value| row["stack"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().len()).sum::<usize>();
        assert!(found.iter().all(|row| length(row) < 70 << 10), "{args:?}");
    }
    for args in
        [&["report", "--format", "svg"] as &[&str], &["flamegraph"], &["timeline"], &["timeline", "--by", "stack"]]
    {
        let svg = run(&bytes, args).expect(0).stdout.len();
        assert!(svg < LARGEST_SVG, "{args:?}: {svg} bytes");
    }
    // Expressions see the beginning of a name, once for each frame.
    let held = |pattern: &str| {
        let answer = run(&bytes, &["peak", "--format", "json", "--include", pattern]).json();
        let rows = answer["devices"][0]["attribution"]["rows"].as_array().unwrap().clone();
        rows.iter()
            .filter(|row| row["label"] != "(filtered out)")
            .map(|row| row["bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(["NNN", "b\\.py:7 x", "zzz"].map(held), [60 * 512, 512, 0]);
}

#[test]
fn annotations_of_one_long_name_are_shortened_in_each_row() {
    let name = "A".repeat(100_000);
    let end = |stage: &str, time: usize| json!({"stage": stage, "name": name, "device": 0, "time_us": time});
    let annotations: Vec<Value> =
        (0..20).map(|time| end("START", time)).chain((0..20).map(|time| end("END", 1000 + time))).collect();
    let trace = live(&vec![json!([frame("/home/u/m.py", 1, "f")]); 300]);
    let csv =
        run(&pickle(&[trace], &annotations), &["fragmentation", "--over-time", "--points", "200", "--format", "json"]);
    assert!(csv.expect(0).stdout.len() < 300 * 20 * 3000, "{} bytes", csv.stdout.len());
}

/// Names and stacks that return are written once.
#[cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]
#[test]
fn files_for_other_programs_stay_small() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("export").into_os_string().into_string().unwrap();
    let name = "A".repeat(100_000);
    let end = |stage: &str, time: usize| json!({"stage": stage, "name": name, "device": 0, "time_us": time});
    // Ranges that overlap without nesting, all under one name.
    let annotations: Vec<Value> = (0..300).flat_map(|time| [end("START", time / 20), end("END", 500 + time)]).collect();
    let deep: Vec<Value> = (0..100).map(|line| frame("/home/u/m.py", line, &"N".repeat(3000))).collect();
    let bytes = pickle(&[live(&vec![json!(deep); 20])], &annotations);
    for (format, most) in [("perfetto", 200_000), ("pprof", 20_000)] {
        run(&bytes, &["export", "--format", format, "--force", "-o", &path]).expect(0);
        let size = fs::metadata(&path).unwrap().len();
        assert!(size < most, "{format}: {size} bytes");
    }
}

#[test]
fn pictures_of_many_devices_stay_small() {
    let stack = |device: usize, line: usize| {
        json!([frame(&format!("/home/u/long_name_of_a_file_{device}.py"), line, "forward")])
    };
    let device = |device: usize| live(&(0..12).map(|line| stack(device, line)).collect::<Vec<_>>());
    let bytes = pickle(&(0..128).map(device).collect::<Vec<_>>(), &[]);
    for args in [
        &["report", "--format", "svg"] as &[&str],
        &["timeline"],
        &["flamegraph"],
        &["fragmentation", "--format", "svg"],
    ] {
        let svg = run(&bytes, args).expect(0).stdout.len();
        assert!(svg < LARGEST_SVG, "{args:?}: {svg} bytes");
    }
    let more = pickle(&(0..129).map(device).collect::<Vec<_>>(), &[]);
    run(&more, &["peak"]).expect_error("expected a device from -1 to 127, found 128");
}

/// Names of characters that take six bytes each in a picture, on as many devices and in as many files as possible.
#[test]
fn pictures_of_names_to_be_escaped_stay_small() {
    let stack = |device: usize, line: usize| {
        let file = format!("/home/u/{}_{device}_{line}.py", "<&>\"".repeat(300));
        json!([frame(&file, line, &format!("f{}", "<&>\"".repeat(200)))])
    };
    let recording = |devices: usize, lines: usize| {
        let device = |device: usize| live(&(0..lines).map(|line| stack(device, line)).collect::<Vec<_>>());
        pickle(&(0..devices).map(device).collect::<Vec<_>>(), &[])
    };
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let (base, new) = (path("base.pickle"), path("new.pickle"));
    fs::write(&base, recording(128, 12)).unwrap();
    fs::write(&new, recording(128, 14)).unwrap();
    fs::create_dir(path("ranks")).unwrap();
    for rank in 0..60 {
        fs::write(path(&format!("ranks/{}_rank{rank}.pickle", "<&>\"".repeat(40))), recording(1, rank % 7 + 1))
            .unwrap();
    }
    for args in [
        &["report", "--format", "svg", &new] as &[&str],
        &["timeline", "--by", "stack", &new],
        &["flamegraph", &new],
        &["checkpoint", "--format", "svg", &new],
        &["diff", "--format", "svg", &base, &new],
        &["ranks", "--format", "svg", &path("ranks")],
    ] {
        // What it costs is not the question, and a busy machine takes its time.
        let svg = memviz(&[args, &["--no-limit"]].concat()).expect(0).stdout.len();
        assert!(svg < LARGEST_SVG, "{args:?}: {svg} bytes");
    }
}

#[cfg(unix)]
#[test]
fn globs_do_not_follow_cyclic_links() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    fs::create_dir(path("below")).unwrap();
    fs::copy(support::fixture("tiny"), path("below/rank0.gz")).unwrap();
    for link in ["a", "b", "c", "below/up"] {
        std::os::unix::fs::symlink("..", path(link)).unwrap();
        std::os::unix::fs::symlink(".", path(&format!("{link}_here"))).unwrap();
    }
    let run = memviz(&["ranks", "--format", "json", &path("**/*.gz")]);
    // A line for the rank, and one across all.
    assert_eq!(run.expect(0).stdout.lines().count(), 2, "{}", run.stdout);
}

#[test]
fn names_are_not_commands_formulas_or_mentions() {
    let name = |name: &str| pickle(&[live(&vec![json!([frame(name, 3, "f")]); 3])], &[]);
    let command = name("::stop-commands::x ##[error]y ##VsO[task.setvariable variable=a]z.py");
    for args in [
        &["peak"] as &[&str],
        &["peak", "--format", "csv"],
        &["peak", "--format", "json"],
        &["peak", "--format", "markdown"],
        &["report", "--format", "markdown"],
        &["report", "--format", "html"],
        &["report", "--format", "svg"],
        &["flamegraph", "--format", "folded"],
        &["check", "--max-peak", "0"],
        &["check", "--max-peak", "0", "--format", "github"],
        &["check", "--max-peak", "0", "--format", "junit"],
    ] {
        let found = run(&command, args);
        let out = found.stdout + &found.stderr;
        assert!(out.contains("stop-commands") || args[0] == "check", "{args:?}: {out}");
        assert!(
            !out.contains("##[")
                && !out.to_lowercase().contains("##vso[")
                && !out.lines().any(|line| line.trim_start().starts_with("::") && !line.starts_with("::error title=")),
            "{args:?}: {out}"
        );
    }
    let missing = memviz(&["peak", "##vso[task.complete]/none.pickle"]);
    assert!(missing.expect(2).stderr.contains("##vso\\u{5b}task"), "{}", missing.stderr);
    let csv = run(&name("=1+1.py"), &["peak", "--format", "csv"]).expect(0).stdout.clone();
    let cells = |line: &str| line.split([',', '"']).any(|cell| cell.starts_with('='));
    assert!(csv.contains("'=1+1.py:3 f"), "{csv}");
    assert!(!csv.lines().any(cells), "{csv}");
}
