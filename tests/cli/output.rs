//! The name of the output file decides the format, and nothing else is written under it.

use crate::support::{Run, command, fixture, memviz, memviz_reading, names};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

#[test]
fn names_decide_the_format() {
    let folder = TempDir::new().unwrap();
    let tiny = fixture("tiny");
    for (command, name, format, begin) in [
        ("peak", "a.txt", "text", "Device 0"),
        ("peak", "a.json", "json", "{\n"),
        ("peak", "a.csv", "csv", "device,"),
        ("peak", "A.MD", "markdown", "## "),
        ("peak", "no_end", "text", "Device 0"),
        ("fragmentation", "b.svg", "svg", "<svg"),
        ("checkpoint", "c.json", "json", "{\n"),
        ("flamegraph", "d.folded", "folded", "cases.py"),
        ("timeline", "e.svg", "svg", "<svg"),
        ("report", "f.html", "html", "<!DOCTYPE html>"),
        ("report", "g.md", "markdown", "## "),
        ("report", "h.svg", "svg", "<svg"),
    ] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let run = memviz(&[command, &tiny, "-o", path]);
        run.expect(0);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with(begin), "{command} {name}: {}", &text[..40]);
        assert_eq!(text, memviz(&[command, &tiny, "--format", format]).stdout, "{command} {name}");
        assert!(run.stderr.starts_with(&format!("wrote {path}, ")), "{:?}", run.stderr);
        assert_eq!(memviz(&[command, &tiny, "-o", path, "--force", "-q"]).stderr, "");
    }
}

#[test]
fn a_table_follows_its_answer() {
    for arguments in [
        vec!["peak", &fixture("gpt_train"), "--each", "phase"],
        vec!["simulate", &fixture("oom")],
        vec!["ranks", "fixtures/snapshots/ranks8"],
    ] {
        let in_format = |format| memviz(&[&arguments[..], &["--format", format]].concat()).stdout;
        let both = in_format("json+csv");
        let table = both.strip_prefix(&in_format("json")).expect("the answer comes first");
        let table: BTreeMap<String, String> = serde_json::from_str(table).unwrap();
        assert_eq!(table, BTreeMap::from([("csv".to_owned(), in_format("csv"))]), "{arguments:?}");
    }
}

#[test]
fn nothing_is_written_under_the_extension_of_another_format() {
    let folder = TempDir::new().unwrap();
    let tiny = fixture("tiny");
    for (args, fitting) in [
        (&["peak", "-o", "a.png"] as &[&str], ".txt, .json, .csv or .md"),
        (&["peak", "-o", "a.svg"], ".txt, .json, .csv or .md"),
        (&["timeline", "-o", "a.md"], ".svg"),
        (&["flamegraph", "-o", "a.json"], ".folded"),
        (&["diff", "-o", "a.html", &tiny], ".md or .svg"),
        (&["report", "-o", "a.csv"], ".html"),
        (&["export", "-o", "a.gz"], ".pb.gz"),
        (&["check", "--max-peak", "1GiB", "-o", "a.svg"], ".xml"),
        (&["peak", "--format", "json", "-o", "a.csv"], "a file name ending in .json for --format json, found a.csv"),
        (&["fragmentation", "--format", "text", "-o", "a.svg"], "a file name ending in .txt for --format text"),
    ] {
        memviz(&[args, &[&tiny]].concat()).expect_error(fitting);
        assert!(!Path::new(args[args.iter().position(|&arg| arg == "-o").unwrap() + 1]).exists());
    }
    // A name without a known extension contradicts nothing.
    let lines = folder.path().join("a.jsonl");
    memviz(&["ranks", &tiny, "--format", "json", "-o", lines.to_str().unwrap()]).expect(0);
}

/// An opener that only prints its arguments.
#[cfg(target_os = "linux")]
#[test]
fn written_files_are_opened_by_the_desktop() {
    use crate::support::{Run, command};
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let opener = folder.path().join("xdg-open");
    let open = |script: &str, name: &str, args: &[&str]| -> Run {
        fs::write(&opener, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
        let tiny = fs::canonicalize(fixture("tiny")).unwrap();
        let args = [&["peak", tiny.to_str().unwrap(), "-o", name, "--open", "-q"], args].concat();
        command(&args).current_dir(folder.path()).env("PATH", folder.path()).output().unwrap().into()
    };
    open("echo \"$1\" > opened", "a b.json", &[]).expect(0);
    let opened = fs::read_to_string(folder.path().join("opened")).unwrap();
    assert_eq!(Path::new(opened.trim()), folder.path().canonicalize().unwrap().join("a b.json"));

    open("exit 3", "b.json", &[])
        .expect_error("b.json: the file was written, but xdg-open did not open it: exit status: 3");
    assert!(folder.path().join("b.json").exists());
    fs::remove_file(&opener).unwrap();
    // A file that the desktop would run is not opened, whatever its contents.
    open("", "c.desktop", &["--format", "text"]).expect_error("--open needs -o with a file name ending in .txt");
    assert!(!folder.path().join("c.desktop").exists());
    open("", "-", &[]).expect_error("--open");
}

#[test]
fn a_report_without_a_name_is_a_page_named_after_the_recording() {
    let folder = TempDir::new().unwrap();
    let tiny = fs::canonicalize(fixture("tiny")).unwrap();
    let report = |options: &[&str]| -> Run {
        let args = [&["report", tiny.to_str().unwrap()], options].concat();
        command(&args).current_dir(folder.path()).output().unwrap().into()
    };
    let name = "snapshot.pickle.gz.report.html";
    let run = report(&[]);
    assert!(run.expect(0).stderr.starts_with(&format!("wrote {name}, ")), "{}", run.stderr);
    assert_eq!((run.stdout.as_str(), names(folder.path().to_str().unwrap())), ("", vec![name.to_owned()]));
    assert!(fs::read_to_string(folder.path().join(name)).unwrap().starts_with("<!DOCTYPE html>"));
    report(&[]).expect_error(&format!("{name} already exists; --force overwrites it"));
    report(&["--force", "--quiet"]).expect(0);
    assert!(report(&["--format", "markdown"]).expect(0).stdout.starts_with("## "), "a format alone is for a pipe");
    let recording = fs::read(&tiny).unwrap();
    memviz_reading(&["report", "-"], &recording).expect_error(".svg, .md or .html, or --format; found no output file");
}
