//! `memviz ranks`: ranks of a run against PyTorch's own counters, summaries that are joined, and inputs of all kinds.
#![cfg(feature = "cli")]

mod figures;
mod inputs;
mod joined;
mod output;

use crate::support::Run;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const RANKS8: &str = "fixtures/snapshots/ranks8";
/// A profiler trace with memory of a CUDA device and of the CPU.
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
const FORMATS: [&str; 4] = ["text", "json", "csv", "markdown"];

/// The lines of an answer in JSON, however the run ended.
#[track_caller]
fn lines(run: &Run) -> Vec<Value> {
    run.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .collect()
}

/// Those of one kind.
fn kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["line"] == kind).collect()
}

/// The last line.
#[track_caller]
fn across(lines: &[Value]) -> &Value {
    let last = lines.last().expect("there is a line");
    assert_eq!(last["line"], "across");
    last
}

/// Ranks on their devices, in the order of the lines.
fn ranks(lines: &[Value]) -> Vec<(u64, i64)> {
    kind(lines, "rank").iter().map(|line| (line["rank"].as_u64().unwrap(), line["device"].as_i64().unwrap())).collect()
}

fn rank8(rank: usize) -> String {
    format!("{RANKS8}/rank{rank}.pickle.gz")
}

/// A summary of a rank with this peak, as a line of JSON.
fn summary(rank: u64, peak: u64) -> Value {
    let counters =
        json!({"allocated_bytes": peak, "active_bytes": peak, "requested_bytes": peak, "reserved_bytes": peak});
    json!({
        "schema_version": 1, "command": "ranks", "line": "rank", "path": format!("/node{}/rank{rank}.pickle", rank / 8),
        "rank": rank, "rank_source": "path", "device": rank % 8, "format": "cuda_snapshot", "entries": 1000,
        "complete_history": true, "anomalies": 0, "baseline_bytes": 0, "maxima": counters, "metric": "allocated",
        "peak": counters, "inactive_bytes": 0, "end": counters, "ooms": 0, "total_bytes": peak,
        "top": [{"label": "model.py:7 forward", "bytes": peak, "blocks": 1}],
    })
}

/// A line of JSON for each value. Keys of objects are in alphabetical order, except that the version comes first.
fn written(summaries: &[Value]) -> String {
    let line = |summary: &Value| {
        let mut object = summary.as_object().unwrap().clone();
        let version = object.remove("schema_version").map_or(String::new(), |version| version.to_string());
        let rest = Value::Object(object).to_string();
        format!("{{\"schema_version\":{version},{}\n", &rest[1..])
    };
    summaries.iter().map(line).collect()
}

fn put(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}
