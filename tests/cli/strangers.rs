//! Consistency of all answers about one recording, on other people's recordings.

use crate::support::{answer, assert_none, memviz, names, stranger};
use rayon::prelude::*;
use regex_lite::Regex;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Recordings of other people, which only some machines have, and those of the repository.
const FOLDERS: [&str; 4] =
    ["../shared/real", "../shared/real2", "fixtures/snapshots", "fixtures/traces/profiler_traces"];
/// Answers that are read together.
const COMMANDS: [&[&str]; 8] = [
    &["triage"],
    &["info"],
    &["peak"],
    &["oom"],
    &["leaks"],
    &["checkpoint"],
    &["fragmentation"],
    &["report", "--format", "markdown"],
];

/// Text that no answer may contain, for any recording.
const NEVER: [(&str, &str); 8] = [
    ("a share above all there is", r"\b([2-9]\d\d|1[1-9]\d|10[1-9]|\d{4,})\.\d%|\b([2-9]\d\d|1[1-9]\d|10[1-9])%"),
    ("a negative size", r"(^|[ |])-\d+\.\d\d (KiB|MiB|GiB)"),
    ("a plural of one", r"\b1 (entries|segments|blocks|steps|calls|requests|devices|passes)\b"),
    ("a singular verb", r"reserved are free|memory are free when"),
    ("a size that is not there", r" - reserved|allocated, -"),
    ("a curve of one instant", r"over (0 us|[01] entries)$"),
    ("a peak without a history", r"no history was recorded.*showing the peak"),
    (
        "a table of nothing",
        r"inactive 0 bytes, 0\.0% of reserved \(at the start of the recording, where allocated memory is highest in the recording\)",
    ),
];

fn recordings() -> Vec<String> {
    let of = |folder: &str| -> Vec<String> {
        let paths = names(folder).into_iter().map(|name| format!("{folder}/{name}"));
        let snapshot = |path: String| {
            let inside = format!("{path}/snapshot.pickle.gz");
            if Path::new(&inside).is_file() { inside } else { path }
        };
        paths.map(snapshot).filter(|path| Path::new(path).is_file()).collect()
    };
    FOLDERS.into_iter().filter(|folder| Path::new(folder).is_dir()).flat_map(of).collect()
}

#[test]
fn no_answer_says_impossible_things() {
    let never = NEVER.map(|(what, pattern)| (what, Regex::new(pattern).unwrap()));
    let problems = |path: &String| -> Vec<String> {
        let answers = COMMANDS.iter().map(|command| answer(&[&command[..1], &[path.as_str()], &command[1..]].concat()));
        let said = |answer: Arc<crate::support::Run>| -> Vec<String> {
            let lines = answer.stdout.lines();
            let of_line = |line: &str| -> Vec<String> {
                let found = never.iter().filter(|(_, pattern)| pattern.is_match(line));
                found.map(|(what, _)| format!("{path}: {what}: {line}")).collect()
            };
            lines.flat_map(of_line).collect()
        };
        answers.flat_map(said).collect()
    };
    let files = recordings();
    assert!(!files.is_empty(), "there are no recordings");
    assert_none(&files.par_iter().flat_map_iter(problems).collect::<Vec<String>>());
}

fn json(command: &str, path: &str) -> Value {
    answer(&[command, path, "--format", "json"]).json()
}

fn text(command: &str, path: &str) -> String {
    answer(&[command, path]).stdout.clone()
}

#[test]
fn activations_are_the_same_bytes_in_every_answer() {
    let hold = Regex::new(r"activations hold (\d+\.\d\d [KMG]iB)").unwrap();
    let of_checkpoint = Regex::new(r"(\d+\.\d\d [KMG]iB) of (?:the peak|allocated memory) \(").unwrap();
    let mut compared = 0;
    for path in recordings() {
        let triage = text("triage", &path);
        // Where there are several devices, the first screen is about one of them.
        let Some(held) = hold.captures(&triage).filter(|_| triage.contains("memviz checkpoint")) else { continue };
        let checkpoint = text("checkpoint", &path);
        let said: Vec<&str> =
            of_checkpoint.captures_iter(&checkpoint).map(|found| found.get(1).unwrap().as_str()).collect();
        assert!(said.contains(&&held[1]), "{path}: {} and {said:?}", &held[1]);
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
fn a_forward_pass_takes_as_long_as_its_phase() {
    let Some(path) = stranger("notHanmin-memory_snapshot.pickle.gz") else { return };
    assert!(text("info", &path).contains("forward         1      5713    53.1 ms"));
    assert!(text("checkpoint", &path).contains("1 forward pass of 53.1 ms"));
}

#[test]
fn memory_kept_after_the_peak_is_not_inference() {
    let Some(path) = stranger("HugePandaCoder-1e496a_my_snapshot.pickle.gz") else { return };
    let checkpoint = text("checkpoint", &path);
    assert!(checkpoint.contains("the 2.80 GiB of activations kept for one at the end are not live at the peak"));
    assert!(!checkpoint.contains("no_grad"), "{checkpoint}");
}

#[test]
fn an_optimizer_of_ones_own_loads_no_data() {
    let Some(path) = stranger("ZidongLiu-memory.pickle.gz") else { return };
    let info = json("info", &path);
    let phases = info["devices"][0]["phases"].as_array().unwrap();
    let data = phases.iter().find(|phase| phase["phase"] == "data").unwrap();
    assert!(data["entries"].as_u64().unwrap() < 100, "{data}");
}

#[test]
fn a_recording_that_contradicts_itself_has_no_share() {
    let Some(path) = stranger("Da1sypetals-assets_memory.pickle.gz") else { return };
    let report = memviz(&["report", &path, "--format", "markdown"]).stdout;
    assert!(report.contains("| 8.50 KiB | contradictory | incomplete, 525 anomalies |"), "{report}");
}

#[test]
fn without_a_history_there_is_one_column() {
    let Some(path) = stranger("Felixburton7-dump_snapshot.pickle.gz") else { return };
    for command in ["info", "peak"] {
        let answer = text(command, &path);
        assert!(answer.contains("at dump time\n  allocated    84.61 MiB\n"), "{answer}");
    }
    let report = memviz(&["report", &path, "--format", "markdown"]).stdout;
    assert!(report.contains("| Device 0 | not recorded | not recorded | not recorded | 84.61 MiB |"), "{report}");
}

#[test]
fn pools_of_freed_segments_are_distinguished_from_others() {
    let Some(path) = stranger("MercuryB1-cuda_memory_snapshot.pickle.gz") else { return };
    let answer = text("fragmentation", &path);
    let rows: Vec<&str> = answer.lines().filter(|line| line.contains("large pool, stream 0")).collect();
    assert_eq!(rows.len(), 2, "{answer}");
    assert!(rows[0].ends_with("large pool, stream 0 *") && rows[1].ends_with("large pool, stream 0"), "{answer}");
    assert!(
        answer.contains("* the pool ID is unknown, because the segments were released before the dump"),
        "{answer}"
    );
}

#[test]
fn functions_that_start_a_notebook_are_no_rows() {
    let Some(path) = stranger("cranberrii-memory_snapshot.pickle.gz") else { return };
    let answer = memviz(&["peak", "--by", "function", &path]).stdout;
    assert!(
        answer.contains("3105878423.py <module>") && answer.contains("torch/nn/modules/module.py _call_impl"),
        "{answer}"
    );
    assert!(!answer.contains("IPython") && !answer.contains("runpy"), "{answer}");
}

#[test]
fn a_bound_that_is_not_known_is_not_said() {
    let Some(path) = stranger("Yiyi-philosophy-1.3b_snapshot.pickle.gz") else { return };
    let peak = text("peak", &path);
    assert!(peak.contains("does not record frees") && !peak.contains("too low"), "{peak}");
}

#[test]
fn memory_left_after_checkpointing_has_the_lines_of_the_peak() {
    let Some(path) = stranger("cranberrii-memory_snapshot.pickle.gz") else { return };
    let answer = text("checkpoint", &path);
    let left = answer.split("the new peak is").nth(1).unwrap().split("predicted peak").next().unwrap();
    assert!(left.contains("modeling_llama.py") && !left.contains("3105878423.py:21 <module>\n"), "{left}");
}
