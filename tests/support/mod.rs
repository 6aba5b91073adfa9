//! Code that test files share: paths of recordings, PyTorch's counters, and running the real binary.
//!
//! Tests run in the package's root, and paths stay relative to it, so that output with a path in it is the same
//! everywhere.

#![allow(dead_code, reason = "each test file uses a part of this one")]

pub mod allocator_model;
pub mod difference;
pub mod pickle_writer;
pub mod plain_replay;
pub mod programs;
pub mod protobuf;
pub mod snapshot_file;

use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Recordings that belong to the repository.
pub const FIXTURES: &str = "fixtures/snapshots";
/// Broken and malicious files in the repository.
pub const MALFORMED: &str = "fixtures/malformed";
/// More recordings, which only some machines have.
pub const CORPUS: &str = "../shared/corpus";
/// When this is 1, a missing [`CORPUS`] is a failure.
pub const REQUIRE_CORPUS: &str = "MEMVIZ_REQUIRE_CORPUS";

/// If this is 1, tests of whole answers write their output, instead of comparing it.
pub const BLESS: &str = "MEMVIZ_BLESS";

/// A recording and PyTorch's counters for it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Folder: the name that `fixtures/README.md` uses.
    pub name: String,
    /// The recording.
    pub path: String,
    /// The `truth*.json` for it.
    pub truth: Value,
    /// Whether the truth was written for this very file, rather than for another dump of the same process.
    pub own_truth: bool,
}

/// Every recording under `root`, in order of path.
///
/// Panics if a file there is neither a recording with a truth nor a truth with a recording: a case that no test uses is worse
/// than none.
pub fn cases(root: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in names(root).into_iter().filter(|name| !name.starts_with("profiler_traces")) {
        let folder = format!("{root}/{name}");
        let files = names(&folder);
        let (truths, recordings): (Vec<&String>, Vec<&String>) = files.iter().partition(|file| is_truth(file));
        let mut left = recordings;
        for truth in &truths {
            let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/{truth}"))).unwrap();
            let dumped = truth["file"].as_str().unwrap();
            let index = left.iter().position(|file| is_compressed_form(file, dumped));
            let file = left.remove(index.unwrap_or_else(|| panic!("{folder}: no recording named {dumped}")));
            cases.push(Case { name: name.clone(), path: format!("{folder}/{file}"), truth, own_truth: true });
        }
        // `torch.compile` cases hold a second dump of the same state, with other frames.
        for file in left {
            assert!(file.starts_with("snapshot_fx.pickle") && truths.len() == 1, "{folder}/{file} has no truth");
            let truth = cases.last().map(|case| case.truth.clone()).unwrap();
            cases.push(Case { name: name.clone(), path: format!("{folder}/{file}"), truth, own_truth: false });
        }
    }
    cases
}

fn is_truth(file: &str) -> bool {
    file.starts_with("truth") && Path::new(file).extension().is_some_and(|extension| extension == "json")
}

/// Whether `file` is `dumped`, or `dumped` after compression.
fn is_compressed_form(file: &str, dumped: &str) -> bool {
    matches!(file.strip_prefix(dumped), Some("" | ".gz" | ".zst"))
}

/// Names in a folder, sorted.
pub fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("names are UTF-8")).collect();
    names.sort();
    names
}

/// A file as text.
pub fn read_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file of the repository, decompressed if it is gzip.
pub fn read_unpacked(path: &str) -> Vec<u8> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut unpacked = Vec::new();
    io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut unpacked).unwrap();
    unpacked
}

/// Recordings of other people, and of programs of other styles, which only some machines have.
const STRANGERS: [&str; 3] = ["../shared/real", "../shared/real2", "../shared/families/rec"];

/// Another person's recording by its name, or `None` if the machine does not have it, which is printed.
pub fn stranger(name: &str) -> Option<String> {
    let paths = STRANGERS.iter().map(|folder| format!("{folder}/{name}"));
    let found = paths.into_iter().find(|path| Path::new(path).is_file());
    if found.is_none() {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but {name} is in none of {STRANGERS:?}");
        skipped(&format!("{name} is in none of {STRANGERS:?}; {REQUIRE_CORPUS}=1 makes that a failure"));
    }
    found
}

/// The snapshot of a fixture.
pub fn fixture(name: &str) -> String {
    format!("{FIXTURES}/{name}/snapshot.pickle.gz")
}

/// A recording, read and replayed.
pub fn open(path: &str) -> memviz::Recording {
    memviz::Recording::open(path.as_ref(), &memviz::input::ReadOptions::default())
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The corpus, or `None` if the machine does not have it, which is printed.
pub fn corpus() -> Option<&'static str> {
    if Path::new(CORPUS).is_dir() {
        return Some(CORPUS);
    }
    let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
    assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {CORPUS}");
    skipped(&format!("there is no {CORPUS}; {REQUIRE_CORPUS}=1 makes that a failure"));
    None
}

/// Recordings of the corpus that are not fixtures as well, which are tested separately; `None` if there is no corpus.
pub fn corpus_cases() -> Option<Vec<Case>> {
    let root = corpus()?;
    let all = cases(root);
    assert!(all.len() > 120, "only {} recordings were found in {root}", all.len());
    let fixtures = cases(FIXTURES);
    let is_fixture = |case: &Case| {
        let path = case.path.replacen(root, FIXTURES, 1);
        let twin = fixtures.iter().find(|fixture| fixture.path == path && fixture.truth == case.truth);
        twin.is_some_and(|twin| fs::read(&twin.path).unwrap() == fs::read(&case.path).unwrap())
    };
    Some(all.into_iter().filter(|case| !is_fixture(case)).collect())
}

/// Whether answers are accepted: [`BLESS`].
pub fn is_blessing() -> bool {
    std::env::var(BLESS).is_ok_and(|value| value == "1")
}

/// Announces that a test did not run. Not with `eprintln!`, whose output the test harness hides.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(io::stderr(), "\nSKIPPED {test}: {reason}");
    let list = fs::OpenOptions::new().create(true).append(true).open(list_of_skipped());
    let _ = list.and_then(|mut list| list.write_all(format!("{test}\t{reason}\n").as_bytes()));
}

/// Where tests started by the same cargo list what they skip.
pub fn list_of_skipped() -> PathBuf {
    #[cfg(unix)]
    let run = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let run = 0;
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skipped-{run}"))
}

/// Fails with one line per problem.
#[track_caller]
pub fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n  {}", problems.len(), problems.join("\n  "));
}

#[cfg(feature = "cli")]
#[allow(unused_imports, reason = "as above")]
pub use binary::*;

/// The real binary.
#[cfg(feature = "cli")]
mod binary {
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::process::{Command, Output, Stdio};
    use std::sync::{Arc, Mutex, OnceLock};

    /// The results of a finished run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Run {
        /// The exit code; `None` when a signal ended the process.
        pub code: Option<i32>,
        /// Standard output.
        pub stdout: String,
        /// Standard error.
        pub stderr: String,
    }

    impl Run {
        /// The answer to `--format json`.
        #[track_caller]
        pub fn json(&self) -> Value {
            self.expect(0);
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
        }

        /// Fails unless the run ended with this exit code.
        #[track_caller]
        pub fn expect(&self, code: i32) -> &Self {
            assert_eq!(self.code, Some(code), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
            self
        }

        /// Fails unless this is an error of one line that starts with `memviz: ` and contains `part`.
        #[track_caller]
        pub fn expect_error(&self, part: &str) -> &Self {
            self.expect(2);
            assert_eq!(self.stderr.lines().count(), 1, "expected one line, found {:?}", self.stderr);
            assert!(self.stderr.starts_with("memviz: "), "{:?}", self.stderr);
            assert!(self.stderr.contains(part), "expected {part:?} in {:?}", self.stderr);
            assert_eq!(self.stdout, "", "an error leaves standard output empty");
            self
        }
    }

    impl From<Output> for Run {
        fn from(output: Output) -> Self {
            let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
            Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
        }
    }

    /// A `PATH` on which this memviz is found first.
    pub fn path_with_memviz() -> std::ffi::OsString {
        let own = std::path::Path::new(env!("CARGO_BIN_EXE_memviz")).parent().unwrap().to_owned();
        let searched = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&searched))).unwrap()
    }

    /// A command that does not depend on the environment.
    pub fn command(args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memviz"));
        command.args(args).stdin(Stdio::null()).env("PATH", path_with_memviz());
        for variable in ["NO_COLOR", "COLUMNS", "RAYON_NUM_THREADS", "CLICOLOR_FORCE"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs memviz to its end.
    pub fn memviz(args: &[&str]) -> Run {
        command(args).output().expect("the binary runs").into()
    }

    /// The answer to a question about a recording that no test changes. Many tests ask the same of all recordings: it runs once for all tests
    /// of a binary.
    pub fn answer(args: &[&str]) -> Arc<Run> {
        static KNOWN: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Run>>>>> = Mutex::new(BTreeMap::new());
        let known = Arc::clone(KNOWN.lock().unwrap().entry(args.join(" ")).or_default());
        Arc::clone(known.get_or_init(|| Arc::new(memviz(args))))
    }

    /// Runs memviz with bytes on standard input.
    pub fn memviz_reading(args: &[&str], input: &[u8]) -> Run {
        let mut child = command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        std::thread::scope(|scope| {
            // It may stop reading before the end.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().expect("the binary ends").into()
        })
    }
}
