//! What a run may cost: where a limit is reached it ends with one line and exit code 2, whatever it was at.

use crate::support::{self, memviz};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// A recording of blocks of 512 bytes that stay, each on a stream of its own.
fn streams(number: u64) -> Vec<u8> {
    let frames = json!([{"filename": "train.py", "line": 3, "name": "step"}]);
    let mut trace: Vec<Value> = Vec::new();
    for stream in 0..number {
        let addr = (1 << 40) + stream * (2 << 20);
        for (action, size) in [("segment_alloc", 2 << 20), ("alloc", 512)] {
            let time = trace.len();
            trace.push(json!({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time,
                              "frames": frames}));
        }
    }
    let snapshot = json!({"segments": [], "device_traces": [trace]});
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
}

/// A recording of many blocks, each of its own line, and of many requests that failed.
fn failures() -> Vec<u8> {
    let mut trace: Vec<Value> = Vec::new();
    for line in 0..20_000u64 {
        let (addr, frames) = ((1 << 40) + line * (2 << 20), json!([{"filename": "m.py", "line": line, "name": "f"}]));
        for (action, size) in [("segment_alloc", 2 << 20), ("alloc", 512)] {
            trace.push(json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": trace.len(),
                              "frames": frames}));
        }
    }
    for _ in 0..20_000 {
        trace.push(json!({"action": "oom", "device_free": 5 << 20, "size": 1u64 << 30, "stream": 0,
                          "time_us": trace.len(), "frames": []}));
    }
    let snapshot = json!({"segments": [], "device_traces": [trace]});
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
}

#[test]
fn memory_is_limited_while_reading() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording.pickle").into_os_string().into_string().unwrap();
    fs::write(&path, streams(400_000)).unwrap();
    memviz(&["info", &path]).expect(0);
    let run = memviz(&["info", "--max-memory", "64MiB", &path]);
    // Where the system refuses memory before anybody has looked, its own words come with a hint for programmers.
    assert!(
        run.expect(2).stderr.contains("--max-memory") || run.stderr.contains("memory allocation"),
        "{}",
        run.stderr
    );
    memviz(&["info", "--max-memory", "1MiB", &path]).expect_error("expected at least 64.00 MiB");
}

/// The limit that the process has already is lower, so that the test does not take as long as the default.
#[test]
fn processor_time_is_limited() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording.pickle").into_os_string().into_string().unwrap();
    fs::write(&path, failures()).unwrap();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -S -t 1; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_memviz"),
        "oom",
        "--format",
        "json",
        &path,
    ]);
    let run = support::Run::from(shell.output().unwrap());
    assert_eq!(run.expect(2).stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("--no-limit"), "{}", run.stderr);
}
