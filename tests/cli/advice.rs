//! Answers that give advice: no two contradict each other, and each explains what it shows.

use crate::support::{FIXTURES, answer, assert_none, fixture, memviz, names};
use serde_json::Value;

const STORIES: &str = "fixtures/stories";

fn story(name: &str) -> String {
    format!("{STORIES}/{name}/snapshot.pickle.gz")
}

/// All recordings that are small enough to ask several times.
fn recordings() -> Vec<String> {
    let snapshots = names(FIXTURES).into_iter().filter(|name| !name.starts_with("big") && name != "ranks8");
    snapshots.map(|name| fixture(&name)).chain(names(STORIES).iter().map(|name| story(name))).collect()
}

/// A report recommends the same as the triage, with its lines of Python, in Markdown and HTML.
#[test]
fn a_report_has_the_code_of_each_change_and_its_alternatives() {
    let (mut codes, mut others) = (0, 0);
    for path in recordings() {
        let triage = answer(&["triage", &path, "--format", "json"]);
        if triage.code != Some(0) {
            continue;
        }
        let triage = triage.json();
        let advice = triage["devices"].as_array().unwrap().iter().flat_map(|device| {
            let all = device["advice"].as_array().unwrap();
            all.iter().take(3)
        });
        let advice: Vec<&Value> = advice.collect();
        if advice.is_empty() {
            continue;
        }
        let markdown = &answer(&["report", &path, "--format", "markdown"]).stdout;
        let html = memviz(&["report", &path, "--format", "html"]).stdout;
        let html = html.replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&");
        let has = |code: &Value, path: &str| {
            for line in code.as_str().unwrap().lines() {
                assert!(markdown.contains(line), "{path}: Markdown lacks {line}\n{markdown}");
                assert!(html.contains(line), "{path}: HTML lacks {line}");
            }
        };
        for advice in advice {
            has(&advice["code"], &path);
            codes += 1;
            for other in advice["alternatives"].as_array().unwrap() {
                let plain = markdown.replace('\\', "");
                assert!(plain.contains(other["change"].as_str().unwrap()), "{path}: {other}\n{plain}");
                has(&other["code"], &path);
                others += 1;
            }
        }
    }
    assert!(codes > 20 && others > 0, "{codes} {others}");
}

/// Each character of the bar has its name below it, and each star its footnote, on a first screen.
#[test]
fn a_first_screen_explains_its_marks() {
    let mut problems = Vec::new();
    for path in recordings() {
        let run = answer(&["triage", &path]);
        let lines: Vec<&str> = run.stdout.lines().collect();
        for (index, bar) in lines.iter().enumerate().filter(|(_, line)| is_bar(line)) {
            let names = lines[index + 1..].iter().take_while(|line| !line.starts_with(' ') && !line.is_empty());
            let names: Vec<&str> = names.flat_map(|line| line.split(", ")).map(str::trim).collect();
            let mut fills: Vec<char> = bar.chars().collect();
            fills.dedup();
            let unnamed = fills.iter().filter(|fill| !names.iter().any(|name| name.starts_with(&format!("{fill} "))));
            problems.extend(unnamed.map(|fill| format!("{path}: {fill:?} has no name: {names:?}")));
        }
        let has_footnote = run.stdout.contains("* inferred");
        let has_star = lines.iter().any(|line| line.ends_with(" *"));
        if has_footnote != has_star {
            problems.push(format!("{path}: star {has_star}, footnote {has_footnote}\n{}", run.stdout));
        }
    }
    assert_none(&problems);
}

fn is_bar(line: &str) -> bool {
    line.chars().count() == 60 && line.chars().all(|next| "█▓▒░▚·-".contains(next))
}

/// What `oom` calls a leak, `leaks` does not call unknown, whether or not it finds steps to measure it by.
#[test]
fn a_leak_is_one_in_every_answer() {
    let mut told = 0;
    for path in recordings() {
        if answer(&["oom", &path]).stdout.contains("cause: memory that accumulates") {
            let leaks = &answer(&["leaks", &path]).stdout;
            let says = ["leaks ", "memory accumulates"].iter().any(|says| leaks.contains(says));
            assert!(says && !leaks.contains("cannot detect leaks"), "{path}\n{leaks}");
            told += 1;
        }
    }
    assert!(told > 0, "no recording whose request failed because of a leak");
}

/// A program that cannot be planned for has its cures, too, with what they save of the recording.
#[test]
fn cures_are_there_where_nothing_can_be_planned() {
    let path = fixture("oom");
    let advice = memviz(&["triage", &path, "--format", "json"]).json()["devices"][0]["advice"].clone();
    let changes: Vec<&str> =
        advice.as_array().unwrap().iter().map(|advice| advice["change"].as_str().unwrap()).collect();
    assert!(changes.len() > 1);
    let fit = memviz(&["fit", &path]).stdout;
    for change in changes {
        assert!(fit.contains(change), "{change}: {fit}");
    }
}

/// What is said of remedies without effect.
const USELESS: [&str; 3] = ["also fails with", "is already enabled", "alone would not help"];

/// A remedy without effect is not advice: the report names it in one line after all that help.
#[test]
fn useless_remedies_follow_useful_ones() {
    let mut told = 0;
    for path in recordings() {
        let oom = memviz(&["oom", &path, "--format", "json"]);
        if oom.code != Some(0) {
            continue;
        }
        let report = answer(&["report", &path, "--format", "markdown"]);
        let report = &report.stdout;
        let section = report.split("### What to do").nth(1).and_then(|rest| rest.split("\n### ").next());
        let Some(section) = section else { continue };
        let items: Vec<&str> = section.lines().filter(|line| line.starts_with("- ")).collect();
        let idle = items.iter().position(|item| USELESS.iter().any(|useless| item.contains(useless)));
        told += usize::from(idle.is_some());
        assert!(idle.is_none_or(|place| place + 1 == items.len()), "{path}: {items:?}");
    }
    assert!(told > 0, "no recording with advice that does not help");
}

/// A loaded checkpoint, a part of which stays in use: the answer says what the rest of that line is.
#[test]
fn memory_kept_from_a_loaded_checkpoint_is_named() {
    let text = memviz(&["triage", &story("duplicate_model_resume_flawed")]).stdout;
    assert!(text.contains("another 98.39 MiB allocated here is optimizer state"), "{text}");
}

/// The named output is the one whose deletion saves the stated bytes: the last batch may be the largest.
#[test]
fn the_kept_output_has_the_size_that_its_deletion_saves() {
    let json = memviz(&["triage", &fixture("oom"), "--format", "json"]).json();
    let advice = &json["devices"][0]["advice"][0];
    assert_eq!(advice["kind"], "kept_outputs");
    let evidence = advice["evidence"].as_str().unwrap();
    assert!(evidence.contains("up to 1000.00 MiB of output"), "{evidence}");
    assert_eq!(advice["saves_allocated_bytes"], 1000 << 20);
}
