//! Output files when the disk is full, the folder is read-only, or the run is killed: either the old file or the new one.

use crate::support::{Run, fixture, names, skipped};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Every command that writes a file, and the end of the file's name. Those that compare have a second recording.
const WRITERS: [(&[&str], &str); 20] = [
    (&["triage"], "json"),
    (&["info"], "csv"),
    (&["peak"], "md"),
    (&["timeline"], "svg"),
    (&["flamegraph"], "svg"),
    (&["oom"], "json"),
    (&["fragmentation"], "svg"),
    (&["leaks"], "json"),
    (&["checkpoint"], "svg"),
    (&["simulate"], "json"),
    (&["fit", "--capacity", "80GiB"], "json"),
    (&["report"], "html"),
    (&["view"], "html"),
    (&["export"], "pb.gz"),
    (&["export"], "perfetto-trace"),
    (&["export"], "speedscope.json"),
    (&["export"], "prom"),
    (&["check", "--max-peak", "80GiB"], "json"),
    (&["ranks"], "json"),
    (&["diff"], "json"),
];

/// The arguments of a command that writes to a path.
fn writing<'a>(command: &[&'a str], path: &'a str, input: &'a str) -> Vec<&'a str> {
    let inputs: &[&str] = if command[0] == "diff" { &[input, input] } else { &[input] };
    [command, &["--quiet", "--force", "-o", path], inputs].concat()
}

/// Runs memviz in a shell command.
fn behind(line: &str, args: &[&str]) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_memviz")]).args(args);
    shell.stdin(Stdio::null()).output().unwrap().into()
}

/// A write beyond the limit of the shell fails, as on a full disk, wherever in the answer it is.
#[test]
fn a_disk_that_is_full_leaves_the_old_file() {
    let folder = TempDir::new().unwrap();
    let (path, input) = (folder.path().join("answer.json"), fixture("tiny"));
    let shown = path.to_str().unwrap();
    let whole = behind("true", &["peak", "--quiet", "--format", "json", &input]).expect(0).stdout.clone();
    let blocks = whole.len().div_ceil(512);
    assert!(blocks > 3, "{blocks} writes to fail at");
    for limit in 0..blocks {
        let run = behind(&format!("trap '' XFSZ; ulimit -f {limit}"), &["peak", "--quiet", "-o", shown, &input]);
        assert_eq!(run.expect(2).stderr.lines().count(), 1, "{}", run.stderr);
        assert_eq!(names(folder.path().to_str().unwrap()), Vec::<String>::new(), "{limit} blocks");
    }
    fs::write(&path, "old").unwrap();
    let args = ["check", "--quiet", "--baseline", shown, "--update-baseline", &input];
    // Only answers of memviz are overwritten, so the existing file must be one.
    behind("true", &args).expect(2);
    fs::remove_file(&path).unwrap();
    behind("true", &args).expect(0);
    let old = fs::read(&path).unwrap();
    let run = behind("trap '' XFSZ; ulimit -f 1", &args);
    assert_eq!(run.expect(2).stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!((fs::read(&path).unwrap(), names(folder.path().to_str().unwrap()).len()), (old, 1));
}

/// As above, for every command, and for places that no file is written to.
#[test]
fn no_command_leaves_a_part_of_a_file() {
    let (folder, input) = (TempDir::new().unwrap(), fixture("tiny"));
    for (command, end) in WRITERS {
        let path = folder.path().join(format!("answer.{end}"));
        let shown = path.to_str().unwrap();
        let args = writing(command, shown, &input);
        fs::write(&path, "old").unwrap();
        behind("true", &args).expect(0);
        let whole = fs::read(&path).unwrap();
        assert!(whole.len() > 512, "{command:?}: {} bytes", whole.len());
        fs::remove_file(&path).unwrap();
        // With a full disk, and if the system ends the run.
        let full = behind("trap '' XFSZ; ulimit -f 1", &args);
        assert_eq!(full.expect(2).stderr.lines().count(), 1, "{command:?}: {}", full.stderr);
        assert_eq!(names(folder.path().to_str().unwrap()), Vec::<String>::new(), "{command:?}");
        let ended = behind("ulimit -c 0; ulimit -f 1", &args);
        assert!(ended.code.is_none() && !path.exists(), "{command:?}: {:?}", ended.code);
        // Files written under other names are not in the way.
        for left in names(folder.path().to_str().unwrap()) {
            fs::remove_file(folder.path().join(left)).unwrap();
        }
        // The name of a device file does not say that a picture is wanted.
        let device = matches!(end, "json" | "csv" | "md").then(|| "/dev/full".to_owned());
        let places = [format!("/proc/answer.{end}"), format!("/dev/null/answer.{end}")];
        for place in places.into_iter().chain(device) {
            if Path::new("/proc/self").exists() {
                let run = behind("true", &writing(command, &place, &input));
                assert_eq!(run.expect(2).stderr.lines().count(), 1, "{command:?} {place}: {}", run.stderr);
                assert!(run.stderr.contains(&place), "{command:?} {place}: {}", run.stderr);
            }
        }
    }
}

/// If the system refuses memory, every command ends with exit code 2 and without a partial file. The message is that of the
/// runtime: a line, and a hint for programmers; from each thread, if several are refused memory at once.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_refused_ends_every_command() {
    let folder = TempDir::new().unwrap();
    let input = "fixtures/snapshots/big_1m/snapshot.pickle.zst";
    let mut refused = 0;
    let most = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    for (command, end) in WRITERS {
        let path = folder.path().join(format!("answer.{end}"));
        let args = writing(command, path.to_str().unwrap(), input);
        for kibibytes in [70_000, 140_000] {
            let run = behind(&format!("unset RUST_BACKTRACE; ulimit -c 0; ulimit -v {kibibytes}"), &args);
            let lines = run.stderr.lines().count();
            assert!(lines <= most && !run.stderr.contains("backtrace:"), "{command:?} {kibibytes}: {}", run.stderr);
            match run.code {
                Some(0) => assert!(path.exists(), "{command:?} {kibibytes}"),
                Some(2) => assert!(!path.exists() && lines > 0, "{command:?} {kibibytes}: {}", run.stderr),
                code => panic!("{command:?} {kibibytes}: {code:?} {}", run.stderr),
            }
            refused += u32::from(run.code == Some(2));
            let _ = fs::remove_file(&path);
        }
        let limited = behind("true", &[&args[..], &["--max-memory", "64MiB"]].concat());
        assert!(limited.expect(2).stderr.lines().count() <= 2, "{command:?}: {}", limited.stderr);
        // `check` and `ranks` also answer about a file that they could not read: unknown, or failed.
        let told = match command[0] {
            "check" => Some("\"unknown\""),
            "ranks" => Some("\"line\":\"failed\""),
            _ => None,
        };
        let says = |told: &str| fs::read_to_string(&path).is_ok_and(|text| text.contains(told));
        assert!(!path.exists() || told.is_some_and(says), "{command:?}: {}", limited.stderr);
        let _ = fs::remove_file(&path);
    }
    assert!(refused as usize >= WRITERS.len(), "only {refused} were refused memory");
}

/// The system ends the run at the write that is one too many, wherever in the answer it is.
#[cfg(unix)]
#[test]
fn a_signal_at_any_write_leaves_the_old_file() {
    let (folder, input) = (TempDir::new().unwrap(), fixture("tiny"));
    let path = folder.path().join("answer.json");
    let args = ["peak", "--quiet", "--force", "-o", path.to_str().unwrap(), &input];
    behind("true", &args).expect(0);
    let whole = fs::read(&path).unwrap();
    let blocks = whole.len().div_ceil(512);
    assert!(blocks > 3, "{blocks} writes to end at");
    for limit in 0..=blocks {
        fs::write(&path, "old").unwrap();
        let run = behind(&format!("ulimit -c 0; ulimit -f {limit}"), &args);
        let written = fs::read(&path).unwrap();
        if limit < blocks {
            assert_eq!((run.code, &written[..]), (None, &b"old"[..]), "{limit} blocks: {}", run.stderr);
        } else {
            assert_eq!((run.code, written), (Some(0), whole.clone()), "{limit} blocks: {}", run.stderr);
        }
    }
}

#[cfg(unix)]
#[test]
fn an_unwritable_folder_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, input) = (TempDir::new().unwrap(), fixture("tiny"));
    let path = folder.path().join("answer.json");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path().join("probe"), "").is_ok() {
        skipped("root writes into every folder");
        return;
    }
    let run = behind("true", &["peak", "--format", "json", "-o", path.to_str().unwrap(), &input]);
    assert_eq!(run.expect(2).stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("answer.json"), "{}", run.stderr);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unwritable_paths_are_named() {
    let input = fixture("tiny");
    for place in ["/proc/answer.json", "/dev/full", "/dev/null/answer.json"]
        .into_iter()
        .filter(|_| Path::new("/proc/self").exists())
    {
        let run = behind("true", &["peak", "--format", "json", "-o", place, &input]);
        assert_eq!(run.expect(2).stderr.lines().count(), 1, "{place}: {}", run.stderr);
        assert!(run.stderr.contains(place), "{place}: {}", run.stderr);
    }
}

/// Whenever the signal arrives, there is a complete file or none.
#[test]
fn a_run_that_is_killed_leaves_a_whole_file_or_none() {
    let (folder, input) = (TempDir::new().unwrap(), fixture("gpt_train"));
    let mut whole = None;
    for step in 0..24u64 {
        let path = folder.path().join(format!("{step}.html"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_memviz"));
        let output = ["report", "--quiet", "-o", path.to_str().unwrap(), &input];
        let mut child = command.args(output).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step * step));
        let _ = child.kill();
        child.wait().unwrap();
        if let Ok(written) = fs::read(&path) {
            let length = *whole.get_or_insert(written.len());
            assert!(written.len() == length && written.ends_with(b"</html>\n"), "{step}: {} bytes", written.len());
        }
    }
}
