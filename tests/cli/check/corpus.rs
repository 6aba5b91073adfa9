//! Every recording, with a budget one byte above what PyTorch counted, equal to it, and one byte below.

use crate::support::{self, Case, assert_none, cases};
use memviz::analysis::check::CheckVerdict;
use memviz::analysis::check::{Budgets, CheckOptions};
use rayon::prelude::*;

/// Verdicts, as exit codes, for a budget one byte above the true peak, equal to it and one byte below, on devices whose
/// recording does not show the peak exactly.
const INEXACT: &[(&str, usize, [i32; 3], &str)] = &[
    ("no_history", 0, [2, 2, 2], "the peak before the dump is not known"),
    ("no_history_t201", 0, [2, 2, 2], "the peak before the dump is not known"),
    ("no_history_t231", 0, [2, 2, 2], "the peak before the dump is not known"),
    ("state_only", 0, [2, 2, 2], "the peak before the dump is not known"),
    ("multi_gpu_t201", 1, [2, 2, 2], "PyTorch 2.0 records the current device alone"),
    ("pinned_only_t215", 0, [2, 2, 1], "the peak before the dump is not known, but is not less than at the dump"),
    ("gpt_late_t201", 0, [2, 2, 1], "PyTorch 2.0 records no frees of older blocks"),
    ("cuda_graph_t201", 0, [2, 2, 1], "PyTorch 2.0 records no frees of older blocks"),
    ("ring", 0, [2, 2, 1], "the peak may have been in what the ring buffer dropped"),
    ("paused", 0, [2, 2, 1], "the peak may have been before the pause"),
    ("skip_actions", 0, [0, 0, 2], "allocated is only known to be at most active"),
];

#[test]
fn one_byte_decides_on_every_fixture() {
    let cases = cases(support::FIXTURES);
    assert!(cases.len() > 100, "only {} fixtures were found", cases.len());
    assert_none(&problems(&cases));
    let known = |name: &str| cases.iter().any(|case| case.name == name);
    let unused: Vec<_> = INEXACT.iter().filter(|row| !known(row.0)).collect();
    assert!(unused.is_empty(), "there are no such fixtures: {unused:?}");
}

#[test]
fn one_byte_decides_on_the_whole_corpus() {
    let Some(cases) = support::corpus_cases() else { return };
    assert_none(&problems(&cases));
}

fn problems(cases: &[Case]) -> Vec<String> {
    cases.par_iter().flat_map_iter(case_problems).collect()
}

fn case_problems(case: &Case) -> Vec<String> {
    let recording = support::open(&case.path);
    let devices = case.truth["devices"].as_array().unwrap();
    let mut problems = Vec::new();
    for (device, counted) in devices.iter().enumerate() {
        let peak = counted["memory_stats"]["allocated_bytes.all.peak"].as_u64().unwrap_or(0);
        let Some(below) = peak.checked_sub(1) else { continue };
        let expected = INEXACT.iter().find(|row| row.0 == case.name && row.1 == device).map_or([0, 0, 1], |row| row.2);
        let budgets = [peak + 1, peak, below].map(|limit| {
            Budgets::default()
                .devices(vec![i32::try_from(device).unwrap()])
                .max_peak(Some(limit))
                .accept_late_start(true)
        });
        let report = recording.check(&CheckOptions::default().budgets(budgets.to_vec()).top(1));
        let codes: Vec<i32> = report.checks.iter().map(|check| exit_code(check.verdict)).collect();
        if codes != expected {
            problems.push(format!("{} device {device}: expected {expected:?}, found {codes:?}", case.path));
        }
    }
    problems
}

/// What `memviz check` ends with when this is its only budget.
fn exit_code(verdict: CheckVerdict) -> i32 {
    match verdict {
        CheckVerdict::Passed | CheckVerdict::Shown => 0,
        CheckVerdict::Failed => 1,
        CheckVerdict::Unknown => 2,
    }
}

/// PyTorch counted nothing in these, and an empty recording looks the same as one that was off.
#[test]
fn a_recording_of_nothing_cannot_be_judged() {
    for name in ["empty", "empty_t201", "empty_t215", "empty_t231"] {
        super::check(&[&support::fixture(name), "--max-peak", "0"]).expect(2);
    }
}
