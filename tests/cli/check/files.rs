//! The exit code of `check` and the files that it leaves behind, for any reader and any obstacle.

use super::Folder;
use crate::support::{self, fixture};
use std::fs;
use std::process::Stdio;

/// The exit code of a run whose standard output is not read.
fn code_without_a_reader(folder: &Folder, args: &[&str]) -> Option<i32> {
    let mut child = support::command(args)
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the input arrives, and so before anything is written.
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let _ = std::io::Write::write_all(&mut stdin, &fs::read(absolute(&fixture("gpt_train"))).unwrap());
    drop(stdin);
    child.wait().unwrap().code()
}

fn absolute(path: &str) -> String {
    fs::canonicalize(path).unwrap().into_os_string().into_string().unwrap()
}

#[test]
fn the_exit_code_is_the_verdict_when_nobody_reads_the_text() {
    let folder = Folder::new();
    let [tiny, nothing, strange] =
        [&fixture("tiny"), &fixture("no_history"), "fixtures/malformed/overlapping-alloc.pickle"].map(absolute);
    let code = |args: &[&str]| code_without_a_reader(&folder, args);
    assert_eq!(code(&["check", "-", "--max-peak", "1GiB"]), Some(1));
    assert_eq!(code(&["check", "-", "--max-peak", "80GiB"]), Some(0));
    assert_eq!(code(&["check", "-", &nothing, "--max-peak", "80GiB"]), Some(2));
    assert_eq!(code(&["diff", "--fail-on-growth", "0", &tiny, "-"]), Some(1));
    assert_eq!(code(&["peak", "--strict", &strange]), Some(1));
    assert_eq!(code(&["peak", "-"]), Some(0));
    assert_eq!(code(&["ranks", "-", &tiny]), Some(0));
    // The requested file is written anyway.
    assert_eq!(code(&["check", "-", "--max-peak", "1GiB", "--baseline", "b.json", "--update-baseline"]), Some(1));
    assert!(fs::read_to_string(folder.path("b.json")).unwrap().contains("4453794816"));
}

#[test]
fn a_temporary_file_that_was_left_is_in_nobodys_way() {
    let folder = Folder::new();
    let tiny = absolute(&fixture("tiny"));
    folder.write(".c.json.tmp", "left");
    folder.check(&[&tiny, "--baseline", "c.json", "--update-baseline"]).expect(0);
    let mut names: Vec<_> = fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".c.json.tmp", "c.json"]);
}

#[test]
fn two_baselines_are_written_both_or_not_at_all() {
    let folder = Folder::new();
    let [tiny, nothing] = ["tiny", "no_history"].map(|name| absolute(&fixture(name)));
    let entry = |input: &str, baseline: &str| {
        fs::copy(input, folder.path(&format!("{baseline}.gz"))).unwrap();
        format!("[[budget]]\ninput = \"{baseline}.gz\"\nbaseline = \"{baseline}.json\"\n")
    };
    folder.write("memviz.toml", entry(&tiny, "a") + &entry(&nothing, "b"));
    let run = folder.check(&["--update-baseline"]);
    assert!(run.expect(2).stderr.contains("b.json: not written"), "{}", run.stderr);
    assert!(!fs::exists(folder.path("a.json")).unwrap() && !fs::exists(folder.path("b.json")).unwrap());
    folder.write("memviz.toml", entry(&tiny, "a") + &entry(&tiny, "b"));
    folder.check(&["--update-baseline"]).expect(0);
    folder.check(&[]).expect(0);
}

#[test]
fn an_answer_of_an_earlier_run_is_not_left_for_this_one() {
    let folder = Folder::new();
    folder.write("old.xml", "<testsuites tests=\"1\" failures=\"0\"/>");
    let args = ["no/such/file", "--max-peak", "1GiB", "--format", "junit", "-o", "old.xml", "--force"];
    folder.check(&args).expect(2);
    let now = fs::read_to_string(folder.path("old.xml")).unwrap();
    assert!(now.contains("no/such/file") && now.contains("error"), "{now}");
    // Without permission to overwrite it, nothing is started.
    folder.write("old.xml", "old");
    folder.check(&args[..args.len() - 1]).expect_error("exists");
    assert_eq!(fs::read_to_string(folder.path("old.xml")).unwrap(), "old");
}

#[cfg(unix)]
#[test]
fn a_configuration_without_end_is_refused() {
    let folder = Folder::new();
    let tiny = absolute(&fixture("tiny"));
    folder.check(&[&tiny, "--config", "/dev/zero"]).expect_error("/dev/zero: expected at most 1048576 bytes");
}

#[cfg(unix)]
#[test]
fn the_input_keeps_its_bytes_under_every_name() {
    let folder = Folder::new();
    let tiny = absolute(&fixture("tiny"));
    let before = fs::read(&tiny).unwrap();
    let [input, hard, soft] = ["i.pickle.gz", "hard.gz", "soft.gz"].map(|name| folder.path(name));
    fs::write(&input, &before).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    std::os::unix::fs::symlink("i.pickle.gz", &soft).unwrap();
    for name in [&input, &soft] {
        support::memviz(&["peak", &input, "--format", "text", "-o", name, "--force"]).expect_error("is the input");
        support::memviz(&["ranks", &folder.path(""), "-o", name, "--force"]).expect(2);
    }
    support::memviz(&["peak", &input, "--format", "text", "-o", &hard, "--force"]).expect(0);
    assert_eq!(fs::read(&input).unwrap(), before);
    assert!(fs::read_to_string(&hard).unwrap().starts_with("Device 0"));
}

#[test]
fn any_number_of_threads_may_be_asked_for() {
    let folder = Folder::new();
    let tiny = absolute(&fixture("tiny"));
    for args in [&["peak", &tiny] as &[&str], &["ranks", &tiny], &["check", &tiny, "--max-peak", "1GiB"]] {
        let mut command = support::command(args);
        command.env("RAYON_NUM_THREADS", "100000").current_dir(folder.path(""));
        let run: support::Run = command.output().unwrap().into();
        run.expect(0);
        support::memviz(&[args, &["--threads", "256"]].concat()).expect(0);
    }
}
