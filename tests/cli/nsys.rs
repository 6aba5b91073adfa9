//! `memviz nsys`: rows that add up to the peak, and the text for a profile that does not show it.

use crate::support::{fixture, memviz};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const TRAINING: &str = "fixtures/nsys/training.sqlite";
const UNFREED: &str = "fixtures/nsys/unfreed.sqlite";
const MIB: u64 = 1 << 20;

fn answer(args: &[&str]) -> Value {
    let answer = memviz(&[&["nsys", "--format", "json"], args].concat()).json();
    for memory in answer["memories"].as_array().unwrap() {
        let sum = |key: &str| -> u64 {
            memory["rows"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap_or(0)).sum()
        };
        if memory["peak"].is_object() {
            assert_eq!(memory["peak"]["bytes"], sum("peak_bytes"), "{memory}");
            assert_eq!(memory["peak"]["end_bytes"], sum("end_bytes"), "{memory}");
            let curve = memory["peak"]["curve_bytes"].as_array().unwrap();
            assert_eq!(curve.iter().map(|bytes| bytes.as_u64().unwrap()).max(), memory["peak"]["bytes"].as_u64());
        }
        assert_eq!(memory["allocated_bytes"], sum("allocated_bytes"), "{memory}");
        assert_eq!(memory["allocations"], sum("allocations"), "{memory}");
    }
    answer
}

fn memory<'a>(answer: &'a Value, place: &str, pid: u64) -> &'a Value {
    let memories = answer["memories"].as_array().unwrap();
    memories.iter().find(|memory| memory["place"] == place && memory["pid"] == pid).unwrap()
}

fn row<'a>(memory: &'a Value, label: &str) -> &'a Value {
    memory["rows"].as_array().unwrap().iter().find(|row| row["label"] == label).unwrap_or_else(|| panic!("{memory}"))
}

#[test]
fn rows_match_the_allocations_in_the_file() {
    let answer = answer(&[TRAINING]);
    let device = memory(&answer, "device", 4711);
    // 34 MiB of segments, 96 of NCCL, 32 and 64 of cuBLAS, eight variables.
    assert_eq!(device["peak"]["bytes"], 226 * MIB + 8 * 4096 + 28);
    assert_eq!(row(device, "PyTorch's allocator")["peak_bytes"], 34 * MIB);
    assert_eq!(row(device, "libnccl.so.2")["call"], "cuMemCreate");
    let cublas = row(device, "libcublas.so.12");
    assert_eq!((&cublas["peak_bytes"], &cublas["end_bytes"]), (&json!(96 * MIB), &json!(32 * MIB)));
    assert_eq!((&cublas["allocations"], &cublas["freed"]), (&json!(4), &json!(3)));
    assert_eq!(row(device, "unknown")["kind"], "device_static");
    assert_eq!(device["gpu"], "NVIDIA H100 80GB HBM3");
    // Ranges, with names from the table and from the list of texts.
    let open = device["peak"]["open_ranges"].as_array().unwrap();
    assert_eq!((&open[0], &open[1]), (&json!("open"), &json!("step_2")));
    assert_eq!(open[2].as_str().unwrap().len(), "forward".len() + 100 * ", of a layer with a long name".len());
    let steps: Vec<&Value> = device["ranges"].as_array().unwrap().iter().filter(|range| range["count"] == 1).collect();
    let step = steps.iter().find(|range| range["name"] == "step_1").unwrap();
    assert_eq!((&step["allocated_bytes"], &step["freed_bytes"]), (&json!(56 * MIB), &json!(56 * MIB)));
    assert_eq!(step["highest_bytes"].as_u64().unwrap(), 218 * MIB + 8 * 4096 + 28);
    // Other places and processes are separate.
    assert_eq!(memory(&answer, "managed", 4711)["peak"]["bytes"], 16 * MIB);
    assert_eq!(memory(&answer, "pinned", 4711)["peak"]["bytes"], 8 * MIB);
    let server = memory(&answer, "device", 4800);
    let notes = server["notes"].to_string();
    assert!(notes.contains("1 free of memory allocated before the profile began"), "{notes}");
    assert!(notes.contains("(up to 256.00 MiB in one pool)"), "{notes}");
}

#[test]
fn a_recording_of_the_same_run_is_found_in_it() {
    let answer = answer(&[TRAINING, "--snapshot", &fixture("tiny")]);
    let share = &answer["pytorch"];
    let segments = memviz(&["peak", "--format", "json", &fixture("tiny")]).json();
    assert_eq!(share["segment_bytes"], segments["devices"][0]["maxima"]["reserved_bytes"]);
    assert_eq!((&share["pid"], &share["found"], &share["segments"]), (&json!(4711), &json!(3), &json!(3)));
    assert_eq!(row(memory(&answer, "device", 4711), "PyTorch's allocator")["peak_bytes"], share["found_bytes"]);
    let text = memviz(&["nsys", TRAINING, "--snapshot", &fixture("gpt_train")]).stdout;
    assert!(text.contains("are both from the same run?"), "{text}");
}

#[test]
fn without_times_there_is_a_reason_and_no_peak() {
    let answer = answer(&[UNFREED]);
    let device = &answer["memories"][0];
    assert_eq!((&device["peak"], &device["allocations"], &device["frees"]), (&Value::Null, &json!(3855), &json!(0)));
    let notes = device["notes"].to_string();
    assert!(
        notes.contains("no peak: the profile has 3855 allocations and 0 frees, but every event has the same time, 0")
    );
    assert!(answer["input"]["notes"].to_string().contains("--cudabacktrace=memory"));
    assert_eq!(device["rows"][0]["peak_bytes"], Value::Null);
    for format in ["text", "markdown"] {
        let text = memviz(&["nsys", UNFREED, "--format", format]).stdout;
        assert!(text.contains("no peak: ") && !text.contains("at peak"), "{text}");
    }
}

#[test]
fn files_next_to_the_database_are_reported() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.sqlite");
    fs::copy(TRAINING, &path).unwrap();
    fs::write(folder.path().join("run.sqlite-wal"), "frames").unwrap();
    let run = memviz(&["nsys", &path.display().to_string()]);
    assert!(
        run.stdout.contains("the *-wal file next to the database contains changes that are not in the database yet"),
        "{}",
        run.stdout
    );
}

#[test]
fn missing_or_wrong_inputs_are_one_line() {
    memviz(&["nsys", "-"]).expect_error("expected a file");
    memviz(&["nsys", &fixture("tiny")]).expect_error("expected an SQLite database");
    let folder = TempDir::new().unwrap();
    let report = folder.path().join("report.nsys-rep").display().to_string();
    fs::write(&report, "NVIDIA Tegra Profiler Report 2024").unwrap();
    memviz(&["nsys", &report]).expect_error("nsys export --type sqlite FILE converts it");
    let stream = folder.path().join("report.qdstrm").display().to_string();
    fs::write(&stream, [0; 64]).unwrap();
    memviz(&["nsys", &stream]).expect_error("QdstrmImporter");
    for format in ["text", "json"] {
        // The tables without rows; `tests/input` covers databases without the tables.
        memviz(&["nsys", "fixtures/nsys/unrecorded.sqlite", "--format", format])
            .expect_error("--cuda-memory-usage=true");
    }
    memviz(&["peak", TRAINING]).expect_error("memviz nsys reads it");
    memviz(&["nsys", TRAINING, "--device", "7"]).expect_error("found 7");
    memviz(&["nsys", TRAINING, "--snapshot", "nothing.pickle"]).expect_error("nothing.pickle");
    let one = answer(&[TRAINING, "--device", "-1"]);
    assert_eq!(one["memories"].as_array().unwrap().len(), 1);
    // Nothing contradicts itself here.
    memviz(&["nsys", TRAINING, "--strict"]).expect(0);
}
