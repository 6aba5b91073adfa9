//! The reproductions of earlier attacks, each with the exit code that it must have, and a word that the line about it must hold.

use crate::families::{entry, frame, gzip, live, pickle, serialized};
use crate::support::{self, assert_none, fixture, memviz};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A recording, the question, the exit code, and a part of the line on standard error; or of the answer, if there is none.
type Attack = (&'static str, Vec<u8>, &'static [&'static str], i32, &'static str);

const PEAK: &[&str] = &["check", "--max-peak", "100GiB"];

/// A fixture as it was pickled, with one text of it replaced by another of the same length.
fn changed(name: &str, text: &[u8], by: &[u8]) -> Vec<u8> {
    assert_eq!(text.len(), by.len(), "lengths stand in front of texts");
    let mut bytes = support::read_unpacked(&fixture(name));
    let places: Vec<usize> =
        bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{name} has no {}", String::from_utf8_lossy(text));
    for at in places {
        bytes[at..at + by.len()].copy_from_slice(by);
    }
    bytes
}

/// The first bytes of a fixture, up to a text.
fn cut_before(name: &str, text: &[u8]) -> Vec<u8> {
    let mut bytes = support::read_unpacked(&fixture(name));
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes.truncate(at);
    bytes
}

/// A recording that is complete except for additions to its root.
fn with(key: &str, value: Value) -> Vec<u8> {
    let mut snapshot = json!({"segments": [], "device_traces": []});
    snapshot[key] = value;
    serialized(&snapshot)
}

/// An end of a range of annotations.
fn range(stage: &str, time_us: u64) -> Value {
    json!({"stage": stage, "name": "step", "device": 0, "time_us": time_us})
}

fn many_failures() -> Vec<u8> {
    let stacks: Vec<Vec<Value>> = (0..4000).map(|line| vec![frame("/home/u/m.py", line)]).collect();
    let mut trace = live(&stacks);
    for _ in 0..60 {
        let mut failed = entry("oom", 0, 1 << 30, 0, &[frame("/home/u/m.py", 3)], trace.len() as u64);
        failed["device_free"] = json!(5 << 20);
        trace.push(failed);
    }
    gzip(&pickle(&trace, &[]))
}

fn deep_stack() -> Vec<u8> {
    let frames = (0..30_000).map(|depth| frame(&format!("/home/u/f{}.py", depth % 10_000), depth % 10_000)).collect();
    gzip(&pickle(&live(&[frames]), &[]))
}

fn long_labels() -> Vec<u8> {
    let mut long = frame("/home/u/a.py", 1);
    long["name"] = json!("N".repeat(4096));
    let stack = |line: u64| [vec![long.clone(); 200], vec![frame("/home/u/b.py", line)]].concat();
    pickle(&live(&(0..200).map(stack).collect::<Vec<_>>()), &[])
}

fn nested_annotations() -> Vec<u8> {
    let name = "A".repeat(100_000);
    let end = |stage: &str, time: u64| json!({"stage": stage, "name": name, "device": 0, "time_us": time});
    let ends = (0..60).map(|at| end("START", at)).chain((0..60).map(|at| end("END", 1000 + at)));
    gzip(&pickle(&live(&vec![vec![frame("/home/u/m.py", 3)]; 500]), &ends.collect::<Vec<_>>()))
}

fn named(name: &str) -> Vec<u8> {
    pickle(&live(&vec![vec![frame(name, 3)]; 3]), &[])
}

fn attacks() -> Vec<Attack> {
    let spaces = gzip(&[b"{".to_vec(), vec![b' '; 64 << 20]].concat());
    let devices: Vec<Vec<Value>> = vec![live(&[vec![frame("/home/u/m.py", 3)]]); 3000];
    let many_devices = serialized(&json!({"segments": [], "device_traces": devices}));
    let unknown = |action: &str| {
        let mut trace = live(&[vec![frame("/home/u/m.py", 3)]]);
        trace.push(entry(action, 1 << 50, 1 << 30, 0, &[], 9));
        pickle(&trace, &[])
    };
    let trace = |name: &str, thread: Value| {
        let event = |name: &str, time: u64| {
            json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": 1, "tid": thread, "ts": time,
                   "args": {"Total Reserved": 1 << 30, "Total Allocated": 512 * time, "Bytes": 512, "Device Id": 0,
                            "Device Type": 1, "Addr": 256 + time, "Ev Idx": 0}})
        };
        let events = [event("[memory]", 1), event(name, 2)];
        json!({"schemaVersion": 1, "profile_memory": 1, "traceEvents": events}).to_string().into_bytes()
    };
    let tiny = support::read_unpacked(&fixture("tiny"));
    let first_lines = |count: usize| vec![vec![frame("/home/u/m.py", 3)]; count];
    vec![
        // Memory and time: anything that exceeds a limit is refused on one line, and everything else is answered.
        ("failed requests times lines", many_failures(), &["oom", "--format", "json"], 0, "\"ooms\""),
        ("failed requests, looked at", many_failures(), &["triage"], 0, "60"),
        ("functions of a deep stack", deep_stack(), &["peak", "--by", "function"], 0, "rows overlap"),
        ("long labels", long_labels(), &["flamegraph"], 0, "<svg"),
        ("long labels, reported", long_labels(), &["report", "--format", "svg"], 0, "<svg"),
        (
            "names in one another",
            nested_annotations(),
            &["fragmentation", "--over-time", "--format", "json"],
            0,
            "pools",
        ),
        ("spaces without end", spaces, &["info"], 2, "bytes"),
        ("devices without end", many_devices, PEAK, 2, "expected a device"),
        // What is not known is not passed.
        ("an unknown action", unknown("virtual_alloc"), PEAK, 2, "contradicts itself"),
        ("an overflow that is a number", with("trace_alloc_overflowed", json!(1)), PEAK, 2, "cannot be judged"),
        ("a ring with stacks", support::read_unpacked(&fixture("ring")), PEAK, 2, "earlier entries are missing"),
        ("two recordings", [tiny.clone(), tiny.clone()].concat(), PEAK, 2, "more data follows"),
        (
            "cut behind traces",
            cut_before("tiny", b"allocator_settings"),
            &["check", "--max-peak", "100GiB", "--allow-truncated"],
            2,
            "cut off",
        ),
        ("no settings", changed("gpt_train", b"allocator_settings", b"allocator_sittings"), PEAK, 2, "allocator"),
        (
            "no text of the settings",
            changed("tiny", b"PYTORCH_CUDA_ALLOC_CONF", b"PYTORCH_CUDA_ALLOC_KONF"),
            PEAK,
            2,
            "ALLOC_CONF",
        ),
        ("no max_split_size", changed("tiny", b"max_split_size", b"max_split_sise"), PEAK, 2, "max_split_size"),
        ("an event of another name", trace("[memory:large]", json!(1)), PEAK, 2, "left out"),
        ("an event of another thread", trace("[memory]", json!("main")), PEAK, 2, "cannot be judged"),
        ("a late beginning", support::read_unpacked(&fixture("gpt_late")), PEAK, 2, "--accept-late-start"),
        (
            "a residue since a late start",
            support::read_unpacked(&fixture("gpt_late")),
            &["check", "--max-residue", "start..end=100GiB"],
            2,
            "--accept-late-start",
        ),
        (
            "annotations on another clock",
            pickle(&live(&first_lines(3)), &[range("START", 1_000_000), range("END", 1_000_005)]),
            &["check", "--max-residue", "annotation:step:start..annotation:step:end=1GiB"],
            2,
            "outside the recorded entries",
        ),
        (
            "sites without a file",
            changed("gpt_train", b"filename", b"fylename"),
            &["check", "--max-site", "minigpt=100GiB"],
            2,
            "names a file",
        ),
        // Sums have room in their 63 bits.
        ("sizes that wrap around", sized(1 << 62), PEAK, 2, "sum to 1 EiB or more"),
        ("a size below zero", sized(u64::MAX - 511), &["fragmentation"], 2, "which no device has"),
        ("totals that wrap around", total(i64::MAX), &["info"], 2, "fewer bytes than an exbibyte"),
        // Names are text.
        ("a command to GitHub", named("::stop-commands::x.py"), &["peak"], 0, ":\\u{3a}stop"),
        ("a command to Azure", named("##VSO[task.complete]x.py"), &["peak"], 0, "##VSO\\u{5b}"),
        ("a formula", named("=1+1.py"), &["peak", "--format", "csv"], 0, "'=1+1.py"),
        (
            "a mention",
            pickle(&live(&first_lines(3)), &[json!({"stage": "START", "name": "@octocat", "device": 0, "time_us": 0})]),
            &["report", "--format", "markdown"],
            0,
            "",
        ),
    ]
}

/// Four blocks of one size at separate addresses.
fn sized(size: u64) -> Vec<u8> {
    let blocks =
        (0..4).map(|block| entry("alloc", (1 << 40) + 512 * block, size, 0, &[frame("/home/u/m.py", 3)], block));
    pickle(&blocks.collect::<Vec<_>>(), &[])
}

/// A trace with a total.
fn total(total: i64) -> Vec<u8> {
    let event = |time: u64, total: i64| {
        json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": time,
               "args": {"Total Reserved": 512, "Total Allocated": total, "Bytes": 512, "Device Id": 0, "Device Type": 1,
                        "Addr": 256 * time, "Ev Idx": 0}})
    };
    let events = [event(1, total), event(2, 512)];
    json!({"schemaVersion": 1, "profile_memory": 1, "traceEvents": events}).to_string().into_bytes()
}

#[test]
fn every_attack_ends_as_it_must() {
    let folder = TempDir::new().unwrap();
    let mut problems = Vec::new();
    for (what, bytes, args, code, part) in attacks() {
        let path = folder.path().join("attack").into_os_string().into_string().unwrap();
        fs::write(&path, bytes).unwrap();
        let run = memviz(&[args, &["--max-memory", "1GiB", &path]].concat());
        let said = if code == 0 { &run.stdout } else { &run.stderr };
        let lines = usize::from(code != 0);
        if run.code != Some(code) || run.stderr.lines().count() > lines || !said.contains(part) {
            let shown: String = said.chars().take(300).collect();
            problems
                .push(format!("{what}: expected {code} and {part:?}, found {:?}: {} {shown}", run.code, run.stderr));
        }
    }
    assert_none(&problems);
}

/// The exit code does not depend on who reads the text.
#[test]
fn a_verdict_outlives_its_reader() {
    let folder = TempDir::new().unwrap();
    let baseline = folder.path().join("baseline.json").into_os_string().into_string().unwrap();
    let (tiny, train, none) = (fixture("tiny"), fixture("gpt_train"), fixture("no_history"));
    for (args, code) in [
        (&["check", &train, "--max-peak", "1GiB"] as &[&str], 1),
        (&["check", &none, "--max-peak", "1GiB"], 2),
        (&["diff", "--fail-on-growth", "0", &tiny, &train], 1),
        (&["check", &tiny, "--baseline", &baseline, "--update-baseline"], 0),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memviz"));
        let mut child =
            command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{args:?}");
    }
    assert!(fs::read_to_string(&baseline).unwrap().contains("\"check\""));
}
