//! Twice the input costs at most two and a half times as much, counted in instructions, which no other load changes.
//!
//! Valgrind counts them. Without it, nothing is compared, and `MEMVIZ_REQUIRE_VALGRIND=1` makes that a failure.

use crate::families::{FAMILIES, Family};
use crate::support::{assert_none, skipped};
use rayon::prelude::*;
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// When this is 1, a missing valgrind is a failure.
const REQUIRE: &str = "MEMVIZ_REQUIRE_VALGRIND";

/// Members of families that are compared: none, N, and 2 N.
const SIZES: [u64; 3] = [1, 400, 800];
/// Number of instructions below which the cost per member is hidden by the constant cost.
const NOTABLE: u64 = 2_000_000;

const COMMANDS: [&[&str]; 24] = [
    &["triage"],
    &["info"],
    &["peak"],
    &["peak", "--by", "function"],
    &["peak", "--by", "stack", "--format", "json"],
    &["peak", "--by", "module-path"],
    &["peak", "--each", "annotation"],
    &["timeline"],
    &["flamegraph"],
    &["check", "--max-peak", "1GiB", "--max-site", "m=1GiB"],
    &["oom"],
    &["fragmentation"],
    &["fragmentation", "--over-time"],
    &["leaks"],
    &["checkpoint"],
    &["simulate"],
    &["simulate", "--sweep"],
    &["fit", "--capacity", "8GiB"],
    &["ranks"],
    &["view", "--from", "entry:5"],
    &["report", "--format", "markdown"],
    &["report", "--format", "html"],
    &["export", "--format", "pprof"],
    &["export", "--format", "perfetto"],
];

#[test]
#[ignore = "hundreds of runs under valgrind take many minutes: cargo test --test hostile -- --ignored"]
fn twice_the_input_takes_at_most_two_and_a_half_times_the_instructions() {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE}=1, but there is no valgrind");
        skipped(&format!("there is no valgrind, which counts instructions; {REQUIRE}=1 makes that a failure"));
        return;
    }
    let problems: Vec<String> = FAMILIES.par_iter().flat_map_iter(problems).collect();
    assert_none(&problems);
}

fn problems(&(name, make): &Family) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let path = |size: u64| folder.path().join(format!("{size}.pickle")).into_os_string().into_string().unwrap();
    for &size in &SIZES {
        fs::write(path(size), make(size)).unwrap();
    }
    let mut problems = Vec::new();
    for command in COMMANDS {
        let [none, once, twice] = SIZES.map(|size| instructions(command, &path(size)));
        let (once, twice) = (once.saturating_sub(none), twice.saturating_sub(none));
        println!("{:.2} times: {command:?} with many {name}: {once} instructions, then {twice}", ratio(once, twice));
        if ratio(once, twice) > 2.5 {
            problems.push(format!("{command:?} with many {name}: {once} instructions, {twice} for twice as many"));
        }
    }
    problems
}

fn ratio(once: u64, twice: u64) -> f64 {
    twice as f64 / once.max(NOTABLE) as f64
}

/// The number of instructions that a command executes for a file, whatever its answer.
fn instructions(command: &[&str], path: &str) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", env!("CARGO_BIN_EXE_memviz")])
        .args(command);
    valgrind.args(["--threads", "1", "--quiet", "--no-limit", "--max-memory", "64GiB", path]);
    let output = valgrind.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said.lines().find_map(|line| line.split("refs:").nth(1));
    let counted = counted.and_then(|count| count.trim().replace(',', "").parse().ok());
    counted.unwrap_or_else(|| panic!("{command:?} {path}: {said}"))
}
