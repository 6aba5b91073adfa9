//! `memviz rehearse`, with a script instead of Python: what it runs, and how it handles the result.
#![cfg(all(feature = "cli", unix))]

use crate::support::{self, Run, fixture, memviz};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Takes the place of `python3 -m torch_memviz._rehearsal OPTIONS COMMAND...`: a batch above 11 fails, and so does one of 3 in
/// another way.
const PYTHON: &str = r#"#!/bin/sh
[ $# -gt 3 ] || exit 0
printf '%s\n' "$3" > options.json
path=$(printf '%s' "$3" | sed 's/.*"path":"\([^"]*\)".*/\1/')
files=$(printf '%s' "$3" | sed 's/.*"files":"\([^"]*\)".*/\1/')
for batch; do :; done
[ "$batch" != 3 ] || exit 1
[ "$batch" -le 11 ] || path=${path%.pickle}_oom_attempt1.pickle
cp "$RECORDING" "$path"
echo "$path" >> "$files"
[ "$batch" -le 11 ]
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        folder.write("python3", PYTHON);
        fs::set_permissions(folder.0.path().join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn rehearse(&self, args: &[&str]) -> Run {
        let recording = fs::canonicalize(fixture("gpt_train")).unwrap();
        let mut command = support::command(&[&["rehearse"], args].concat());
        command.current_dir(self.0.path()).env("RECORDING", recording).output().unwrap().into()
    }

    fn options(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(self.0.path().join("options.json")).unwrap()).unwrap()
    }
}

#[test]
fn the_largest_value_is_found_by_running() {
    let folder = Folder::new();
    let run = folder.rehearse(&["--largest", "batch=4", "--", "./python3", "train.py", "--batch", "{batch}"]);
    run.expect(0);
    let tried: Vec<&str> = run.stdout.lines().take_while(|line| line.starts_with("batch ")).collect();
    assert_eq!(
        tried,
        [
            "batch        4  fits: 4.15 GiB allocated, 4.28 GiB reserved",
            "batch        8  fits: 4.15 GiB allocated, 4.28 GiB reserved",
            "batch       16  does not fit; see memviz oom memory_batch16_oom_attempt1.pickle",
            "batch       12  does not fit; see memviz oom memory_batch12_oom_attempt1.pickle",
            "batch       10  fits: 4.15 GiB allocated, 4.28 GiB reserved",
            "batch       11  fits: 4.15 GiB allocated, 4.28 GiB reserved",
            "batch 11 is the largest that fits: 12 does not",
        ]
    );
    assert!(run.stdout.contains("memory_batch11.pickle"), "{}", run.stdout);
    let run = folder.rehearse(&["--largest", "batch", "--", "./python3", "train.py", "1{batch}9"]);
    assert!(run.expect(1).stdout.ends_with("no value of batch fits: even batch=1 does not\n"), "{}", run.stdout);
}

#[test]
fn a_command_that_fails_for_another_reason_ends_the_search() {
    let folder = Folder::new();
    folder
        .rehearse(&["--largest", "batch=3", "--", "./python3", "train.py", "{batch}"])
        .expect_error("the command used no device, and failed: nothing was recorded");
    folder.rehearse(&["--", "./gone", "train.py"]).expect_error("command not found: ./gone");
    folder
        .rehearse(&["--largest", "batch", "--", "./python3", "train.py"])
        .expect_error("--largest: expected {batch} in the command, found none");
}

#[test]
fn memviz_toml_says_what_is_rehearsed() {
    let folder = Folder::new();
    folder
        .rehearse(&[])
        .expect_error("expected a command after --, or one in [rehearse] of memviz.toml, found neither");
    folder.write(
        "memviz.toml",
        "[rehearse]\ngpu = \"a100-40gb\"\nmemory = \"24GiB\"\nsteps = 3\noutput = \"step.pickle\"\n\
         command = [\"./python3\", \"train.py\", \"2\"]\n\
         [[budget]]\ninput = \"step.pickle\"\nmax-peak = \"5GiB\"\n",
    );
    let run = folder.rehearse(&["--steps", "2", "--assume", "nonzero=0.5"]);
    run.expect(0);
    let options = folder.options();
    let said = ["gpu", "memory", "steps", "path", "assume", "no_weights"].map(|key| options[key].clone());
    let expected = serde_json::json!(["a100-40gb", 24_u64 << 30, 2, "step.pickle", "nonzero=0.5", false]);
    assert_eq!(serde_json::Value::from(said.to_vec()), expected);
    // The budgets in the same file apply to the rehearsal.
    let mut check = support::command(&["check"]);
    let check: Run = check.current_dir(folder.0.path()).output().unwrap().into();
    check.expect(0);
    let compressed = folder.rehearse(&["-o", "step.pickle.gz", "--", "./python3", "train.py"]);
    compressed.expect_error("expected the name of an uncompressed file, found step.pickle.gz");
    folder.write("memviz.toml", "[rehearse]\nsteeps = 3\n");
    folder.rehearse(&[]).expect_error("memviz.toml: unknown field `steeps`");
}

#[test]
fn a_rehearsal_is_exact_on_its_own_device_alone() {
    let folder = Folder::new();
    let path = folder.0.path().join("rehearsed.pickle");
    let of_another = |answer: &Value| answer.to_string().contains("rehearsed for another GPU: ");
    let write = |reads: &str| {
        let facts = format!(r#"{{"version": 1, "gpu": "a100-40gb", "memory": {}, "reads": [{reads}]}}"#, 700 << 20);
        let mut bytes = support::read_unpacked(&fixture("tiny"));
        // What ends the pickle; its dictionary is still open to another key.
        assert_eq!(bytes.pop(), Some(b'.'));
        for text in ["rehearsal", &facts] {
            bytes.push(b'X');
            bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            bytes.extend(text.bytes());
        }
        fs::write(&path, [bytes.as_slice(), b"s."].concat()).unwrap();
    };
    let trusts = |device: &[&str]| {
        let answer = |command| memviz(&[&[command, path.to_str().unwrap(), "--format=json"], device].concat()).json();
        let (fit, simulation) = (&answer("fit")["devices"][0], &answer("simulate")["devices"][0]["runs"][0]);
        assert_eq!(of_another(&fit["notes"]), of_another(&simulation["because"]), "{device:?}");
        (fit["search"]["as_it_is"]["trust"].clone(), simulation["trust"].clone(), of_another(&fit["notes"]))
    };
    let exact = (Value::from("exact"), Value::from("exact"), false);
    let predicted = (Value::from("predicted"), Value::from("predicted"), true);
    write("");
    for own in [&[][..], &["--capacity=700MiB"], &["--gpu=A100 40GB"]] {
        assert_eq!(trusts(own), exact, "{own:?}");
    }
    for other in ["--capacity=650MiB", "--gpu=h100-80gb"] {
        assert_eq!(trusts(&[other]), predicted, "{other}");
    }
    write(r#"{"file": "a.py", "line": 1, "code": "x[x > 0]", "kind": "size", "count": 1}"#);
    assert_eq!(trusts(&[]), (predicted.0, predicted.1, false));
}
