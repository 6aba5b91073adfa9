//! Python as a second opinion: a changed file on which `check` passes a budget is one that Python's own `pickle`, `gzip` and
//! `zipfile` read, and both find the same entries in it.

use super::read;
use crate::support::{self, assert_none, fixture, skipped};
use memviz::analysis::check::{Budgets, CheckOptions, CheckVerdict};
use memviz::model::{Action, HOST_DEVICE};
use serde_json::{Value, json};
use std::fs;
use std::io::{Cursor, Write};
use std::process::Command;
use tempfile::TempDir;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Changed files: pickles, and containers of one.
const PICKLES: usize = 900;
const CONTAINERS: usize = 150;
/// Bytes at either end of a container that describe its contents.
const ENDS: usize = 110;

/// Numbers that are the same in each run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) as usize % end
    }

    /// A copy in which something at `at` is another byte, removed, or repeated.
    fn changed(&mut self, bytes: &[u8], at: usize) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        let end = (at + 1 + self.below(6)).min(copy.len());
        match self.below(6) {
            0 => drop(copy.drain(at..end)),
            1 => {
                let again = copy[at..end].to_vec();
                copy.splice(at..at, again);
            }
            2 => copy[at] = self.below(256) as u8,
            _ => copy[at] ^= 1 << self.below(8),
        }
        copy
    }
}

fn zipped(content: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    archive.start_file("snapshot.pickle", options).unwrap();
    archive.write_all(content).unwrap();
    archive.finish().unwrap().into_inner()
}

/// What memviz reads from a file, in the oracle's format; `None` if `check` would pass no budget.
fn entries(bytes: &[u8]) -> Option<Value> {
    let recording = read(bytes).ok()?;
    let budgets = Budgets::default().devices(vec![0]).max_peak(Some(u64::MAX));
    let report = recording.check(&CheckOptions::default().budgets(vec![budgets]));
    if report.verdict() != CheckVerdict::Passed {
        return None;
    }
    let snapshot = recording.snapshot;
    let traces = snapshot.traces.iter().filter(|trace| trace.device > HOST_DEVICE);
    let trace = |rows: std::ops::Range<usize>| -> Value {
        snapshot.entries.rows(rows).map(|entry| json!([name(entry.action), entry.addr, entry.size])).collect()
    };
    Some(traces.map(|found| trace(found.rows.clone())).collect())
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Snapshot => "snapshot",
        Action::Oom => "oom",
        Action::Annotate => "annotate",
        Action::Unknown => "unknown",
    }
}

/// Bytes that are missing between names show in the frames around them.
#[test]
fn frames_that_overlap_are_refused() {
    let mut bytes = support::read_unpacked(&fixture("side_stream"));
    let is_frame = |window: &&[u8]| window[0] == 0x95 && window[4..9] == [0; 5];
    assert!(bytes.windows(9).filter(is_frame).count() > 1, "the fixture has several frames");
    // A key and a value, each a reference of two bytes: without them, the rest is a pickle with an entry that lacks a key.
    let entry = bytes.windows(8).position(|window| window.iter().step_by(2).all(|&byte| byte == b'h')).unwrap();
    bytes.drain(entry..entry + 4);
    let error = super::error(&bytes);
    assert!(error.contains("a frame claims to end"), "{error}");
}

/// The first entry that is not the same.
fn difference(ours: &Value, python: &Value) -> String {
    let Some(traces) = python.as_array() else { return python.to_string() };
    let of = |traces: &Value| -> Vec<Value> {
        let traces = traces.as_array().into_iter().flatten();
        traces.filter_map(Value::as_array).flatten().cloned().collect()
    };
    let (ours, python) = (of(ours), of(python));
    let same = ours.iter().zip(&python).take_while(|(ours, python)| ours == python).count();
    let found = format!("entry {same}: {:?} and in Python {:?}", ours.get(same), python.get(same));
    format!("{} and {} entries in {} traces, {found}", ours.len(), python.len(), traces.len())
}

#[test]
fn python_reads_what_memviz_reads() {
    let folder = TempDir::new().unwrap();
    let mut numbers = Numbers(32);
    let pickles = ["tiny", "private_pool"].map(|name| support::read_unpacked(&fixture(name)));
    let mut files = Vec::new();
    for number in 0..PICKLES {
        let pickle = &pickles[number % pickles.len()];
        let at = numbers.below(pickle.len());
        files.push(numbers.changed(pickle, at));
    }
    for container in [zipped(&pickles[0]), fs::read(fixture("tiny")).unwrap()] {
        for _ in 0..CONTAINERS {
            let at = numbers.below(2 * ENDS);
            let at = if at < ENDS { at } else { container.len() - 1 - (at - ENDS) };
            files.push(numbers.changed(&container, at));
        }
    }
    let mut python = Command::new("python3");
    python.arg("tests/input/oracle.py");
    for (at, bytes) in files.iter().enumerate() {
        let path = folder.path().join(at.to_string());
        fs::write(&path, bytes).unwrap();
        python.arg(path);
    }
    let Ok(output) = python.output() else {
        skipped("there is no python3, whose readers are the second opinion");
        return;
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    let said: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said.len(), files.len(), "{}", String::from_utf8_lossy(&output.stderr));

    let original = entries(&pickles[0]).expect("the fixture is whole");
    let mut problems = Vec::new();
    let mut both = 0;
    for (at, (bytes, python)) in files.iter().zip(&said).enumerate() {
        let Some(ours) = entries(bytes) else { continue };
        both += 1;
        let refused = python["refused"].as_str().unwrap_or_default();
        // No byte depends on names with invalid UTF-8, nor on an unknown key of a stack frame. Python compares what an
        // archive says about its file in two places; both verify the contents by the checksum.
        let names = ["UnicodeDecodeError", "TypeError: unhashable"];
        let agrees =
            names.iter().any(|name| refused.starts_with(name)) || refused.starts_with("BadZipFile") && ours == original;
        if ours != *python && !agrees {
            problems.push(format!("file {at} of {} bytes: {}", bytes.len(), difference(&ours, python)));
        }
    }
    assert!(both > 50, "memviz reads only {both} of {} files", files.len());
    assert_none(&problems);
}
