//! Limits of a run: when it reaches one, it ends with one line and exit code 2 at any stage.

use crate::support::{self, memviz};
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

#[test]
fn memory_is_limited_while_reading() {
    let path = "fixtures/snapshots/big_1m/snapshot.pickle.zst";
    memviz(&["info", path]).expect(0);
    let run = memviz(&["info", "--max-memory", "64MiB", path]);
    // Where the system refuses memory before anybody has looked, its own words come with a hint for programmers.
    assert!(
        run.expect(2).stderr.contains("--max-memory") || run.stderr.contains("memory allocation"),
        "{}",
        run.stderr
    );
    memviz(&["info", "--max-memory", "1MiB", path]).expect_error("expected at least 64.00 MiB");
}

/// The speed of the machine must not decide, so the test sends the signal that the time is used up.
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
