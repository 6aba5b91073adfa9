//! Keys and settings that only some releases and writers write: they are used, and nothing else changes.

use crate::support::memviz_reading;
use crate::{notes, read};
use memviz::analysis::oom::Cause;
use memviz::analysis::oom::OomOptions;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A recording under construction: memory of device 0, each block in a separate segment.
#[derive(Default)]
struct Program {
    trace: Vec<Value>,
    segments: Vec<Value>,
    settings: Value,
    next: u64,
}

impl Program {
    fn enter(&mut self, action: &str, addr: u64, mib: u64, line: Option<u64>, more: &Value) {
        let time = self.trace.len();
        let mut entry = json!({"action": action, "addr": addr, "size": mib * MIB, "stream": 0, "time_us": time,
                               "frames": frames(line)});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.trace.push(entry);
    }

    /// A block that stays, with further keys of its entry; `None` for no line is a stack without frames.
    fn keep(&mut self, mib: u64, line: Option<u64>, more: &Value) {
        self.next += 1 << 40;
        let (addr, size) = (self.next, mib * MIB);
        self.enter("segment_alloc", addr, mib, line, &json!({}));
        self.enter("alloc", addr, mib, line, more);
        self.segments.push(json!({
            "device": 0, "address": addr, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
            "is_expandable": false, "frames": [], "registration_counter": -1,
            "blocks": [{"address": addr, "size": size, "requested_size": size, "state": "active_allocated",
                        "frames": frames(line)}],
        }));
    }

    fn value(&self) -> Value {
        let mut value = json!({"segments": self.segments, "device_traces": [self.trace], "external_annotations": []});
        if let Value::Object(settings) = &self.settings {
            value["allocator_settings"] = usual_settings();
            value["allocator_settings"].as_object_mut().unwrap().extend(settings.clone());
        }
        value
    }

    fn pickle(&self) -> Vec<u8> {
        pickle(&self.value())
    }
}

fn pickle(value: &Value) -> Vec<u8> {
    serde_pickle::to_vec(value, serde_pickle::SerOptions::new()).unwrap()
}

fn frames(line: Option<u64>) -> Value {
    line.map_or(json!([]), |line| json!([{"filename": "/home/u/train.py", "line": line, "name": "step"}]))
}

fn usual_settings() -> Value {
    let divisions: serde_json::Map<String, Value> = (0..16).map(|power| ((1 << power).to_string(), json!(0))).collect();
    json!({"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
           "expandable_segments": false, "roundup_power2_divisions": divisions})
}

fn line(line: u64, function: &str) -> String {
    format!("  File \"/home/u/x.py\", line {line}, in {function}\n    return self.layer(x)\n    ^^^^^^^^^^^^^\n")
}

/// Labels of the rows of `memviz peak`, with their bytes in MiB and whether they are inferred.
fn rows(pickle: &[u8], flags: &[&str]) -> Vec<(String, u64, bool)> {
    let args = [&["peak", "-", "--format", "json"], flags].concat();
    let answer = memviz_reading(&args, pickle).json();
    let rows = answer["devices"][0]["attribution"]["rows"].as_array().unwrap().clone();
    let total: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(answer["devices"][0]["attribution"]["total_bytes"], json!(total));
    let row = |row: &Value| {
        let label = row["label"].as_str().unwrap().to_owned();
        (label, row["bytes"].as_u64().unwrap() / MIB, row["inferred"].as_bool().unwrap())
    };
    rows.iter().map(row).collect()
}

#[test]
fn recorded_lines_of_forward_are_not_inferred() {
    let mut program = Program::default();
    let forward = json!([line(3, "main"), "  [Previous line repeated 2 more times]\n", line(12, "forward")]);
    program.keep(40, Some(7), &json!({}));
    program.keep(30, None, &json!({"forward_frames": forward}));
    // The user's own code that runs in backward is more specific than the forward line.
    program.keep(20, Some(9), &json!({"forward_frames": forward}));
    program.keep(10, None, &json!({"forward_frames": []}));
    let pickle = program.pickle();
    let expected = [
        ("train.py:7 step", 40, false),
        ("backward of x.py:12 forward", 30, false),
        ("train.py:9 step", 20, false),
        ("(no stack)", 10, false),
    ];
    let expected = expected.map(|(label, mib, inferred)| (label.to_owned(), mib, inferred));
    assert_eq!(rows(&pickle, &[]), expected);
    assert_eq!(rows(&pickle, &["--no-infer"]), expected, "what is recorded is no inference");
    assert!(rows(&pickle, &["--by", "file"]).iter().any(|row| row.0 == "backward of /home/u/x.py" && row.1 == 30));
    let stacks = memviz_reading(&["peak", "-", "--by", "stack", "--format", "json"], &pickle).json();
    let stack = &stacks["devices"][0]["attribution"]["rows"][1]["stack"];
    assert_eq!(*stack, json!(["(backward)", "x.py:12 forward", "x.py:3 main"]));
    assert_eq!(notes(&read(&pickle).unwrap()).matches("forward_frames").count(), 0);
    let answer = memviz_reading(&["check", "-", "--max-peak", "100MiB"], &pickle);
    answer.expect(0);
}

/// What torch-snapkit 0.1.4 adds with `log_shapes=True`: the texts of files, and for each process what operators returned, by
/// address.
#[test]
fn source_code_and_shapes_of_torch_snapkit_are_facts() {
    let mut program = Program::default();
    program.keep(8, Some(3), &json!({}));
    program.keep(4, Some(4), &json!({}));
    let (addresses, mib) = ([1u64 << 40, 2 << 40].map(|address| format!("{address:#x}")), 1 << 20);
    let mut value = program.value();
    value["source_code"] = json!({"/home/u/train.py": "import torch\n\nx = torch.empty(n)\ny = torch.empty(m)\n"});
    value["shape_data"] = json!([{
        &addresses[0]: [["aten.empty.memory_format", [2, mib], "torch.float32"], ["aten.t.default", [mib, 2], "torch.float32"],
                        ["aten.t.default", [mib, 2], "torch.float32"], ["aten.select.int", [mib], "torch.float32"]],
        &addresses[1]: [["aten.empty.memory_format", [2, mib], "torch.bfloat16"], ["my.op", [4 * mib], "torch.unheard"]],
    }]);
    let bytes = pickle(&value);
    let folder = tempfile::TempDir::new().unwrap();
    let source = folder.path().to_str().unwrap();
    let answer = memviz_reading(&["blocks", "-", "--format", "json", "--source", source], &bytes).json();
    let blocks = answer["devices"][0]["blocks"].as_array().unwrap();
    assert_eq!(
        blocks[0]["tensors"],
        json!([{"shape": [2, mib], "dtype": "float32", "operator": "aten.empty.memory_format"},
               {"shape": [mib, 2], "dtype": "float32", "operator": "aten.t.default"}])
    );
    assert_eq!(
        blocks[1]["tensors"],
        json!([{"shape": [2, mib], "dtype": "bfloat16", "operator": "aten.empty.memory_format"}])
    );
    assert_eq!((&blocks[0]["code"], &blocks[1]["code"]), (&json!("x = torch.empty(n)"), &json!("y = torch.empty(m)")));
    let text = memviz_reading(&["blocks", "-"], &bytes);
    assert!(
        text.stdout.contains("tensor, logged by torch-snapkit: bfloat16[2, 1048576] of aten.empty"),
        "{}",
        text.stdout
    );
    assert!(!text.stdout.contains("x = torch"), "an answer that may be passed on has no source code");
    // Figures do not depend on these keys.
    assert!(!notes(&read(&bytes).unwrap()).contains("unknown keys"));
    memviz_reading(&["check", "-", "--max-peak", "12MiB"], &bytes).expect(0);
    for (key, wrong) in [
        ("source_code", json!(7)),
        ("source_code", json!({"a.py": 7})),
        ("shape_data", json!({"0x1": []})),
        ("shape_data", json!([{"1": []}])),
        ("shape_data", json!([{"0x1": [["op", [-1], "torch.float32"]]}])),
        ("shape_data", json!([{"0x1": [["op", 1]]}])),
    ] {
        let mut value = program.value();
        value[key] = wrong;
        assert!(notes(&read(&pickle(&value)).unwrap()).contains(key), "{value}");
    }
}

#[test]
fn invalid_lines_are_left_out_and_counted() {
    let mut program = Program::default();
    for forward in
        [json!("x"), json!([7, "File \"x.py\"", "  File \"x.py\", line 99999999999999999999, in f", line(5, "f")])]
    {
        program.keep(30, None, &json!({"forward_frames": forward}));
    }
    let pickle = program.pickle();
    let labels: Vec<String> = rows(&pickle, &[]).into_iter().map(|row| row.0).collect();
    assert_eq!(labels, ["(no stack)", "backward of x.py:5 f"]);
    let notes = notes(&read(&pickle).unwrap());
    assert!(notes.contains("left out: 4 lines of forward_frames not in the format of a Python traceback"), "{notes}");
    // Figures stay the same; only their attribution is less certain.
    memviz_reading(&["check", "-", "--max-peak", "100MiB"], &pickle).expect(0);
}

#[test]
fn blocks_from_before_the_recording_have_them_too() {
    let mut program = Program::default();
    program.keep(30, None, &json!({}));
    program.keep(20, Some(7), &json!({}));
    let mut value = program.value();
    value["segments"][0]["blocks"][0]["forward_frames"] = json!([line(12, "forward")]);
    value["device_traces"][0].as_array_mut().unwrap().drain(..2);
    let expected = [("backward of x.py:12 forward".to_owned(), 30, false), ("train.py:7 step".to_owned(), 20, false)];
    assert_eq!(rows(&pickle(&value), &[]), expected);
}

#[test]
fn memory_of_the_allocator_itself_has_no_owner() {
    let mut program = Program::default();
    program.keep(40, Some(7), &json!({}));
    let own = json!({"internal_metadata": "mallocWithAddress"});
    program.keep(20, Some(7), &own);
    let pickle = program.pickle();
    let expected = [("train.py:7 step".to_owned(), 40, false), ("(allocator itself)".to_owned(), 20, false)];
    assert_eq!(rows(&pickle, &[]), expected, "rows sum to what was allocated");
    assert_eq!(rows(&pickle, &["--by", "stream"]), [("stream 0".to_owned(), 60, false)], "it lies there");
    let site = memviz_reading(&["check", "-", "--max-site", "train.py=40MiB"], &pickle);
    site.expect(0);
}

#[test]
fn segments_are_of_the_size_that_the_settings_string_says() {
    let oom = |conf: &str| {
        let mut program = Program { settings: json!({"PYTORCH_CUDA_ALLOC_CONF": conf}), ..Program::default() };
        program.keep(100, Some(7), &json!({}));
        program.enter("oom", 0, 4, Some(8), &json!({"device_free": 0}));
        let recording = read(&program.pickle()).unwrap();
        let report = recording.oom(&OomOptions::default()).unwrap();
        report.devices[0].ooms[0].request.driver_bytes / MIB
    };
    assert_eq!(oom(""), 20);
    assert_eq!(oom("expandable_segments:False, large_segment_size_mb:12"), 12);
    let answer = |conf: &str| {
        let mut program = Program { settings: json!({"PYTORCH_CUDA_ALLOC_CONF": conf}), ..Program::default() };
        program.keep(20, Some(7), &json!({}));
        program.pickle()
    };
    let info = memviz_reading(&["info", "-", "--format", "json"], &answer("large_segment_size_mb:12")).json();
    assert_eq!(info["settings"]["large_segment_size_bytes"], json!(12 * MIB));
    let run = memviz_reading(&["check", "-", "--max-peak", "1GiB"], &answer("large_segment_size_mb:x"));
    run.expect(2);
    assert!(run.stderr.contains("expected a whole number above 10"), "{}", run.stderr);
}

#[test]
fn a_limit_that_the_settings_string_sets_is_the_cause() {
    let oom = |conf: &str| {
        let mut program = Program { settings: json!({"PYTORCH_CUDA_ALLOC_CONF": conf}), ..Program::default() };
        program.keep(1000, Some(7), &json!({}));
        program.enter("oom", 0, 100, Some(8), &json!({"device_free": 1000 * MIB}));
        let pickle = program.pickle();
        let report = read(&pickle).unwrap().oom(&OomOptions::default()).unwrap();
        (report.devices[0].ooms[0].cause, memviz_reading(&["oom", "-"], &pickle).stdout)
    };
    let (cause, text) = oom("per_process_memory_fraction:0.5");
    assert_eq!(cause, Cause::Limit, "1100 of 2000 MiB");
    assert!(
        text.contains("cause: a limit on the process") && text.contains("per_process_memory_fraction:0.5"),
        "{text}"
    );
    // With a larger part the request would have fitted however little memory the device has.
    assert_eq!(oom("per_process_memory_fraction:0.6").0, Cause::Unknown);
    assert_eq!(oom("per_process_memory_fraction:1.0").0, Cause::Unknown);
    assert_eq!(oom("").0, Cause::Unknown);
}

#[test]
fn a_ring_buffer_is_judged_by_its_capacity() {
    let judged = |settings: Value| {
        let mut program = Program { settings, ..Program::default() };
        program.keep(20, Some(7), &json!({}));
        let pickle = program.pickle();
        let info = memviz_reading(&["info", "-"], &pickle).stdout;
        (memviz_reading(&["check", "-", "--max-peak", "1GiB"], &pickle).code, info)
    };
    let (code, info) = judged(json!({"trace_alloc_max_entries": 3}));
    assert_eq!(code, Some(0), "two entries");
    assert!(info.contains("ring buffers of 3 entries, one per device"), "{info}");
    let (code, info) = judged(json!({"trace_alloc_max_entries": 2}));
    assert_eq!(code, Some(2), "full, and nobody says whether it overflowed");
    assert!(info.contains("the ring buffer is full"), "{info}");
    assert_eq!(judged(json!({"trace_alloc_max_entries": 2, "trace_alloc_overflowed": false})).0, Some(0));
    assert_eq!(judged(json!({"trace_alloc_max_entries": 3, "trace_alloc_overflowed": true})).0, Some(2));
    assert_eq!(judged(json!({"trace_alloc_max_entries": -3})).0, Some(2), "no number of entries");
}
