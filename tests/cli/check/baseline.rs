//! Baselines: recordings and earlier answers.

use super::program::{Alloc, snapshot};
use super::{Folder, GPT_PEAK, GPT_RESERVED, check, checks, labels};
use crate::support::{fixture, memviz};
use serde_json::Value;
use std::fs;

const CKPT_PEAK: u64 = 2_911_863_808;

/// Verdicts of the two comparisons, by name.
fn verdicts(checks: &[Value]) -> Vec<(&str, &str)> {
    checks.iter().map(|row| (row["name"].as_str().unwrap(), row["verdict"].as_str().unwrap())).collect()
}

#[test]
fn a_recording_and_an_earlier_answer_are_the_same_baseline() {
    let folder = Folder::new();
    let (small, large) = (fixture("gpt_train_ckpt"), fixture("gpt_train"));
    let answer = folder.write("check.json", check(&[&small, "--max-peak", "1GiB", "--format", "json"]).stdout);
    let peak = folder.write("peak.json", memviz(&["peak", &small, "--format", "json"]).stdout);
    let mut found = Vec::new();
    for baseline in [&small, &answer, &peak] {
        let run = check(&[&large, "--baseline", baseline, "--format", "json"]);
        run.expect(1);
        assert_eq!(verdicts(&checks(&run)), [("baseline-peak", "failed"), ("baseline-reserved", "failed")]);
        let growth = &checks(&run)[0];
        assert_eq!((&growth["limit_bytes"], &growth["measured_bytes"]), (&CKPT_PEAK.into(), &GPT_PEAK.into()));
        assert_eq!(growth["basis"], "grown");
        // The attention scores and activations of the blocks are no longer kept from the forward pass.
        assert_eq!(labels(growth)[..2], ["minigpt.py:28 forward", "minigpt.py:41 forward"]);
        found.push(checks(&run));
        // Less memory is not a failure.
        check(&[&small, "--baseline", &large]).expect(0);
        check(&[&small, "--baseline", baseline]).expect(0);
    }
    assert!(found.iter().all(|checks| *checks == found[0]));
}

/// Nobody knows which of two figures counts.
#[test]
fn an_answer_with_duplicates_is_not_a_baseline() {
    let folder = Folder::new();
    let path = fixture("tiny");
    let said = check(&[&path, "--max-peak", "1GiB", "--format", "json"]).stdout;
    let mut twice: Value = serde_json::from_str(&said).unwrap();
    let device = twice["devices"][0].clone();
    twice["devices"].as_array_mut().unwrap().push(device);
    // An answer is recognized by its start.
    let twice = format!("{{\"schema_version\": 1, {}", &twice.to_string()[1..]);
    for (text, part) in [(twice, "device 0 twice"), (format!("{said}{said}"), "two answers about")] {
        let run = check(&[&path, "--baseline", &folder.write("twice.json", text)]);
        run.expect(2);
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
}

/// A recording that began late is taken at its word, and so is an answer about it.
#[test]
fn an_answer_is_as_certain_as_its_recording() {
    let folder = Folder::new();
    for name in ["gpt_late", "ring", "no_history", "state_only", "skip_actions", "multi_gpu"] {
        let path = fixture(name);
        let peak = folder.write("peak.json", memviz(&["peak", &path, "--format", "json"]).stdout);
        let codes = [&path, &peak].map(|baseline| {
            let run = check(&[&path, "--baseline", baseline, "--format", "json"]);
            (run.code, verdicts(&checks(&run)).iter().map(|(_, verdict)| (*verdict).to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(codes[0], codes[1], "{name}");
    }
}

#[test]
fn tolerance_is_exact() {
    let folder = Folder::new();
    let answer = |mib| check(&[&folder.write("a.pickle", one(mib)), "--max-peak", "1GiB", "--format", "json"]).stdout;
    let base = folder.write("base.json", answer(20));
    let new = folder.write("new.pickle", one(22));
    for (tolerance, code) in
        [("0", 1), ("2MiB", 0), ("2097151", 1), ("10%", 0), ("9.999999%", 1), ("200%", 0), ("2097152 bytes", 0)]
    {
        let run = check(&[&new, "--baseline", &base, "--tolerance", tolerance]);
        assert_eq!(run.code, Some(code), "{tolerance}: {}", run.stdout);
    }
}

#[test]
fn growth_can_be_shown_without_being_judged() {
    let folder = Folder::new();
    let base = folder.path("base.json");
    // Paths in a configuration file are relative to it.
    let [small, large] = ["gpt_train_ckpt", "gpt_train"].map(|name| fs::canonicalize(fixture(name)).unwrap());
    let [small, large] = [small, large].map(|path| path.to_str().unwrap().to_owned());
    check(&[&small, "--baseline", &base, "--update-baseline"]).expect(0);
    let shown: [&str; 5] = [&large, "--baseline", &base, "--tolerance", "any"];

    let run = check(&shown);
    assert!(run.expect(0).stdout.contains("compared with the baseline, no budget set"), "{}", run.stdout);
    assert!(
        run.stdout.contains("over the baseline of 2.7") && run.stdout.contains("minigpt.py:28 forward"),
        "{}",
        run.stdout
    );
    for word in ["failed", "exceeded", "limit of"] {
        assert!(!run.stdout.contains(word), "{word} in {}", run.stdout);
    }
    let json = check(&[&shown[..], &["--format", "json"]].concat());
    assert_eq!(verdicts(&checks(&json)), [("baseline-peak", "shown"), ("baseline-reserved", "shown")]);
    // Other budgets are judged as without it, also the baseline of an entry.
    check(&[&shown[..], &["--max-peak", "4GiB"]].concat()).expect(1);
    let entry = format!("[[budget]]\ninput = {large:?}\nbaseline = {base:?}\n");
    let config = folder.write("memviz.toml", &entry);
    check(&[&shown[..], &["--config", &config]].concat()).expect(1);
    let config = folder.write("memviz.toml", entry + "tolerance = \"any\"\n");
    check(&[&large, "--config", &config]).expect(0);
    // What is only shown is no budget of a recording that no entry names.
    check(&[&[small.as_str()], &shown[1..], &["--config", &config]].concat()).expect_error("expected a budget");
    // What cannot be compared does not fail the check either, and says why.
    let run = check(&[&fixture("ring"), "--baseline", &base, "--tolerance", "any"]);
    assert!(run.expect(0).stdout.contains("only partly known"), "{}", run.stdout);
    let several = checks(&json)[0].to_string();
    assert!(several.contains("\"basis\":\"grown\""), "{several}");
}

/// A recording of one allocation.
fn one(mib: u64) -> Vec<u8> {
    snapshot(&[Alloc::new("train.py", 7, "step", mib)])
}

#[test]
fn lines_that_moved_are_the_same_sites() {
    let folder = Folder::new();
    let allocs = |shift: u64, sizes: [u64; 3]| {
        let lines = [10u64, 14, 30].into_iter().zip(sizes);
        let allocs: Vec<Alloc> =
            lines.map(|(line, mib)| Alloc::new("model.py", line + shift, "forward", mib)).collect();
        snapshot(&allocs)
    };
    let base = folder.write("base.pickle", allocs(0, [20, 30, 40]));
    let saved = folder.write("base.json", check(&[&base, "--max-peak", "1GiB", "--format", "json"]).stdout);
    let new = folder.write("new.pickle", allocs(5, [20, 36, 40]));
    for baseline in [&base, &saved] {
        let run = check(&[&new, "--baseline", baseline, "--format", "json"]);
        let growth = &checks(run.expect(1))[0];
        assert_eq!(labels(growth), ["model.py:19 forward"], "{growth}");
        assert_eq!(growth["sites"][0]["bytes"], 6u64 << 20);
    }
}

#[test]
fn updating_writes_what_was_measured_and_nothing_else() {
    let folder = Folder::new();
    let base = folder.path("base.json");
    let (small, large) = (fixture("gpt_train_ckpt"), fixture("gpt_train"));
    check(&[&small, "--baseline", &base]).expect_error("base.json");
    let run = check(&[&small, "--baseline", &base, "--update-baseline"]);
    assert!(run.expect(0).stderr.starts_with(&format!("wrote {base}, ")), "{run:?}");
    check(&[&small, "--baseline", &base]).expect(0);
    check(&[&large, "--baseline", &base]).expect(1);
    // Updating does not compare, but still judges other limits.
    check(&[&large, "--baseline", &base, "--update-baseline"]).expect(0);
    check(&[&large, "--baseline", &base]).expect(0);
    check(&[&large, "--baseline", &base, "--update-baseline", "--max-peak", "4GiB"]).expect(1);
    let saved: Value = serde_json::from_str(&fs::read_to_string(&base).unwrap()).unwrap();
    assert_eq!(saved["devices"][0]["maxima"]["reserved_bytes"], GPT_RESERVED);
    let before = fs::read(&base).unwrap();

    // A value that cannot be measured is not a baseline.
    for (name, args) in [("ring", &[] as &[&str]), ("no_history", &[]), ("empty", &[]), ("tiny", &["--max-leak", "1B"])]
    {
        let run = check(&[&[&fixture(name), "--baseline", &base, "--update-baseline"], args].concat());
        run.expect(2);
        assert!(run.stderr.contains("base.json: not written"), "{name}: {}", run.stderr);
        assert_eq!(fs::read(&base).unwrap(), before, "{name}");
    }
    check(&[&large, "no/such/file", "--baseline", &base, "--update-baseline"]).expect(2);
    assert_eq!(fs::read(&base).unwrap(), before);
    // Nor is a recording replaced by an answer about it.
    let recording = folder.write("recording.pickle.gz", fs::read(&large).unwrap());
    check(&[&large, "--baseline", &recording, "--update-baseline"]).expect_error("something else");
    assert_eq!(fs::read(&recording).unwrap(), fs::read(&large).unwrap());
    // No temporary file is left behind.
    let mut files: Vec<String> = crate::support::names(folder.0.path().to_str().unwrap());
    files.sort();
    assert_eq!(files, ["base.json", "recording.pickle.gz"]);
}

#[test]
fn several_inputs_have_a_line_each() {
    let folder = Folder::new();
    for (name, mib) in [("a.pickle", 20), ("b.pickle", 30)] {
        folder.write(name, one(mib));
    }
    folder.check(&["a.pickle", "b.pickle", "--baseline", "base.json", "--update-baseline"]).expect(0);
    assert_eq!(fs::read_to_string(folder.path("base.json")).unwrap().lines().count(), 2);
    folder.check(&["b.pickle", "a.pickle", "--baseline", "base.json"]).expect(0);
    folder.write("a.pickle", one(22));
    let run = folder.check(&["b.pickle", "a.pickle", "--baseline", "base.json"]);
    run.expect(1);
    assert!(run.stdout.contains("a.pickle (2 of 2 budgets exceeded)"), "{}", run.stdout);
    folder.write("c.pickle", one(20));
    folder.check(&["c.pickle", "--baseline", "base.json"]).expect_error("expected a baseline for c.pickle");
}

#[test]
fn baselines_that_tell_too_little_fail_closed() {
    let folder = Folder::new();
    let gpt = fixture("gpt_train");
    let answer =
        |name: &str, args: &[&str]| folder.write(name, memviz(&[&["peak", "--format", "json"], args].concat()).stdout);
    let window = answer("window.json", &[&gpt, "--from", "entry:5"]);
    // Its history is complete, and it contains an unknown key.
    let unknown_keys = format!("{}/unknown-keys.pickle", crate::support::MALFORMED);
    let unknown = answer("unknown.json", &[&unknown_keys]);
    let lost = answer("lost.json", &[&fixture("ring")]);
    let wordless = memviz(&["peak", "--format", "json", &gpt]).stdout.replacen("\"certainty\"", "\"of_old\"", 1);
    assert!(wordless.contains("of_old"), "{wordless}");
    let wordless = folder.write("wordless.json", wordless);
    for baseline in [&fixture("ring"), &fixture("no_history"), &unknown_keys, &window, &unknown, &lost, &wordless] {
        let run = check(&[&gpt, "--baseline", baseline, "--tolerance", "80GiB"]);
        run.expect(2);
        assert!(run.stderr.contains("the baseline's own figure is not exact"), "{baseline}: {}", run.stderr);
    }
    // Devices that only one of them has.
    let multi = fixture("multi_gpu");
    let run = check(&[&multi, "--baseline", &gpt, "--tolerance", "80GiB", "--format", "json"]);
    run.expect(2);
    let unknown: Vec<Value> = checks(&run).into_iter().filter(|row| row["verdict"] == "unknown").collect();
    assert!(unknown.iter().all(|row| row["device"] == 1) && unknown.len() == 2, "{unknown:?}");
    let run = check(&[&gpt, "--baseline", &multi, "--tolerance", "80GiB"]);
    assert!(run.expect(2).stderr.contains("the recording has no data on it"), "{}", run.stderr);
    check(&[&gpt, "--baseline", &multi, "--tolerance", "80GiB", "--device", "0"]).expect(0);
}

#[test]
fn baselines_that_cannot_be_read_are_one_line_and_2() {
    let folder = Folder::new();
    let gpt = fixture("gpt_train");
    let answer = check(&[&gpt, "--max-peak", "1GiB", "--format", "json"]).stdout;
    for (text, part) in [
        (String::new(), "empty"),
        (answer.replacen("\"schema_version\": 1", "\"schema_version\": 2", 1), "expected schema_version 1, found 2"),
        (answer.replacen("\"schema_version\": 1", "\"schema_version\": \"1\"", 1), "found \"1\""),
        (answer.replacen("\"command\": \"check\"", "\"command\": \"leaks\"", 1), "memviz leaks"),
        (answer.replacen("\"maxima\"", "\"minima\"", 1), "maxima"),
        (answer.replacen(&GPT_PEAK.to_string(), "99999999999999999999999", 9), "expected"),
        (answer[..answer.len() / 2].to_owned(), ""),
        ("{\"schema_version\": 1}".to_owned(), "no command"),
        ("{}".to_owned(), "not a profiler trace"),
        ("{\"a\": [".to_owned(), ""),
        ("nonsense".to_owned(), ""),
    ] {
        let baseline = folder.write("base.json", text);
        let run = check(&[&gpt, "--baseline", &baseline]);
        run.expect_error(part);
        assert!(run.stderr.starts_with(&format!("memviz: {baseline}: ")), "{:?}", run.stderr);
    }
}
