//! Whole commands, from what is typed to what is written, over changed recordings.

use super::mutation;
use arbitrary::Arbitrary;
use memviz::Recording;
use memviz::cli::{Outcome, run_unlimited};
use memviz::input::ReadOptions;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// A command and its recordings.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    command: u8,
    /// Flags by their place in the table, and what stands for their value.
    flags: Vec<(u8, u8)>,
    recording: mutation::Plan,
    /// The second one, of commands that compare.
    other: mutation::Plan,
}

/// Commands with their flags. What stands in braces is a kind of values.
const COMMANDS: [(&str, &[&str]); 16] = [
    ("triage", &["--format={rows}", "--no-infer"]),
    ("info", &["--format={rows}"]),
    (
        "peak",
        &[
            "--by={by}",
            "--top={n}",
            "--at={when}",
            "--each={each}",
            "--from={when}",
            "--to={when}",
            "--metric={metric}",
            "--format={rows}",
            "--include={regex}",
            "--exclude={regex}",
            "--no-infer",
            "--all-frames",
        ],
    ),
    (
        "timeline",
        &[
            "--by={by}",
            "--top={n}",
            "--x={x}",
            "--inactive",
            "--each={each}",
            "--from={when}",
            "--to={when}",
            "--metric={metric}",
        ],
    ),
    (
        "flamegraph",
        &["--by={by}", "--at={when}", "--from={when}", "--to={when}", "--metric={metric}", "--format={flame}"],
    ),
    (
        "check",
        &[
            "--max-peak={size}",
            "--max-reserved={size}",
            "--max-fragmentation={percent}",
            "--max-leak={size}",
            "--max-site={regex}={size}",
            "--max-residue={when}..{when}={size}",
            "--steps={regex}",
            "--accept-late-start",
            "--tolerance={percent}",
            "--baseline=OTHER",
            "--format={checks}",
            "--top={n}",
        ],
    ),
    ("oom", &["--by={by}", "--top={n}", "--format={rows}", "--include={regex}", "--no-infer"]),
    ("fragmentation", &["--at={when}", "--over-time", "--points={n}", "--by={by}", "--top={n}", "--format={pictured}"]),
    ("leaks", &["--by={by}", "--steps={regex}", "--capacity={size}", "--top={n}", "--format={rows}"]),
    ("checkpoint", &["--top={n}", "--fit={size}", "--x={x}", "--format={pictured}"]),
    (
        "simulate",
        &[
            "--alloc-conf={conf}",
            "--sweep",
            "--capacity={size}",
            "--context={size}",
            "--accumulate={n}",
            "--inference",
            "--optimizer=sgd",
            "--format={pictured}",
        ],
    ),
    (
        "export",
        &[
            "--at={when}",
            "--from={when}",
            "--to={when}",
            "--metric={metric}",
            "--include={regex}",
            "--no-infer",
            "--all-frames",
            "--format={export}",
        ],
    ),
    ("report", &["--by={by}", "--x={x}", "--top={n}", "--at={when}", "--format={page}"]),
    ("fit", &["--vary=batch=2,4", "--at=batch={n}", "--capacity={size}", "--alloc-conf={conf}", "--format={pictured}"]),
    ("diff", &["--by={by}", "--top={n}", "--at={when}", "--fail-on-growth={percent}", "--format={pictured}"]),
    ("ranks", &["--metric={metric}", "--top={n}", "--format={pictured}"]),
];
/// Commands from here on take two recordings.
const FIRST_OF_TWO: usize = 13;
/// Flags of every command.
const COMMON: [&str; 5] = ["--strict", "--allow-truncated", "--device={device}", "--own={regex}", "--color=always"];
/// More than anybody types.
const MOST_FLAGS: usize = 6;
#[cfg(windows)]
const NOWHERE: &str = "NUL";
#[cfg(not(windows))]
const NOWHERE: &str = "/dev/null";

const VALUES: [(&str, &[&str]); 17] = [
    ("{rows}", &["text", "json", "markdown", "csv"]),
    ("{pictured}", &["text", "json", "markdown", "csv", "svg"]),
    ("{checks}", &["text", "json", "markdown", "junit", "github"]),
    ("{flame}", &["svg", "folded"]),
    ("{export}", &["pprof", "perfetto"]),
    ("{page}", &["svg", "html", "markdown"]),
    (
        "{by}",
        &[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "metadata:a",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
        ],
    ),
    (
        "{when}",
        &[
            "peak",
            "oom",
            "start",
            "end",
            "entry:0",
            "entry:7",
            "time:0s",
            "time:1ms",
            "step:1",
            "step:2:end",
            "annotation:a",
        ],
    ),
    ("{each}", &["step", "annotation", "phase"]),
    ("{metric}", &["allocated", "active", "requested", "reserved"]),
    ("{regex}", &["py", "step|forward", "^$", "."]),
    ("{x}", &["entry", "time"]),
    ("{n}", &["0", "1", "3", "20", "1000000"]),
    ("{size}", &["0", "1MiB", "20MiB", "512MiB", "8GiB", "80GiB"]),
    ("{percent}", &["0%", "5%", "100%"]),
    ("{conf}", &["expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:8", "newround:8"]),
    ("{device}", &["0", "1", "all", "-1"]),
];

/// Types the command.
///
/// # Panics
/// When the command breaks a promise.
pub fn run(plan: &Plan) {
    let at = usize::from(plan.command) % COMMANDS.len();
    let (name, flags) = COMMANDS[at];
    let [first, second] = [(0, &plan.recording), (1, &plan.other)].map(|(number, plan)| Written::new(number, plan));
    let mut typed = vec!["memviz".to_owned(), name.to_owned()];
    for &(flag, value) in plan.flags.iter().take(MOST_FLAGS) {
        let flag = usize::from(flag) % (flags.len() + COMMON.len());
        let flag = flags.get(flag).copied().unwrap_or_else(|| COMMON[flag - flags.len()]);
        typed.push(with_value(flag, value).replace("OTHER", &second.shown()));
    }
    typed.extend(["--quiet", "--threads=1", "--output", NOWHERE].map(str::to_owned));
    typed.push(first.shown());
    if at >= FIRST_OF_TWO {
        typed.push(second.shown());
    }
    let outcome = run_unlimited(typed.iter().map(OsString::from));
    // One device may contradict itself where another one does not.
    let is_about_all = !typed.iter().any(|flag| flag.starts_with("--device"));
    if name == "check" && outcome == Outcome::Done && is_about_all {
        assert!(first.contradictions().is_none_or(|number| number == 0), "{typed:?} keeps budgets of a contradiction");
    }
}

/// A flag with one of the values that it can have.
fn with_value(flag: &str, mut value: u8) -> String {
    let mut typed = flag.to_owned();
    for (kind, values) in VALUES {
        // A range has two of one kind, which may differ.
        while typed.contains(kind) {
            typed = typed.replacen(kind, values[usize::from(value) % values.len()], 1);
            value = value.rotate_left(3).wrapping_add(1);
        }
    }
    typed
}

/// A changed recording as a file, for as long as this is there.
struct Written(PathBuf);

impl Written {
    fn new(number: u8, plan: &mutation::Plan) -> Self {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(format!("memviz_fuzz_{process}_{thread:?}_rank{number}.pickle"));
        fs::write(&path, plan.file()).expect("there is room");
        Self(path)
    }

    fn shown(&self) -> String {
        self.0.display().to_string()
    }

    /// How often the recording contradicts itself, if it is one.
    fn contradictions(&self) -> Option<u64> {
        let mut options = ReadOptions::default();
        options.on_one_thread = true;
        Recording::open(&self.0, &options).ok().map(|recording| recording.anomalies())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
