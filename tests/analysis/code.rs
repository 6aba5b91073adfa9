//! Which code answers name: the user's lines, a library's, C++ frames; and what they report as missing.
#![cfg(feature = "cli")]

use crate::support::{fixture, memviz};
use serde_json::Value;
use std::collections::BTreeMap;

/// A model of `transformers`, trained at one line, with C++ stacks.
const LIBRARY: &str = "llama_hf_all";
/// The line that runs it.
const LINE: &str = "cases.py:385 _llama_train";
/// A profiler trace with modules.
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
/// What every stack with C++ frames has.
const PLUMBING: [&str; 3] = ["c10::cuda::", "_PyEval", "__libc_start"];

fn json(args: &[&str]) -> Value {
    memviz(&[args, &["--format", "json"]].concat()).json()["devices"][0]["attribution"].clone()
}

/// Bytes by label.
fn rows(attribution: &Value) -> BTreeMap<String, u64> {
    let rows = attribution["rows"].as_array().unwrap().iter();
    let rows: BTreeMap<String, u64> =
        rows.map(|row| (row["label"].as_str().unwrap().to_owned(), row["bytes"].as_u64().unwrap())).collect();
    assert_eq!(rows.values().sum::<u64>(), attribution["total_bytes"].as_u64().unwrap());
    rows
}

#[test]
fn stacks_for_people_leave_plumbing_out() {
    let library = fixture(LIBRARY);
    let oom = fixture("oom");
    for args in [
        &["peak", &library, "--by", "stack"] as &[&str],
        &["peak", &library, "--by", "stack", "--format", "markdown"],
        &["report", &library, "--format", "markdown"],
        &["oom", &oom, "--by", "stack"],
    ] {
        let folded = memviz(args).expect(0).stdout.clone();
        let all = memviz(&[args, &["--all-frames"]].concat()).expect(0).stdout.clone();
        assert!(folded.lines().count() <= all.lines().count(), "{args:?}");
        for part in PLUMBING {
            assert!(!folded.contains(part), "{args:?} shows {part}");
        }
    }
    let by_stack = ["peak", &library, "--by", "stack"];
    let all = memviz(&[&by_stack as &[&str], &["--all-frames"]].concat()).expect(0).stdout.clone();
    let csv = memviz(&[&by_stack as &[&str], &["--format", "csv"]].concat()).expect(0).stdout.clone();
    for part in PLUMBING {
        assert!(all.contains(part) && csv.contains(part), "{part} is gone altogether");
    }
    let folded = memviz(&by_stack).expect(0).stdout.clone();
    assert!(folded.contains("torch/nn/modules/module.py") && folded.contains(LINE), "Python frames stay:\n{folded}");
}

#[test]
fn a_librarys_lines_replace_the_line_that_runs_its_model() {
    let path = fixture(LIBRARY);
    let attribution = json(&["peak", &path]);
    assert_eq!(attribution["library_below"], serde_json::json!([LINE]));
    let (down, up) = (rows(&attribution), rows(&json(&["peak", &path, "--own", ""])));
    // Memory that is not below that line stays the same, and the rest has the same sum.
    let elsewhere = |(label, _): &(&String, &u64)| !label.contains("transformers/") && !label.ends_with(LINE);
    let others = |rows: &BTreeMap<String, u64>| -> Vec<(String, u64)> {
        rows.iter().filter(elsewhere).map(|(label, &bytes)| (label.clone(), bytes)).collect()
    };
    assert_eq!(others(&down), others(&up));
    assert!(!others(&down).is_empty());
    assert!(down.keys().filter(|label| label.starts_with("transformers/models/llama/")).count() > 3, "{down:?}");
    assert!(up.keys().all(|label| !label.contains("transformers/")), "{up:?}");

    let text = memviz(&["peak", &path]).expect(0).stdout.clone();
    assert!(text.contains(&format!("{LINE} runs a library's model")), "{text}");
    assert!(!memviz(&["peak", &path, "--own", ""]).expect(0).stdout.contains("a library's model"));
    let oom = memviz(&["oom", &path]).expect(0).stdout.clone();
    assert!(oom.contains("modeling_llama.py") && oom.contains("a library's model"), "{oom}");
    // Comparisons stay with the user's lines.
    let diff = memviz(&["diff", &path, &path, "--format", "json"]).expect(0).stdout.clone();
    assert!(!diff.contains("\"label\": \"transformers/"), "{diff}");
}

#[test]
fn a_model_of_the_users_own_stays_at_its_lines() {
    for name in ["gpt_train", "multi_gpu"] {
        let attribution = json(&["peak", &fixture(name)]);
        assert_eq!(attribution["library_below"], Value::Null, "{name}");
    }
}

#[test]
fn packages_and_paths_can_be_ones_own() {
    let path = fixture(LIBRARY);
    let package = rows(&json(&["peak", &path, "--own", "^transformers$"]));
    let file = rows(&json(&["peak", &path, "--own", "models/llama/modeling_llama"]));
    let torch = rows(&json(&["peak", &path, "--own", "^transformers$", "--own", "site-packages/torch/nn/functional"]));
    assert!(package.keys().any(|label| label.starts_with("transformers/activations.py")), "{package:?}");
    assert!(file.keys().all(|label| !label.starts_with("transformers/activations.py")), "{file:?}");
    assert!(file.keys().any(|label| label.contains("modeling_llama.py")), "{file:?}");
    assert!(torch.keys().any(|label| label.contains("torch/nn/functional.py")), "{torch:?}");
    memviz(&["peak", &path, "--own", "("]).expect_error("--own");
    // The part of the training step that a stack shows does not depend on the owner of the code.
    let category = |own: &[&str]| rows(&json(&[&["peak", &path as &str, "--by", "category"], own].concat()));
    assert_eq!(category(&[]), category(&["--own", "."]));
}

#[test]
fn modules_have_paths() {
    let trace = rows(&json(&["peak", TRACE, "--by", "module-path"]));
    let named = rows(&json(&["peak", TRACE, "--by", "nn-module"]));
    for (path, modules) in [
        ("GPT.Linear", "GPT_0 / Linear_8"),
        ("GPT.Block[0].MLP.Linear[0]", "GPT_0 / Block_0 / MLP_0 / Linear_2"),
        ("GPT.Block[1].MLP.Linear[1]", "GPT_0 / Block_1 / MLP_1 / Linear_7"),
        ("GPT.Block[1].Attention.Linear[0]", "GPT_0 / Block_1 / Attention_1 / Linear_4"),
    ] {
        assert_eq!(trace.get(path), named.get(modules), "{path} in {trace:?}");
        assert!(trace.contains_key(path), "{trace:?}");
    }
    let snapshot = json(&["peak", &fixture("gpt_train"), "--by", "module-path"]);
    let blocks = rows(&snapshot).keys().filter(|label| label.contains("[1]")).count();
    assert!(blocks > 0, "no call is numbered: {snapshot:#}");
    let numbered =
        snapshot["rows"].as_array().unwrap().iter().filter(|row| row["label"].as_str().unwrap().contains('['));
    numbered.for_each(|row| assert_eq!(row["inferred"], true, "{row}"));
}

#[test]
fn missing_parts_come_with_code_that_records_them() {
    let (new, old) = ("max_entries=1_000_000)", "True, trace_alloc_max_entries=1_000_000,");
    for (name, missing, code) in [
        ("no_history", "no entries were recorded", new),
        ("no_history_t231", "no entries were recorded", new),
        ("no_history_t201", "no entries were recorded", old),
        ("state_only", "only one entry was kept", new),
    ] {
        let path = fixture(name);
        for command in ["peak", "info", "oom", "leaks", "checkpoint", "fragmentation"] {
            let text = memviz(&[command, &path]).expect(0).stdout.clone();
            assert!(text.contains(missing) && text.contains(code), "{command} {name}:\n{text}");
            assert!(!text.contains("(before the recording)") || name == "state_only", "{command} {name}:\n{text}");
            let quiet = memviz(&[command, &path, "-q"]).expect(0).stdout.clone();
            assert!(text.starts_with(&quiet) && !quiet.contains(missing), "{command} {name}:\n{quiet}");
            let json = memviz(&[command, &path, "--format", "json"]).expect(0).stdout.clone();
            assert!(!json.contains(missing), "{command} {name}");
        }
    }
    let late = memviz(&["peak", &fixture("gpt_late_t201")]).expect(0).stdout.clone();
    let last = late.lines().last().unwrap();
    assert!(last.contains("trace_alloc_max_entries"), "{late}");
    for complete in ["gpt_train", "multi_gpu", "empty", "oom"] {
        let text = memviz(&["peak", &fixture(complete)]).expect(0).stdout.clone();
        assert!(!text.contains("_record_memory_history"), "{complete}:\n{text}");
    }
    let timeline = "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.json.gz";
    assert!(memviz(&["peak", timeline]).expect(0).stdout.contains("with_stack=True) as prof:"));
    assert!(!memviz(&["peak", TRACE]).expect(0).stdout.contains("with_stack=True"));
}

#[test]
fn a_failed_request_is_not_denied_where_it_may_have_been() {
    let text = |name: &str| memviz(&["oom", &fixture(name)]).expect(0).stdout.clone();
    assert!(text("gpt_train").starts_with("no request failed during the recording"));
    assert!(text("state_only").starts_with("no request failed in the recorded part"));
    assert!(text("no_history").starts_with("no history was recorded, so whether a request failed is unknown"));
}
