//! Limits of a run: when it reaches one, it ends with one line and exit code 2 at any stage.

use crate::support::{self, memviz};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
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

/// How fast a machine is must not decide, so the system's word that the time is spent comes from the test.
#[cfg(target_os = "linux")]
#[test]
fn processor_time_is_limited() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_memviz"))
        .args(["oom", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let limits = format!("/proc/{}/limits", run.id());
    let limit_is_set = |limits: &str| {
        let limits = fs::read_to_string(limits).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max cpu time")).unwrap();
        line.split_whitespace().nth(3) == Some("10")
    };
    while !limit_is_set(&limits) {
        assert!(run.try_wait().unwrap().is_none(), "the command ended before its limit was set");
        thread::sleep(Duration::from_millis(5));
    }
    Command::new("sh").args(["-c", &format!("kill -XCPU {}", run.id())]).status().unwrap();
    // The input stays open, so only the limit can end the command.
    let open = run.stdin.take();
    let run = support::Run::from(run.wait_with_output().unwrap());
    drop(open);
    assert_eq!(run.expect(2).stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("--no-limit"), "{}", run.stderr);
}
