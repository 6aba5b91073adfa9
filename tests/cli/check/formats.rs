//! Formats for machines: `JUnit` and workflow commands, with names that mean harm.

use super::program::{Alloc, snapshot};
use super::{Folder, check, labels, only_check};
use crate::support::fixture;
use roxmltree::{Document, Node};
use serde_json::Value;
use std::fs;

/// Names that would break XML, a workflow command or a table.
const HARMFUL: [&str; 5] = [
    "</failure><testcase name=\"x\"/>&",
    "a\n::error file=x::injected\r\nb",
    "a,line=1::b%0A%2C",
    "|x|`y`<img src=z>\u{1b}[31m\u{202e}",
    "\u{0}\u{fffe}]]>",
];

fn text<'a>(node: Node<'a, '_>, name: &str) -> &'a str {
    node.attribute(name).unwrap_or_else(|| panic!("no {name} in {node:?}"))
}

#[test]
fn junit_has_a_suite_for_each_input_and_a_case_for_each_budget() {
    let (gpt, ring) = (fixture("gpt_train"), fixture("ring"));
    let flags = ["--max-peak", "1GiB", "--max-reserved", "80GiB", "--format", "junit"];
    let run = check(&[&[gpt.as_str(), &ring, "no/such/file"], &flags[..]].concat());
    run.expect(2);
    let document = Document::parse(&run.stdout).unwrap();
    let root = document.root_element();
    let counts = |node: Node<'_, '_>| ["tests", "failures", "errors"].map(|name| text(node, name).to_owned());
    assert_eq!((root.tag_name().name(), counts(root)), ("testsuites", ["5", "2", "2"].map(str::to_owned)));
    let suites: Vec<Node<'_, '_>> = root.children().filter(Node::is_element).collect();
    let names: Vec<&str> = suites.iter().map(|suite| text(*suite, "name")).collect();
    assert_eq!(names, [&gpt, &ring, "no/such/file"]);
    let cases = |suite: Node<'_, '_>| -> Vec<(String, Vec<String>)> {
        let cases = suite.children().filter(Node::is_element);
        cases
            .map(|case| {
                let results = case.children().filter(Node::is_element).map(|it| it.tag_name().name().to_owned());
                (text(case, "name").to_owned(), results.collect())
            })
            .collect()
    };
    let case = |name: &str, results: &[&str]| (name.to_owned(), results.iter().map(|it| (*it).to_owned()).collect());
    let (peak, reserved) = ("max-peak on device 0", "max-reserved on device 0");
    assert_eq!(cases(suites[0]), [case(peak, &["failure"]), case(reserved, &[])]);
    assert_eq!(cases(suites[1]), [case(peak, &["failure"]), case(reserved, &["error"])]);
    assert_eq!(cases(suites[2]), [case("read", &["error"])]);
    let failure = suites[0].descendants().find(|node| node.has_tag_name("failure")).unwrap();
    assert!(text(failure, "message").contains("3.15 GiB over the limit of 1.00 GiB"), "{failure:?}");
    assert!(failure.text().unwrap().contains("512.00 MiB  minigpt.py:28 forward"), "{failure:?}");
}

#[test]
fn hostile_names_do_no_harm() {
    let folder = Folder::new();
    let allocs: Vec<Alloc> = HARMFUL.iter().map(|name| Alloc::new(&format!("{name}.py"), 3, name, 20)).collect();
    folder.write("a.pickle", snapshot(&allocs));
    let config: Vec<String> = HARMFUL[..4]
        .iter()
        .map(|name| {
            let name = toml_text(name);
            format!("[[budget]]\nname = {name}\ninput = \"a.pickle\"\nmax-peak = \"1B\"\nmax-site = \".=0\"\n")
        })
        .collect();
    folder.write("memviz.toml", config.concat());
    let run = folder.check(&["--format", "junit"]);
    let document = Document::parse(&run.expect(1).stdout).unwrap();
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase")).count();
    assert_eq!(cases, 8, "{}", run.stdout);

    let run = folder.check(&["--format", "github"]);
    let lines: Vec<&str> = run.expect(1).stdout.lines().collect();
    assert_eq!(lines.len(), 8, "{}", run.stdout);
    for line in lines {
        let (properties, message) = line.strip_prefix("::error ").unwrap().split_once("::").unwrap();
        let names: Vec<&str> = properties.split(',').map(|it| it.split_once('=').unwrap().0).collect();
        assert_eq!(names, ["title"], "{line}");
        assert!(message.starts_with("a.pickle: 100.00 MiB (104857600 bytes)"), "{line}");
    }
    for format in ["text", "markdown", "json", "junit", "github"] {
        let run = folder.check(&["--format", format]);
        let harmless = |next: char| !next.is_control() || next == '\n';
        assert!(run.stdout.chars().all(harmless), "{format}: {:?}", run.stdout);
        assert!(format == "json" || !run.stdout.contains('\u{202e}'), "{format}");
    }
}

fn toml_text(text: &str) -> String {
    let escaped: Vec<String> = text.chars().map(|next| format!("\\U{:08x}", u32::from(next))).collect();
    format!("\"{}\"", escaped.concat())
}

#[test]
fn annotations_are_at_lines_of_the_repository() {
    let folder = Folder::new();
    fs::create_dir(folder.path("src")).unwrap();
    folder.write("src/mod,el:1.py", "");
    let absolute = folder.write("train.py", "");
    let annotation = |file: &str| {
        folder.write("a.pickle", snapshot(&[Alloc::new("elsewhere.py", 3, "f", 40), Alloc::new(file, 12, "step", 20)]));
        let run = folder.check(&["a.pickle", "--max-peak", "1B", "--format", "github"]);
        run.expect(1).stdout.split_once("title=").unwrap().0.to_owned()
    };
    // The first site that is in the repository is the line; relative, absolute, or on the way through other folders.
    assert_eq!(annotation("src/mod,el:1.py"), "::error file=src/mod%2Cel%3A1.py,line=12,");
    assert_eq!(annotation(&absolute), "::error file=train.py,line=12,");
    assert_eq!(annotation("src/../train.py"), "::error file=train.py,line=12,");
    // Recorded on another machine, it is found by the end of its path.
    assert_eq!(annotation("/home/user/project/src/mod,el:1.py"), "::error file=src/mod%2Cel%3A1.py,line=12,");
    assert_eq!(annotation("/home/user/train.py"), "::error file=train.py,line=12,");
    // Others are not.
    assert_eq!(annotation("../train.py"), "::error ");
    assert_eq!(annotation("/etc/hostname"), "::error ");
    assert_eq!(annotation("src"), "::error ");
    // In a folder of the repository, paths are still relative to the repository.
    folder.write("src/a.pickle", snapshot(&[Alloc::new("mod,el:1.py", 12, "step", 20)]));
    let mut command = crate::support::command(&["check", "a.pickle", "--max-peak", "1B", "--format", "github"]);
    let output = command.current_dir(folder.path("src")).env("GITHUB_WORKSPACE", folder.0.path()).output().unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.starts_with("::error file=src/mod%2Cel%3A1.py,line=12,"), "{found}");
}

#[test]
fn kept_budgets_are_plain_lines_for_workflows() {
    let run = check(&[&fixture("tiny"), "--max-peak", "1GiB", "--format", "github"]);
    let path = fixture("tiny");
    assert_eq!(run.expect(0).stdout, format!("passed: {path}: max-peak on device 0: 13.15 MiB of 1.00 GiB\n"));
}

#[test]
fn inferred_sites_are_marked_and_explained() {
    for format in ["text", "markdown", "junit", "github"] {
        let run = check(&[&fixture("gpt_train"), "--max-peak", "1GiB", "--format", format]);
        let answer = &run.expect(1).stdout;
        assert!(answer.contains("backward of minigpt.py:82 forward *"), "{answer}");
        assert!(!answer.contains("minigpt.py:28 forward *"), "{answer}");
        assert_eq!(answer.matches("* inferred: backward has no Python frames").count(), 1, "{answer}");
        // Reserved memory is attributed only to recorded stacks.
        let run = check(&[&fixture("gpt_train"), "--max-reserved", "1GiB", "--format", format]);
        assert!(!run.expect(1).stdout.contains("inferred"), "{run:?}");
    }
}

#[test]
fn json_has_what_peak_has_and_where_sites_are() {
    let path = fixture("gpt_train");
    let run = check(&[&path, "--max-peak", "1GiB", "--top", "2", "--format", "json"]);
    let answer: Value = serde_json::from_str(&run.expect(1).stdout).unwrap();
    let peak = crate::support::memviz(&["peak", &path, "--format", "json"]).json();
    assert_eq!(answer["input"], peak["input"]);
    assert_eq!((&answer["schema_version"], &answer["command"]), (&1.into(), &"check".into()));
    assert_eq!((&answer["passed"], &answer["verdict"]), (&false.into(), &"failed".into()));
    assert_eq!(answer["devices"][0], peak["devices"][0]);
    let certainty = &peak["devices"][0]["certainty"];
    assert_eq!((&certainty["allocated_bytes"], &certainty["reserved_bytes"]), (&"exact".into(), &"exact".into()));
    let row = &answer["checks"][0];
    assert_eq!(labels(row), ["backward of minigpt.py:82 forward", "minigpt.py:28 forward"]);
    assert_eq!((&row["sites"][0]["inferred"], &row["sites"][1]["inferred"]), (&true.into(), &false.into()));
    let site = &row["sites"][1];
    assert!(site["file"].as_str().unwrap().ends_with("/minigpt.py") && site["line"] == 28, "{site}");
    let (_, row) = only_check(&[&path, "--max-peak", "5GiB"]);
    assert!(row.get("sites").is_none() && row.get("basis").is_none(), "{row}");
}
