//! Two instants of one recording: what was allocated, freed and survived, to the byte, and a budget for what is left behind.
#![cfg(feature = "cli")]

use crate::support::{FIXTURES, fixture, memviz, names};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

const PARTS: [&str; 3] = ["born", "freed", "survived"];

fn diff(base: &str, new: &str, args: &[&str]) -> Value {
    memviz(&[&["diff", base, new, "--format", "json"], args].concat()).json()
}

fn bytes(lives: &Value, part: &str) -> i64 {
    lives[format!("{part}_bytes")].as_i64().unwrap()
}

/// Allocated plus survived equals `peak --at` of the later instant, freed plus survived that of the earlier one, for all
/// blocks and row by row.
#[test]
fn born_freed_and_survived_sum_to_both_instants() {
    let mut compared = 0;
    let instants = [["start", "peak"], ["peak", "end"], ["entry:3", "end"]];
    let groups = ["site", "category", "stack", "pool", "function"];
    let metrics = ["allocated", "active", "requested", "reserved"];
    let recordings = names(FIXTURES).into_iter().filter(|name| !name.starts_with("big") && *name != "ranks8");
    for (index, name) in recordings.enumerate() {
        let (path, metric) = (fixture(&name), metrics[index % 4]);
        let by = if metric == "reserved" { "site" } else { groups[index % 5] };
        let [from, to] = instants[index % 3];
        let args = ["--by", by, "--metric", metric];
        let run = memviz(&[
            "diff",
            &format!("{path}@{from}"),
            &format!("{path}@{to}"),
            "--format",
            "json",
            args[0],
            args[1],
            args[2],
            args[3],
        ]);
        if run.code != Some(0) {
            // Pools are not recorded, neither are stacks, or there is no third entry.
            assert!(["expected", "has "].iter().any(|part| run.stderr.contains(part)), "{name}: {}", run.stderr);
            continue;
        }
        let answer = run.json();
        let alone =
            [from, to].map(|at| memviz(&["peak", &path, "--at", at, "--metric", metric, "--format", "json"]).json());
        for device in answer["devices"].as_array().unwrap() {
            let of = |answer: &Value| {
                let found = answer["devices"].as_array().unwrap().iter().find(|it| it["device"] == device["device"]);
                found.unwrap()["peak"][format!("{metric}_bytes")].as_i64().unwrap()
            };
            let [born, freed, survived] = PARTS.map(|part| bytes(&device["lives"], part));
            assert_eq!((freed + survived, born + survived), (of(&alone[0]), of(&alone[1])), "{name} by {by}");
            let rows = device["rows"].as_array().unwrap();
            for row in rows {
                let [born, freed, survived] = PARTS.map(|part| bytes(&row["lives"], part));
                assert_eq!(
                    (row["base_bytes"].as_i64(), row["new_bytes"].as_i64()),
                    (Some(freed + survived), Some(born + survived))
                );
            }
            if device["inclusive"] == false {
                let unchanged = device["unchanged"]["bytes"].as_i64().unwrap();
                let sum = |part| rows.iter().map(|row| bytes(&row["lives"], part)).sum::<i64>();
                assert_eq!([sum("born"), sum("freed"), sum("survived") + unchanged], [born, freed, survived], "{name}");
            }
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Memory that `leak` leaves behind in a step appears again after the next one, at the line that keeps it.
#[test]
fn memory_left_by_a_step_is_found_at_its_line() {
    let path = fixture("leak");
    let answer = diff(&format!("{path}@step:3:end"), &format!("{path}@step:4:end"), &[]);
    let device = &answer["devices"][0];
    let left = bytes(&device["lives"], "born") - bytes(&device["lives"], "freed");
    assert!(left > 0 && left == device["delta_bytes"].as_i64().unwrap());
    let named = diff(&format!("{path}@annotation:step_2:end"), &format!("{path}@annotation:step_3:end"), &[]);
    let growth = |answer: &Value| answer["devices"][0]["delta_bytes"].as_i64();
    assert_eq!(growth(&answer), growth(&named), "steps are the ranges that are called like them");
}

#[test]
fn a_recording_is_read_once_for_both_instants() {
    let path = fixture("tiny");
    let bytes = crate::support::read_unpacked(&path);
    let run = crate::support::memviz_reading(&["diff", "--", "-@start", "-@end"], &bytes);
    assert!(run.expect(0).stdout.contains("allocated in between and still live"), "{}", run.stdout);
}

#[test]
fn instants_that_mean_nothing_are_mistakes() {
    let path = fixture("tiny");
    let swapped = memviz(&["diff", &format!("{path}@end"), &format!("{path}@start")]);
    swapped.expect_error("expected the earlier instant first");
    memviz(&["diff", &format!("{path}@pek"), &path]).expect_error("expected peak, oom, start, end, entry:N");
    memviz(&["diff", &format!("{path}@step:9"), &path]).expect_error("step");
}

/// A file with an `@` in its name is a file.
#[test]
fn a_file_may_be_called_like_an_instant() {
    let folder = TempDir::new().unwrap();
    let odd = folder.path().join("run@end").display().to_string();
    fs::copy(fixture("tiny"), &odd).unwrap();
    assert_eq!(diff(&odd, &fixture("tiny"), &[])["identical"], true);
}

#[test]
fn a_budget_limits_memory_left_behind() {
    let path = fixture("gpt_train");
    let answer = diff(&format!("{path}@step:1:end"), &format!("{path}@end"), &[]);
    let born = bytes(&answer["devices"][0]["lives"], "born");
    let check = |limit: i64| {
        let budget = format!("step:1:end..end={limit}B");
        memviz(&["check", &path, "--max-residue", &budget, "--format", "json"])
    };
    assert_eq!(check(born).expect(0).json()["checks"][0]["measured_bytes"], born);
    let exceeded: Value = serde_json::from_str(&check(born - 512).expect(1).stdout).unwrap();
    let sites = exceeded["checks"][0]["sites"].as_array().unwrap();
    assert_eq!((&exceeded["checks"][0]["basis"], sites.is_empty()), (&Value::from("born"), false));
    let unknown = memviz(&["check", &fixture("no_history"), "--max-residue", "start..end=1GiB"]);
    unknown.expect(2);
}

/// Both curves are drawn with the request at which two programs diverge.
#[test]
fn a_picture_shows_where_two_runs_part() {
    let draw = |base: &str, new: &str| memviz(&["diff", base, new, "--format", "svg"]).expect(0).stdout.clone();
    let (base, new) = (fixture("gpt_train"), fixture("gpt_train_ckpt"));
    assert!(draw(&base, &new).contains("the first 317 requests are the same"), "the first checkpointed block");
    assert!(!draw(&base, &base).contains("they part"));
    let instants = draw(&format!("{base}@step:1:end"), &format!("{base}@peak"));
    assert!(instants.contains("two instants") && !instants.contains("they part"));
}
