//! `memviz.toml`: budgets that a repository commits.

use super::{Folder, GPT_PEAK, checks};
use crate::support::{self, Run, fixture};
use serde_json::Value;
use std::fs;

/// A folder with two recordings below `runs`.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("runs")).unwrap();
    for (name, file) in [("gpt_train", "runs/gpt.pickle.gz"), ("tiny", "runs/tiny.pickle.gz")] {
        folder.write(file, fs::read(fixture(name)).unwrap());
    }
    folder
}

/// Input, entry, name and verdict of every check.
fn verdicts(run: &Run) -> Vec<String> {
    let answers = serde_json::Deserializer::from_str(&run.stdout).into_iter::<Value>();
    let mut verdicts = Vec::new();
    for answer in answers {
        let answer = answer.unwrap();
        for check in answer["checks"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or("flag").to_owned();
            let path = text(&answer["input"]["path"]);
            verdicts.push([path, text(&check["budget"]), text(&check["name"]), text(&check["verdict"])].join(" "));
        }
    }
    verdicts
}

#[test]
fn the_file_in_the_working_directory_names_inputs_and_budgets() {
    let folder = folder();
    folder.write(
        "memviz.toml",
        r#"
            [[budget]]
            name = "all"
            input = "runs/*.pickle.gz"
            max-peak = "4GiB"
            [[budget]]
            name = "small"
            input = "runs/t*"
            max-reserved = "20MiB"
            max-site = ["nothing=0", "tiny|cases=1GiB"]
        "#,
    );
    let run = folder.check(&["--format", "json"]);
    run.expect(1);
    let expected = [
        "runs/gpt.pickle.gz all max-peak failed",
        "runs/tiny.pickle.gz all max-peak passed",
        "runs/tiny.pickle.gz small max-reserved failed",
        "runs/tiny.pickle.gz small max-site passed",
        "runs/tiny.pickle.gz small max-site passed",
    ];
    assert_eq!(verdicts(&run), expected);
    // Inputs on the command line are a choice among them, however their paths are written.
    let run = folder.check(&["./runs/../runs/tiny.pickle.gz", "--format", "json"]);
    let tiny: Vec<String> = expected[1..].iter().map(|it| it.replacen("runs/", "./runs/../runs/", 1)).collect();
    assert_eq!(verdicts(run.expect(1)), tiny);
    folder.check(&["runs/gpt.pickle.gz", "no/such/file", "--max-peak", "80GiB"]).expect(2);
}

#[test]
fn flags_replace_the_same_budget_and_leave_others() {
    let folder = folder();
    folder.write(
        "memviz.toml",
        "capacity = \"4GiB\"\n[[budget]]\ninput = \"runs/g*\"\nmax-peak = \"100%\"\nmax-reserved = \"100%\"\n",
    );
    let gpt = "runs/gpt.pickle.gz";
    let run = folder.check(&["--max-peak", "5GiB", "--format", "json"]);
    let entry = format!("{gpt} runs/g* max-reserved failed");
    assert_eq!(verdicts(run.expect(1)), [format!("{gpt} flag max-peak passed"), entry]);
    let run = folder.check(&["--capacity", "5GiB", "--format", "json"]);
    run.expect(0);
    assert_eq!(checks(&run)[0]["limit_bytes"], 5u64 << 30);
    // An input that no entry names has the flags only; without any it has no budget.
    let run = folder.check(&["runs/tiny.pickle.gz", "--max-peak", "1GiB", "--format", "json"]);
    assert_eq!(verdicts(run.expect(0)), ["runs/tiny.pickle.gz flag max-peak passed"]);
    folder.check(&["runs/tiny.pickle.gz"]).expect_error("expected a budget");
    folder.check(&[gpt, "--device", "1"]).expect(2);
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = folder();
    let config = folder.write(
        "runs/budgets.toml",
        "[[budget]]\ninput = \"gpt.*\"\nbaseline = \"tiny.pickle.gz\"\ntolerance = \"80GiB\"\n",
    );
    let run = support::memviz(&["check", "--config", &config, "--format", "json"]);
    assert_eq!(verdicts(run.expect(0)).len(), 2);
    assert_eq!(checks(&run)[0]["measured_bytes"], GPT_PEAK);
    let run = folder.check(&["--config", "runs/budgets.toml", "--format", "json"]);
    assert_eq!(verdicts(run.expect(0))[0], "runs/gpt.pickle.gz gpt.* baseline-peak passed");
}

#[test]
fn patterns_without_a_match_fail_closed() {
    let folder = folder();
    folder.write("memviz.toml", "[[budget]]\ninput = \"runs/*.pickle.gz\"\nmax-peak = \"80GiB\"\n");
    folder.check(&[]).expect(0);
    let more = "[[budget]]\ninput = \"rums/*\"\nmax-peak = \"80GiB\"\n";
    let text = fs::read_to_string(folder.path("memviz.toml")).unwrap();
    folder.write("memviz.toml", text.clone() + more);
    folder.check(&[]).expect_error("\"rums/*\"");
    folder.write("memviz.toml", text + "[[budget]]\ninput = \"runs/[\"\nmax-peak = \"80GiB\"\n");
    folder.check(&[]).expect_error("\"runs/[\"");
}

/// A name that is not UTF-8 matches as well: a recording that is passed over is a budget that nobody checks.
#[cfg(target_os = "linux")]
#[test]
fn patterns_match_names_that_are_not_text() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    folder.write("memviz.toml", "[[budget]]\ninput = \"runs/t*.pickle.gz\"\nmax-peak = \"50MiB\"\n");
    folder.check(&[]).expect(0);
    let name = std::ffi::OsStr::from_bytes(b"t\xff.pickle.gz");
    fs::write(std::path::Path::new(&folder.path("runs")).join(name), fs::read(fixture("gpt_train")).unwrap()).unwrap();
    folder.check(&[]).expect(1);
}

#[test]
fn a_file_without_budgets_leaves_them_to_flags() {
    let folder = folder();
    for text in ["[rehearse]\ngpu = \"l4\"\n", "capacity = \"1GiB\"\n", ""] {
        folder.write("memviz.toml", text);
        let run = folder.check(&["runs/tiny.pickle.gz", "--max-peak", "1GiB", "--format", "json"]);
        assert_eq!(verdicts(run.expect(0)), ["runs/tiny.pickle.gz flag max-peak passed"], "{text:?}");
        folder.check(&["runs/tiny.pickle.gz", "--max-peak", "1MiB"]).expect(1);
        folder.check(&["runs/tiny.pickle.gz"]).expect_error("expected a budget");
        folder.check(&[]).expect_error("memviz.toml: expected at least one [[budget]], found none");
        folder.check(&["--max-peak", "1GiB"]).expect_error("memviz.toml: expected at least one [[budget]]");
    }
}

#[test]
fn mistakes_in_the_file_are_one_line_and_2() {
    let folder = folder();
    for (text, part) in [
        ("[[budget]]\ninput = \"*\"\nmax-peek = \"4GiB\"\n", "line 3: unknown field `max-peek`"),
        ("budgets = 1\n", "line 1: unknown field `budgets`"),
        ("[[budget]]\ninput = \"*\"\nmax-peak = \"10XB\"\n", "10XB"),
        ("[[budget]]\ninput = \"*\"\nmax-peak = -5\n", "\"-5\""),
        ("[[budget]]\ninput = \"*\"\nmax-peak = 99999999999999999999\n", "line 3"),
        ("[[budget]]\ninput = \"*\"\nmax-peak = \"90%\"\n", "capacity"),
        ("[[budget]\n", "line 1"),
        ("\u{0}", "line 1"),
    ] {
        folder.write("memviz.toml", text);
        // With inputs and flags as well: a broken file is never passed over.
        for args in [&[] as &[&str], &["runs/tiny.pickle.gz", "--max-peak", "1GiB"]] {
            let run = folder.check(args);
            run.expect_error(part);
            assert!(run.stderr.starts_with("memviz: memviz.toml: "), "{:?}", run.stderr);
        }
    }
    folder.write("memviz.toml", [0xff, 0xfe]);
    folder.check(&[]).expect_error("memviz.toml");
}
