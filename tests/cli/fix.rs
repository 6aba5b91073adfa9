//! `memviz fix`: diffs that apply, or a reason in a line; and source code that is not what was recorded.

use crate::support::{assert_none, memviz, names, read_text, skipped};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const STORIES: &str = "fixtures/stories";
/// A program with two fixes at one line.
const EVALUATION: &str = "fixtures/stories/eval_without_no_grad_gpt2_flawed";
/// What to do about a fix that needs a person, instead of what was expected and found.
const BY_HAND: [&str; 2] = [": make it by hand", ": set it in the environment"];

/// The arguments that ask for the fixes of a program with its code in a folder.
fn fix(story: &str, folder: &Path, options: &[&str]) -> crate::support::Run {
    let snapshot = format!("{story}/snapshot.pickle.gz");
    memviz(&[&["fix", &snapshot, "--source", folder.to_str().unwrap()], options].concat())
}

/// A copy of a program's code, changed.
fn copy(story: &str, change: impl Fn(&str) -> String) -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in names(story).into_iter().filter(|name| is_python(name)) {
        fs::write(folder.path().join(&name), change(&read_text(&format!("{story}/{name}")))).unwrap();
    }
    folder
}

fn is_python(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "py")
}

/// Applies a diff with a program, which reads it from standard input.
fn applies(diff: &str, folder: &Path, program: &str, args: &[&str]) -> Result<(), String> {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(diff.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = || format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(()) } else { Err(format!("{program}: {}", said())) }
}

fn is_there(program: &str) -> bool {
    let mut version = Command::new(program);
    let run = version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = run.is_ok_and(|status| status.success());
    if !is_there {
        skipped(&format!("there is no {program}"));
    }
    is_there
}

#[test]
fn every_diff_applies_and_leaves_python() {
    let [git, patch, python] = ["git", "patch", "python3"].map(is_there);
    let mut problems = Vec::new();
    let (mut written, mut refused) = (0, 0);
    for name in names(STORIES).into_iter().filter(|name| name.ends_with("_flawed")) {
        let story = format!("{STORIES}/{name}");
        let folder = copy(&story, str::to_owned);
        let run = fix(&story, folder.path(), &[]);
        let diff = run.stdout.as_str();
        let has_diff = diff.contains("\n--- a/");
        run.expect(i32::from(!has_diff));
        for line in diff.lines().filter(|line| line.starts_with("# ") && line.contains("not written: ")) {
            if BY_HAND.iter().any(|what| line.contains(what)) {
                continue;
            }
            refused += 1;
            if !line.contains("expected ") || !line.contains("found ") {
                problems.push(format!("{name}: {line}"));
            }
        }
        if !has_diff {
            continue;
        }
        written += 1;
        if patch {
            problems.extend(applies(diff, folder.path(), "patch", &["-p1", "--dry-run"]).err());
        }
        if !git {
            continue;
        }
        problems.extend(applies(diff, folder.path(), "git", &["apply", "-"]).err());
        for file in names(folder.path().to_str().unwrap()).into_iter().filter(|file| is_python(file) && python) {
            problems.extend(applies("", folder.path(), "python3", &["-m", "py_compile", &file]).err());
        }
    }
    assert_none(&problems);
    assert!(written >= 18 && refused >= 10, "{written} programs with a diff, {refused} fixes refused");
}

#[test]
fn line_ends_stay() {
    let folder = copy(EVALUATION, |text| text.replace('\n', "\r\n"));
    let run = fix(EVALUATION, folder.path(), &["--only", "1"]);
    run.expect(0);
    if is_there("git") {
        applies(&run.stdout, folder.path(), "git", &["apply", "-"]).unwrap();
        let fixed = read_text(folder.path().join("train.py").to_str().unwrap());
        assert_eq!(fixed.matches('\n').count(), fixed.matches("\r\n").count());
        assert!(fixed.contains("        with torch.no_grad():\r\n            out = model("), "{fixed}");
    }
}

#[test]
fn one_fix_can_be_chosen() {
    let folder = Path::new(EVALUATION);
    let both = fix(EVALUATION, folder, &[]);
    assert!(both.expect(0).stdout.contains("found the same; apply that, and record again"), "{}", both.stdout);
    let second = fix(EVALUATION, folder, &["--only", "2"]);
    assert!(second.expect(0).stdout.contains("\n+        out = model(input_ids=ids, labels=ids, use_cache=False)\n"));
    assert_eq!(fix(EVALUATION, folder, &["--only", "held"]).stdout, second.stdout);
    fix(EVALUATION, folder, &["--only", "3"]).expect_error("expected the number of a fix, at most 2, found 3");
    fix(EVALUATION, folder, &["--only", "grads_kept"]).expect_error("found none among 2");
    fix(EVALUATION, folder, &["--only", "nothing"])
        .expect_error("expected a number, or a name that memviz rules lists");
}

#[test]
fn answers_in_every_format_agree() {
    let folder = Path::new(EVALUATION);
    let json = fix(EVALUATION, folder, &["--format", "json"]).json();
    let text = fix(EVALUATION, folder, &[]).stdout;
    assert!(text.ends_with(json["diff"].as_str().unwrap()));
    let fixes = json["fixes"].as_array().unwrap();
    assert_eq!((fixes.len(), fixes[0]["file"].as_str(), fixes[0]["reason"].as_str()), (2, Some("train.py"), None));
    assert!(fixes[1]["file"].is_null() && text.contains(fixes[1]["reason"].as_str().unwrap()));
    assert_eq!(fix(EVALUATION, folder, &["--format", "csv"]).expect(0).stdout.lines().count(), 3);
    assert!(fix(EVALUATION, folder, &["--format", "markdown"]).expect(0).stdout.contains("\n```diff\n# 1. "));
    let picture = fix(EVALUATION, folder, &["--format", "svg"]).expect(0).stdout.clone();
    assert!(picture.contains("predicted peak 285.38 MiB instead of 697.30 MiB"), "{picture}");
    let out = TempDir::new().unwrap();
    let path = out.path().join("a.patch");
    fix(EVALUATION, folder, &["-q", "-o", path.to_str().unwrap()]).expect(0);
    assert_eq!(read_text(path.to_str().unwrap()), text);
}

/// What is found instead of the recorded code, and what memviz says.
#[test]
fn code_that_has_changed_is_refused() {
    for (old, new, found) in [
        ("        ids =", "\n        ids =", "train.py:11 evaluate: expected a statement with a call, found ids = "),
        ("def evaluate", "def validate", "train.py:11 evaluate: expected a line of evaluate, found one of validate"),
        (
            "import torch\n",
            "from torch import nn\n",
            "train.py:11 evaluate: expected import torch in the file, found none",
        ),
        (
            "ids, labels=ids)\n        losses",
            "ids, labels=ids\n        losses",
            "expected the end of the last statement",
        ),
        ("losses = []", "losses = ['\u{7}']", "expected text, found the character"),
        ("losses = []", "losses =\r []", "found a carriage return alone"),
    ] {
        let folder = copy(EVALUATION, |text| {
            assert!(text.contains(old), "{old}");
            let changed = text.replacen(old, new, 1);
            // The statement above is no call.
            changed.replace("torch.randint(0, 8000, (16, 128), device=\"cuda\")", "random_ids")
        });
        let run = fix(EVALUATION, folder.path(), &["--only", "1"]);
        assert!(run.expect(1).stdout.contains(found), "{}", run.stdout);
        assert_eq!(run.stderr, "");
    }
}

#[test]
fn only_one_plain_file_below_the_folder_is_read() {
    let refused = |folder: &Path, found: &str| {
        let run = fix(EVALUATION, folder, &["--only", "1"]);
        assert!(run.expect(1).stdout.contains(found), "{found}: {}", run.stdout);
    };
    let empty = TempDir::new().unwrap();
    refused(empty.path(), "found none");
    fs::create_dir(empty.path().join("train.py")).unwrap();
    refused(empty.path(), "train.py: expected a file, found something else");
    // The recorded path is /tmp/run/eval_without_no_grad_gpt2/train.py.
    let below = "eval_without_no_grad_gpt2";
    let two = copy(EVALUATION, str::to_owned);
    fs::create_dir(two.path().join(below)).unwrap();
    fs::copy(two.path().join("train.py"), two.path().join(below).join("train.py")).unwrap();
    refused(two.path(), "found eval_without_no_grad_gpt2/train.py and train.py");
    fs::remove_file(two.path().join("train.py")).unwrap();
    let nested = fix(EVALUATION, two.path(), &["--only", "1"]);
    assert!(nested.expect(0).stdout.contains("--- a/eval_without_no_grad_gpt2/train.py\n"));
    let large = copy(EVALUATION, |text| format!("{text}{}", "# comment\n".repeat(1 << 19)));
    refused(large.path(), "train.py: expected at most 4194304 bytes of text, found more");
    let binary = copy(EVALUATION, str::to_owned);
    fs::write(binary.path().join("train.py"), b"\xff\xfe").unwrap();
    refused(binary.path(), "expected text in UTF-8");
    fix(EVALUATION, Path::new("nowhere"), &[]).expect_error("--source nowhere: ");
    fix(EVALUATION, Path::new("Cargo.toml"), &[]).expect_error("--source Cargo.toml: expected a folder, found a file");
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = copy(EVALUATION, str::to_owned);
    let linked = TempDir::new().unwrap();
    symlink(outside.path().join("train.py"), linked.path().join("train.py")).unwrap();
    let run = fix(EVALUATION, linked.path(), &["--only", "1"]);
    assert!(run.expect(1).stdout.contains("train.py: expected a file, found a link"), "{}", run.stdout);
    fs::remove_file(linked.path().join("train.py")).unwrap();
    symlink(outside.path(), linked.path().join("eval_without_no_grad_gpt2")).unwrap();
    let run = fix(EVALUATION, linked.path(), &["--only", "1"]);
    assert!(run.expect(1).stdout.contains("found a link"), "{}", run.stdout);
    // The folder itself may be a link.
    let folder = TempDir::new().unwrap();
    symlink(outside.path(), folder.path().join("code")).unwrap();
    fix(EVALUATION, &folder.path().join("code"), &["--only", "1"]).expect(0);
}

#[test]
fn nothing_to_fix_is_said() {
    let run = memviz(&["fix", "fixtures/snapshots/empty/snapshot.pickle.gz", "--source", "."]);
    assert_eq!(
        (run.expect(1).stdout.as_str(), run.stderr.as_str()),
        ("# no fixes: memviz found no known mistake in this recording\n", "")
    );
    memviz(&["fix", "fixtures/snapshots/empty/snapshot.pickle.gz"]).expect_error("--source");
}
