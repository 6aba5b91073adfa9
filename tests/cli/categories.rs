//! Categories of the user's own, in `[categories]` of `memviz.toml`.

use crate::support::{command, fixture, memviz};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

const CONFIG: &str = r#"
[categories]
attention = 'minigpt\.py:(26|28|41) '
everything-in-minigpt = 'minigpt\.py'
input = 'adamw\.py'

[[budget]]
input = "*.pickle.gz"
max-peak = "8GiB"
"#;

/// Runs memviz in a folder with that configuration.
fn run(folder: &TempDir, args: &[&str]) -> crate::support::Run {
    command(args).current_dir(folder.path()).output().unwrap().into()
}

fn folder(config: &str, recordings: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("memviz.toml"), config).unwrap();
    for name in recordings {
        fs::copy(fixture(name), folder.path().join(format!("{name}.pickle.gz"))).unwrap();
    }
    folder
}

fn rows(device: &Value) -> Vec<(String, u64)> {
    let rows = device["attribution"]["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["label"].as_str().unwrap().to_owned(), row["bytes"].as_u64().unwrap())).collect()
}

#[test]
fn own_categories_take_precedence_and_rows_sum() {
    let folder = folder(CONFIG, &["gpt_train"]);
    let answer = run(&folder, &["peak", "--by", "category", "--format", "json", "gpt_train.pickle.gz"]).json();
    let device = &answer["devices"][0];
    let bytes = |label: &str| rows(device).iter().filter(|row| row.0 == label).map(|row| row.1).sum::<u64>();
    assert_eq!(rows(device).iter().map(|row| row.1).sum::<u64>(), device["attribution"]["total_bytes"]);
    // What `--include` keeps is the same memory. Of two that match, the first one counts.
    let kept = |pattern: &str| {
        let args = ["peak", "--include", pattern, "--no-infer", "--format", "json", &fixture("gpt_train")];
        let answer = memviz(&args).json();
        rows(&answer["devices"][0]).iter().filter(|row| !row.0.starts_with("(filtered")).map(|row| row.1).sum::<u64>()
    };
    let attention = kept(r"minigpt\.py:(26|28|41) ");
    assert!(attention > 0);
    assert_eq!(bytes("attention"), attention);
    assert_eq!(bytes("everything-in-minigpt"), kept(r"minigpt\.py") - attention);
    let rows = device["attribution"]["rows"].as_array().unwrap();
    let own = rows.iter().find(|row| row["label"] == "attention").unwrap();
    assert_eq!((own["inferred"].clone(), own["evidence"].as_array().unwrap().len()), (Value::Bool(false), 1));
    assert_eq!(own["evidence"][0]["reason"], "a pattern of memviz.toml matches its stack");
}

#[test]
fn every_command_with_categories_knows_them() {
    let folder = folder(CONFIG, &["gpt_train", "gpt_train_ckpt", "oom"]);
    let asked: [&[&str]; 8] = [
        &["peak", "--by", "category", "gpt_train.pickle.gz"],
        &["flamegraph", "--by", "category", "--format", "folded", "gpt_train.pickle.gz"],
        &["timeline", "--by", "category", "-o", "-", "gpt_train.pickle.gz"],
        &["diff", "--by", "category", "gpt_train.pickle.gz", "gpt_train_ckpt.pickle.gz"],
        &["diff", "--by", "category", "gpt_train.pickle.gz@start", "gpt_train.pickle.gz@end", "--format", "json"],
        &["oom", "--by", "category", "oom.pickle.gz"],
        &["fragmentation", "--by", "category", "-o", "-", "--format", "svg", "gpt_train.pickle.gz"],
        &["report", "--by", "category", "-o", "-", "--format", "markdown", "gpt_train.pickle.gz"],
    ];
    for args in asked {
        let answer = run(&folder, args);
        assert!(answer.expect(0).stdout.contains("everything-in-minigpt"), "{args:?}: {}", answer.stdout);
    }
    // Elsewhere, and for budgets, categories mean what they always mean.
    for args in [&["gpt_train.pickle.gz"] as &[&str], &["check", "gpt_train.pickle.gz"]] {
        let answer = run(&folder, args);
        assert!(!answer.expect(0).stdout.contains("everything-in-minigpt"), "{}", answer.stdout);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    for (config, part) in [
        ("[categories]\nattention = '('", r#"memviz.toml: category "attention": expected a regular expression"#),
        ("[categories]\nattention = 7", "memviz.toml: "),
        ("[categories", "memviz.toml: "),
    ] {
        let folder = folder(config, &["tiny"]);
        run(&folder, &["peak", "--by", "category", "tiny.pickle.gz"]).expect_error(part);
        run(&folder, &["peak", "tiny.pickle.gz"]).expect(0);
    }
}
