//! `memviz ledger`: rows add up to what the driver reports as used, and the answer says what is unknown.

use crate::support::{fixture, memviz};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const RECORDING: &str = "fixtures/ledger/snapshot.pickle.gz";
const SAMPLES: &str = "fixtures/ledger/snapshot.device.json";
const MIB: u64 = 1 << 20;

fn samples() -> Value {
    serde_json::from_slice(&fs::read(SAMPLES).unwrap()).unwrap()
}

/// A folder with the recording, and these samples beside it.
fn folder(samples: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("snapshot.pickle.gz");
    fs::copy(RECORDING, &recording).unwrap();
    fs::write(folder.path().join("snapshot.device.json"), samples).unwrap();
    let path = recording.display().to_string();
    (folder, path)
}

/// The only device of an answer about these samples.
fn device(samples: &Value) -> Value {
    let (_folder, path) = folder(&samples.to_string());
    let answer = memviz(&["ledger", "--format", "json", &path]).json();
    let device = answer["devices"][0].clone();
    rows_sum(&device);
    device
}

/// Rows add up to what is in use, and pools to PyTorch's row, at each sample.
fn rows_sum(device: &Value) {
    for sample in device["samples"].as_array().unwrap() {
        let rows = sample["rows"].as_array().unwrap();
        let sum: i64 = rows.iter().map(|row| row["bytes"].as_i64().unwrap()).sum();
        assert_eq!(sum, sample["used_bytes"].as_i64().unwrap(), "{sample}");
        assert_eq!(rows.last().unwrap()["holder"], "unexplained");
        let pools: u64 = sample["pools"].as_array().unwrap().iter().map(|pool| pool["bytes"].as_u64().unwrap()).sum();
        assert!(pools == 0 || pools == rows[0]["bytes"].as_u64().unwrap(), "{sample}");
    }
}

fn bytes(sample: &Value, holder: &str) -> Option<i64> {
    let rows = sample["rows"].as_array().unwrap();
    rows.iter().find(|row| row["holder"] == holder).map(|row| row["bytes"].as_i64().unwrap())
}

/// A note of a device that has these words.
fn notes(device: &Value) -> String {
    device["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn who_has_the_memory_is_what_was_made() {
    let device = device(&samples());
    let [start, peak, end] = device["samples"].as_array().unwrap().as_slice() else { panic!("{device}") };
    for sample in [start, peak, end] {
        assert_eq!(bytes(sample, "context"), Some(450 * MIB as i64));
        assert_eq!(bytes(sample, "other_process"), Some(3072 * MIB as i64));
        assert_eq!(bytes(sample, "unexplained"), Some(100 * MIB as i64));
        assert_eq!(bytes(sample, "process"), None);
    }
    assert_eq!([start, peak, end].map(|sample| bytes(sample, "nccl")), [None, Some(96 << 20), Some(96 << 20)]);
    assert_eq!(notes(&device), "");
    // What PyTorch counted is what the replay of the recording gives.
    let answer = memviz(&["peak", "--at", "end", "--format", "json", RECORDING]).json();
    assert_eq!(answer["devices"][0]["end"]["reserved_bytes"].as_i64(), bytes(end, "pytorch"));
    assert_eq!(answer["devices"][0]["end"]["allocated_bytes"], end["allocated_bytes"]);
    let kinds: Vec<&Value> = end["pools"].as_array().unwrap().iter().map(|pool| &pool["kind"]).collect();
    assert_eq!(kinds, [&Value::Null, &json!("mem_pool")]);
    assert_eq!(end["pools"][1]["bytes"].as_u64(), Some(128 * MIB));
}

#[test]
fn in_a_container_nobody_is_named() {
    let mut samples = samples();
    samples["pid"] = json!(7);
    let device = device(&samples);
    let end = &device["samples"][2];
    assert_eq!((bytes(end, "other_process"), bytes(end, "context"), bytes(end, "process")), (None, None, None));
    assert_eq!(bytes(end, "unexplained"), Some((450 + 3072 + 100) << 20));
    assert!(notes(&device).contains("2 processes with 4.04 GiB in total, but not the recorded process, 7"), "{device}");
}

#[test]
fn without_processes_the_rest_is_unexplained() {
    let mut samples = samples();
    samples["devices"][0]["processes_missing"] = json!("libnvidia-ml.so.1 cannot be loaded");
    for sample in samples["devices"][0]["samples"].as_array_mut().unwrap() {
        sample.as_object_mut().unwrap().remove("processes");
    }
    let device = device(&samples);
    assert_eq!(bytes(&device["samples"][0], "unexplained"), Some((450 + 3072 + 100) << 20));
    assert!(notes(&device).contains("unknown (libnvidia-ml.so.1 cannot be loaded)"), "{device}");
    assert!(notes(&device).contains("3.54 GiB were in use when recording started"), "{device}");
}

#[test]
fn what_the_driver_does_not_tell_is_unexplained() {
    let mut samples = samples();
    samples["processes_from"] = json!("nvidia-smi");
    samples["devices"][0]["samples"][2]["processes"][1]["bytes"] = Value::Null;
    let device = device(&samples);
    assert_eq!(bytes(&device["samples"][2], "other_process"), None);
    assert_eq!(bytes(&device["samples"][2], "unexplained"), Some((3072 + 100) << 20));
    assert!(notes(&device).contains("does not report memory for one process"), "{device}");
    assert!(notes(&device).contains("rounds to MiB"), "{device}");
}

#[test]
fn what_was_loaded_later_is_not_the_context() {
    let mut samples = samples();
    let later = &mut samples["devices"][0]["samples"][2];
    let own = later["processes"][0]["bytes"].as_u64().unwrap();
    later["processes"][0]["bytes"] = json!(own + 60 * MIB);
    let device = device(&samples);
    let end = &device["samples"][2];
    assert_eq!((bytes(end, "context"), bytes(end, "process")), (Some(450 << 20), Some(60 << 20)));
    assert_eq!(bytes(end, "unexplained"), Some(40 << 20));
}

#[test]
fn contradictions_are_shown_and_said() {
    let mut samples = samples();
    samples["devices"][0]["samples"][1]["processes"][1]["bytes"] = json!(9_u64 << 30);
    samples["devices"][0]["samples"][2]["reserved_bytes"] = json!(4096);
    let device = device(&samples);
    assert!(bytes(&device["samples"][1], "unexplained").unwrap() < 0);
    assert_eq!(device["samples"][2]["pools"], json!([]));
    assert!(notes(&device).contains("contradict each other in 1 sample"), "{device}");
    assert!(notes(&device).contains("add up to 514.00 MiB, but PyTorch's counter says 4.00 KiB"), "{device}");
}

#[test]
fn a_failed_request_tells_what_was_free() {
    let answer = memviz(&["ledger", "--capacity", "8GiB", "--format", "json", &fixture("oom")]).json();
    let device = &answer["devices"][0];
    rows_sum(device);
    let oom = memviz(&["oom", "--format", "json", &fixture("oom")]).json();
    let request = &oom["devices"][0]["ooms"][0];
    let [sample] = device["samples"].as_array().unwrap().as_slice() else { panic!("{device}") };
    assert_eq!(sample["at"], "oom");
    let free = sample["total_bytes"].as_u64().unwrap() - sample["used_bytes"].as_u64().unwrap();
    assert_eq!(Some(free), request["device_free_bytes"].as_u64());
    assert_eq!(bytes(sample, "pytorch"), request["reserved_bytes"].as_i64());
    assert_eq!(sample["allocated_bytes"], request["allocated_bytes"]);
}

#[test]
fn fit_knows_the_device_and_what_others_held() {
    let fit = memviz(&["fit", "--format", "json", RECORDING]).json();
    let device = &fit["devices"][0];
    assert_eq!(device["context_bytes"].as_u64(), Some((96 + 450 + 3072 + 100) * MIB), "{device}");
    assert_eq!(device["capacity_bytes"].as_u64(), Some((24576 - 96 - 450 - 3072 - 100) * MIB), "{device}");
    // What is asked for counts.
    let fit = memviz(&["fit", "--capacity", "900MiB", "--context", "0", "--format", "json", RECORDING]).json();
    assert_eq!(fit["devices"][0]["capacity_bytes"].as_u64(), Some(900 * MIB));
}

#[test]
fn who_else_used_the_device_is_said_when_a_request_failed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("oom.pickle.gz");
    fs::copy(fixture("oom"), &path).unwrap();
    let mut samples = samples();
    let all = samples["devices"][0]["samples"].as_array_mut().unwrap();
    all[2]["at"] = json!("oom");
    fs::write(folder.path().join("oom.device.json"), samples.to_string()).unwrap();
    let path = path.display().to_string();
    let said = "outside PyTorch's allocator, of 24.00 GiB: 450.00 MiB CUDA context, \
                3.00 GiB vllm (process 4711), 100.00 MiB unexplained";
    for command in ["oom", "triage"] {
        for format in ["text", "markdown"] {
            let text = memviz(&[command, "--format", format, &path]).stdout.replace('\\', "");
            assert!(text.contains(said), "{text}");
        }
    }
    let oom = memviz(&["oom", "--format", "json", &path]).json();
    assert_eq!(oom["devices"][0]["ledger"]["at"], "oom");
    rows_sum(&json!({"samples": [oom["devices"][0]["ledger"]]}));
    // Recordings without samples say nothing of it.
    assert!(!memviz(&["oom", &fixture("oom")]).stdout.contains("outside PyTorch"));
}

#[test]
fn what_is_missing_or_wrong_is_one_line() {
    memviz(&["ledger", &fixture("oom")])
        .expect_error("found a failed request without --capacity: add --capacity with the memory of the device");
    memviz(&["ledger", "--capacity", "8GiB", &fixture("tiny")]).expect_error("found neither");
    // Less than what was reserved and free.
    memviz(&["ledger", "--capacity", "7GiB", &fixture("oom")])
        .expect_error("more reserved and free memory than the device has");
    let (_folder, path) = folder("{");
    let run = memviz(&["ledger", &path]);
    assert!(run.stderr.contains("snapshot.device.json: expected device samples of torch_memviz"), "{}", run.stderr);
    run.expect(2);
    // It is no reason for other commands to answer nothing.
    let peak = memviz(&["peak", &path]);
    assert!(peak.stderr.contains("snapshot.device.json"), "{}", peak.stderr);
    assert!(peak.stdout.contains("peak allocated"), "{}", peak.stdout);
    // Nor is a folder, or a pipe that nobody writes to.
    fs::remove_file(path.replace("pickle.gz", "device.json")).unwrap();
    fs::create_dir(path.replace("pickle.gz", "device.json")).unwrap();
    let peak = memviz(&["peak", &path]);
    assert!(peak.stderr.contains("expected a file"), "{}", peak.stderr);
    peak.expect(0);
}
