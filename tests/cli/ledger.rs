//! `memviz ledger`: rows add up to what the driver reports as used, and the answer says what is unknown.

#[cfg(feature = "view")]
use crate::support::open;
use crate::support::{fixture, memviz};
use memviz::model::bytes::Bytes;
#[cfg(feature = "view")]
use memviz::{Recording, input::device_file, report::view};
use serde_json::{Value, json};
#[cfg(feature = "view")]
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

const RECORDING: &str = "fixtures/ledger/snapshot.pickle.gz";
const SAMPLES: &str = "fixtures/ledger/snapshot.device.json";
const MIB: u64 = 1 << 20;

fn samples() -> Value {
    serde_json::from_slice(&fs::read(SAMPLES).unwrap()).unwrap()
}

/// A folder with the recording, and these samples next to it.
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

/// Rows add up to the memory in use, and pools to PyTorch's row, at each sample.
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
fn the_owners_of_memory_are_those_of_the_samples() {
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
fn in_a_container_no_process_is_named() {
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
    assert!(notes(&device).contains("3.54 GiB was in use when recording started"), "{device}");
}

#[test]
fn memory_missing_from_the_driver_is_unexplained() {
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
fn modules_loaded_later_are_not_the_context() {
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
fn a_failed_request_shows_what_was_free() {
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
    // The option takes precedence.
    let fit = memviz(&["fit", "--capacity", "900MiB", "--context", "0", "--format", "json", RECORDING]).json();
    assert_eq!(fit["devices"][0]["capacity_bytes"].as_u64(), Some(900 * MIB));
}

#[test]
fn other_processes_are_named_at_a_failed_request() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("oom.pickle.gz");
    fs::copy(fixture("oom"), &path).unwrap();
    let mut samples = samples();
    let all = samples["devices"][0]["samples"].as_array_mut().unwrap();
    all[2]["at"] = json!("oom");
    fs::write(folder.path().join("oom.device.json"), samples.to_string()).unwrap();
    let path = path.display().to_string();
    let said = "outside PyTorch's allocator, on a device with 24.00 GiB: 450.00 MiB CUDA context, \
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
    // Recordings without samples have no answer.
    assert!(!memviz(&["oom", &fixture("oom")]).stdout.contains("outside PyTorch"));
}

/// The text of the report, the page and `ranks` about the device: the figures of the ledger.
#[test]
fn reports_ranks_and_the_page_use_the_samples() {
    let (_folder, path) = folder(&samples().to_string());
    let ledger = memviz(&["ledger", "--format", "json", &path]).json();
    let highest = ledger["devices"][0]["samples"][1].clone();
    assert_eq!(highest["at"], "peak");
    let title = "Device 0 (FakeCUDA): 4.36 GiB of 24.00 GiB in use at the highest sample (end of a step)";
    let mut said: Vec<String> = vec![title.to_owned()];
    for row in highest["rows"].as_array().unwrap() {
        said.push(format!("{} {}", Bytes(row["bytes"].as_u64().unwrap()), row["label"].as_str().unwrap()));
    }
    for format in ["markdown", "html", "svg"] {
        let text = memviz(&["report", "--format", format, &path])
            .stdout
            .replace('\\', "")
            .replace("&#39;", "'")
            .replace("<wbr>", "");
        for part in said.iter().filter(|part| format != "svg" || part.len() < 40) {
            assert!(text.contains(part), "{format}: {part} is not in\n{text}");
        }
        assert!(
            !memviz(&["report", "--format", format, &fixture("tiny")]).stdout.contains("in use at the"),
            "{format}"
        );
    }
    let outside = highest["used_bytes"].as_i64().unwrap() - bytes(&highest, "pytorch").unwrap();
    let text = memviz(&["ranks", "--format", "json", &path]).expect(0).stdout.clone();
    let rank: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let memory = json!({
        "at": "peak", "total_bytes": highest["total_bytes"], "used_bytes": highest["used_bytes"], "outside_bytes": outside,
    });
    assert_eq!(rank["device_memory"], memory);
    let ranks = |format: &str| memviz(&["ranks", "--format", format, &path]).stdout.clone();
    let line = ranks("text").lines().find(|line| line.contains("outside PyTorch")).unwrap_or_default().to_owned();
    assert_eq!(line.matches(&Bytes(outside.unsigned_abs()).to_string()).count(), 3, "{line}");
    assert!(ranks("csv").lines().nth(1).unwrap().contains(&format!(",{},{outside},", memory["used_bytes"])));
    assert!(
        ranks("prometheus")
            .contains(&format!("memviz_rank_outside_bytes{{rank=\"0\",device=\"0\",path=\"{path}\"}} {outside}"))
    );
    assert!(!memviz(&["ranks", &fixture("tiny")]).stdout.contains("outside"));
}

#[cfg(feature = "view")]
#[test]
fn the_page_lists_who_uses_the_device() {
    let mut recording = open(RECORDING);
    let found = |recording: &Recording| -> Vec<Value> {
        let found: Vec<Value> =
            serde_json::from_str(&view::findings(&recording.devices(), &BTreeMap::new()).unwrap()).unwrap();
        found.into_iter().filter(|finding| finding["kind"] == "ledger").collect()
    };
    assert_eq!(found(&recording), Vec::<Value>::new());
    recording.device_file = device_file::beside(RECORDING.as_ref()).unwrap();
    let [finding] = found(&recording).try_into().unwrap();
    assert_eq!(finding["command"], "ledger");
    assert!(finding["lines"].to_string().contains("3.00 GiB vllm (process 4711)"), "{finding}");
}

#[test]
fn samples_that_cannot_be_read_leave_the_rank() {
    let (_folder, path) = folder("{");
    let run = memviz(&["ranks", &path]);
    assert!(run.stderr.contains("snapshot.device.json: expected device samples of torch_memviz"), "{}", run.stderr);
    assert!(run.stdout.contains("Across 1 rank"), "{}", run.stdout);
    run.expect(2);
}

/// Pinned host memory has separate rows, which are not part of the device.
#[test]
fn pinned_memory_is_not_part_of_the_device() {
    let mut samples = samples();
    samples["host"] = json!([
        {"at": "start", "reserved_bytes": 0, "active_bytes": 0},
        {"at": "end", "time_us": 1_000_003_000_000_u64, "reserved_bytes": 64 * MIB, "active_bytes": 48 * MIB},
    ]);
    samples["devices"][0]["samples"][2]["memory_stats"] = json!({"num_alloc_retries": 3, "num_ooms": 1});
    let device = device(&samples);
    let pinned =
        json!({"at": "end", "time_us": 1_000_003_000_000_u64, "reserved_bytes": 64 * MIB, "active_bytes": 48 * MIB});
    assert_eq!(device["pinned_samples"][1], pinned);
    assert_eq!(device["samples"][2]["memory_stats"], json!({"num_alloc_retries": 3, "num_ooms": 1}));
    assert!(device["samples"][0].get("memory_stats").is_none());
    let (_folder, path) = folder(&samples.to_string());
    let text = memviz(&["ledger", &path]).stdout.clone();
    let (whole, host) = text.split_once("Pinned host memory of this process, which is not on the device").unwrap();
    assert_eq!(whole, memviz(&["ledger", RECORDING]).stdout.split_once("memviz peak").unwrap().0);
    let rows: Vec<&str> = host.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    assert_eq!(
        rows,
        [
            "start          end",
            "0 bytes    64.00 MiB  PyTorch's allocator (pinned)",
            "0 bytes    48.00 MiB    of which in use",
        ]
    );
    let csv = memviz(&["ledger", "--format", "csv", &path]).stdout.clone();
    let last = format!("-1,end,1000003000000,pytorch,pinned host memory,,{0},{0},,", 64 * MIB);
    assert_eq!(csv.lines().last(), Some(last.as_str()));
}

#[test]
fn a_capacity_that_is_not_used_is_said() {
    let unused = "--capacity and --gpu are ignored";
    assert!(memviz(&["ledger", RECORDING, "--gpu", "h100-80gb"]).expect(0).stdout.contains(unused));
    assert!(!memviz(&["ledger", RECORDING]).expect(0).stdout.contains(unused));
    assert!(!memviz(&["ledger", &fixture("oom"), "--capacity", "8GiB"]).expect(0).stdout.contains(unused));
}

#[test]
fn missing_or_wrong_inputs_are_one_line() {
    memviz(&["ledger", &fixture("oom")])
        .expect_error("found a failed request without --capacity: add --capacity with the memory of the device");
    memviz(&["ledger", &fixture("tiny")]).expect_error("found neither");
    memviz(&["ledger", "--capacity", "8GiB", &fixture("tiny")]).expect_error("found no failed request");
    // Less than the reserved and free memory.
    memviz(&["ledger", "--capacity", "7GiB", &fixture("oom")])
        .expect_error("a failed request whose reserved and free memory together exceed that of the device");
    let (_folder, path) = folder("{");
    let run = memviz(&["ledger", &path]);
    assert!(run.stderr.contains("snapshot.device.json: expected device samples of torch_memviz"), "{}", run.stderr);
    run.expect(2);
    // Other commands still answer.
    let peak = memviz(&["peak", &path]);
    assert!(peak.stderr.contains("snapshot.device.json"), "{}", peak.stderr);
    assert!(peak.stdout.contains("peak allocated"), "{}", peak.stdout);
    // Neither is a folder, or a pipe without a writer.
    fs::remove_file(path.replace("pickle.gz", "device.json")).unwrap();
    fs::create_dir(path.replace("pickle.gz", "device.json")).unwrap();
    let peak = memviz(&["peak", &path]);
    assert!(peak.stderr.contains("expected a file"), "{}", peak.stderr);
    peak.expect(0);
}

/// A folder with a recording that ran out of memory, and a profiler trace with this name. The trace names a GPU with 80 GiB.
fn beside_trace(name: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("run.pickle.gz");
    fs::copy(fixture("oom"), &recording).unwrap();
    fs::copy("fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz", folder.path().join(name)).unwrap();
    (folder, recording.display().to_string())
}

#[test]
fn a_trace_of_the_run_shows_the_memory_of_the_device() {
    const MEMORY: u64 = 85_899_345_920;
    for name in ["run.trace.json.gz", "run.pt.trace.json.gz", "run.json.gz", "profile.trace.json.gz"] {
        let (_folder, path) = beside_trace(name);
        let oom = memviz(&["oom", "--format", "json", &path]).json();
        let device = &oom["devices"][0];
        let ledger = &device["ledger"];
        assert_eq!((ledger["total_bytes"].as_u64(), ledger["at"].as_str()), (Some(MEMORY), Some("oom")), "{name}");
        let free = MEMORY - ledger["used_bytes"].as_u64().unwrap();
        assert_eq!(device["ooms"][0]["device_free_bytes"].as_u64(), Some(free));
        rows_sum(&json!({ "samples": [ledger] }));
        let notes = oom["input"]["notes"].to_string();
        assert!(notes.contains(&format!("memory of the device, according to {name}: 80.00 GiB")), "{notes}");
        let [triage, whole] = ["triage", "ledger"].map(|command| memviz(&[command, "--format", "json", &path]).json());
        assert_eq!(triage["devices"][0]["device_bytes"].as_u64(), Some(MEMORY));
        assert_eq!(whole["devices"][0]["samples"][0]["total_bytes"].as_u64(), Some(MEMORY));
        fs::copy("fixtures/fit/minigpt_batch8/snapshot.pickle.gz", &path).unwrap();
        let fit = memviz(&["fit", "--format", "json", &path]).json();
        let device = &fit["devices"][0];
        let total = device["capacity_bytes"].as_u64().unwrap() + device["context_bytes"].as_u64().unwrap_or(0);
        assert_eq!(total, MEMORY);
    }
}

#[test]
fn a_trace_that_may_be_of_another_run_is_not_used() {
    let (folder, path) = beside_trace("other.json.gz");
    let unknown = || memviz(&["triage", "--format", "json", &path]).json()["devices"][0]["device_bytes"].is_null();
    assert!(unknown(), "nothing says that it is a trace of this run");
    for name in ["a.trace.json.gz", "b.trace.json.gz"] {
        fs::copy(folder.path().join("other.json.gz"), folder.path().join(name)).unwrap();
    }
    assert!(unknown(), "one of two");
    fs::write(folder.path().join("run.trace.json"), "{\"traceEvents\": []}").unwrap();
    assert!(unknown(), "a trace without GPUs");
}

#[test]
fn named_points_are_samples_with_a_name() {
    let mut samples = samples();
    let list = samples["devices"][0]["samples"].as_array_mut().unwrap();
    let mut point = list[0].clone();
    point["at"] = json!("point");
    point["name"] = json!("after <forward>");
    list.insert(1, point);
    let device = device(&samples);
    let points = device["samples"].as_array().unwrap().iter().filter(|sample| sample["at"] == "point");
    assert_eq!(points.map(|sample| &sample["name"]).collect::<Vec<_>>(), ["after <forward>"]);
    assert!(device["samples"][0].get("name").is_none(), "other samples have no name");
    let (_folder, path) = folder(&samples.to_string());
    let text = memviz(&["ledger", &path]).expect(0).stdout.clone();
    let head = text.lines().find(|line| line.contains("start")).unwrap();
    assert!(head.contains("after <"), "{text}");
    let table = memviz(&["ledger", "--format", "csv", &path]).expect(0).stdout.clone();
    assert!(table.contains(",point,") && table.contains(",after <forward>\n"), "{table}");
}
