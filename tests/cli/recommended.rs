//! Commands that answers recommend: each must work, for every recording, and every first screen recommends a next step.

use crate::support::{REQUIRE_CORPUS, answer, assert_none, memviz, names, skipped};
use rayon::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Recordings of strangers, which only some machines have.
const REAL: [&str; 2] = ["../shared/real", "../shared/real2"];
/// Recordings of the repository, a folder each.
const FIXTURES: [&str; 3] = ["fixtures/snapshots", "fixtures/stories", "fixtures/traces"];

/// Commands whose answers recommend others. Reports and pages recommend none.
const COMMANDS: [&[&str]; 10] = [
    &["triage"],
    &["info"],
    &["peak"],
    &["peak", "--by", "category"],
    &["peak", "--by", "phase"],
    &["oom"],
    &["leaks"],
    &["fragmentation"],
    &["checkpoint"],
    &["check", "--max-peak", "1KiB"],
];
/// A first screen says one of these, unless it leads to a command that explains more than the peak.
const ENDS: [&str; 8] = [
    "What to change",
    "What to do",
    "record again with",
    "records more",
    "To see which code",
    "what most of the memory is for",
    "No known mistake",
    "Nothing to change",
];

/// These show the recording and recommend nothing that the first screen does not.
const SHOWS: [&str; 5] = ["memviz report", "memviz flame", "memviz view", "memviz blocks", "memviz peak"];

/// A sweep that is recommended says one of these: what to set, or what serves the request that failed.
const LEADS: [&str; 4] =
    ["export PYTORCH", "unset PYTORCH", "succeeds on this device with", "succeed on this device with"];

#[test]
fn commands_that_are_recommended_answer() {
    let mut files: Vec<String> = FIXTURES
        .iter()
        .flat_map(|root| names(root).into_iter().flat_map(move |name| in_folder(&format!("{root}/{name}"))))
        .collect();
    if REAL.iter().all(|root| Path::new(root).is_dir()) {
        files.extend(REAL.iter().flat_map(|root| in_folder(root)));
    } else {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {}", REAL[0]);
        skipped(&format!("there is no {}; {REQUIRE_CORPUS}=1 makes that a failure", REAL[0]));
    }
    assert!(!files.is_empty(), "there are no recordings");
    assert_none(&files.par_iter().flat_map_iter(|file| problems(file)).collect::<Vec<String>>());
}

/// The recordings of a folder.
fn in_folder(folder: &str) -> Vec<String> {
    let is_recording = |name: &String| {
        let name = name.to_ascii_lowercase();
        ![".md", ".py", ".txt"].iter().any(|end| name.ends_with(end)) && name != "truth.json" && name != "story.json"
    };
    let files = names(folder).into_iter().filter(is_recording).map(|name| format!("{folder}/{name}"));
    files.filter(|path| Path::new(path).is_file()).collect()
}

fn problems(file: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut asked: Vec<String> = Vec::new();
    for command in COMMANDS {
        let answer = answer(&[command, &[file]].concat());
        // Files that are not recordings, and questions that a recording does not answer, are refused.
        if answer.code == Some(2) {
            continue;
        }
        let next = recommended(&answer.stdout);
        let leads_on = || next.iter().any(|typed| !SHOWS.iter().any(|shows| typed.starts_with(shows)));
        if command == ["triage"] && !ends_well(&answer.stdout) && !leads_on() {
            problems.push(format!("{file}: the first screen ends without a cure, a better recording or a reason"));
        }
        asked.extend(next);
    }
    let report = answer(&["report", file, "--format", "markdown"]);
    if report.code != Some(2) && !ends_well(&report.stdout) {
        problems.push(format!("{file}: the report has no cure, no better recording and no reason"));
    }
    asked.sort();
    asked.dedup();
    problems.extend(asked.iter().filter_map(|typed| refused(typed)));
    problems
}

fn ends_well(answer: &str) -> bool {
    let is_empty =
        ["no GPU memory was allocated", "No memory was allocated"].iter().any(|empty| answer.contains(empty));
    is_empty || ENDS.iter().any(|end| answer.contains(end))
}

/// The lines of an answer that are commands, without their comments.
fn recommended(answer: &str) -> Vec<String> {
    let commands = answer.lines().filter(|line| line.starts_with("memviz "));
    commands.map(|line| line.split("  # ").next().unwrap_or(line).trim().to_owned()).collect()
}

/// What is wrong with the answer to a command; `None` if it is an answer.
fn refused(typed: &str) -> Option<String> {
    let words: Vec<&str> = typed.split(' ').skip(1).map(|word| word.trim_matches('\'')).collect();
    // A report of each recording has answered, and pages have tests of their own.
    if matches!(words.first(), Some(&("report" | "view"))) {
        return None;
    }
    let folder = TempDir::new().unwrap();
    let answer = match words.iter().position(|&word| word == "-o") {
        Some(place) => {
            let path = folder.path().join(words[place + 1]).to_str()?.to_owned();
            Arc::new(memviz(&[&words[..=place], &[path.as_str()], &words[place + 2..]].concat()))
        }
        None => answer(&words),
    };
    let is_nothing = answer.stdout.contains("functions that memviz tried would lower the peak");
    // Settings are recommended where some serve what failed, or reserve notably less: the ones that the recommendation names.
    let is_sweep = words.contains(&"--sweep");
    let leads_nowhere = is_sweep && !LEADS.iter().any(|leads| answer.stdout.contains(leads));
    (answer.code == Some(2) || is_nothing || leads_nowhere)
        .then(|| format!("{typed}: {:?} {} {}", answer.code, answer.stderr, answer.stdout))
}

/// What the triage, the report and the sweep recommend of allocator settings is the same.
#[test]
fn settings_are_recommended_by_one_rule() {
    let mut files: Vec<String> = FIXTURES
        .iter()
        .flat_map(|root| names(root).into_iter().flat_map(move |name| in_folder(&format!("{root}/{name}"))))
        .collect();
    files.extend(REAL.iter().filter(|root| Path::new(root).is_dir()).flat_map(|root| in_folder(root)));
    let told: Vec<Option<String>> = files.par_iter().map(|file| told_of_settings(file)).collect();
    assert!(told.iter().flatten().any(String::is_empty), "no recording of which settings are recommended");
    assert_none(&told.into_iter().flatten().filter(|problem| !problem.is_empty()).collect::<Vec<String>>());
}

/// What is wrong with the recommended settings for a file, if anything; `None` if the triage recommends none.
fn told_of_settings(file: &str) -> Option<String> {
    let triage = answer(&["triage", file, "--format", "json"]);
    if triage.code != Some(0) {
        return None;
    }
    let triage = triage.json();
    let devices = triage["devices"].as_array()?;
    let findings = devices.iter().flat_map(|device| device["findings"].as_array().into_iter().flatten());
    let settings: Vec<&Value> = findings.filter(|found| found["kind"] == "settings").collect();
    if settings.is_empty() {
        return None;
    }
    let report = answer(&["report", file, "--format", "markdown"]).stdout.replace('\\', "");
    let sweep = &answer(&["simulate", file, "--sweep"]).stdout;
    let problems = settings.iter().filter_map(|found| {
        let (text, label) = (found["text"].as_str()?, found["label"].as_str()?);
        let exported = if label.is_empty() { "unset PYTORCH".to_owned() } else { format!("ALLOC_CONF={label}\n") };
        let is_told = report.contains(text) && sweep.contains(&exported);
        (!is_told).then(|| format!("{file}: {text} is not what the report or the sweep says\n{sweep}"))
    });
    Some(problems.collect())
}
