//! Two recordings compared: the numbers are those of each one alone, rows sum to the difference, lines are matched after an
//! edit, and exit codes tell a script the result.
#![cfg(feature = "cli")]

use crate::support::{FIXTURES, MALFORMED, corpus, fixture, memviz, memviz_reading, names, read_text, read_unpacked};
use roxmltree::Document;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
const GROUPS: [&str; 10] =
    ["site", "stack", "function", "file", "module", "stream", "pool", "annotation", "operator", "nn-module"];

// ------------------------------------------------------------------ numbers

/// With checkpointing, the difference equals that of PyTorch's own counters, and the block's lines are first.
#[test]
fn checkpointing_saves_what_pytorch_counted() {
    let peak = |name: &str| {
        let truth: Value = serde_json::from_str(&read_text(&format!("{FIXTURES}/{name}/truth.json"))).unwrap();
        truth["devices"][0]["max_memory_allocated"].as_i64().unwrap()
    };
    let answer = diff(&fixture("gpt_train"), &fixture("gpt_train_ckpt"), &[]);
    let device = &answer["devices"][0];
    assert_eq!(device["delta_bytes"].as_i64().unwrap(), peak("gpt_train_ckpt") - peak("gpt_train"));
    assert_eq!(sum(&device["rows"], "delta_bytes"), device["delta_bytes"].as_i64().unwrap());
    let leading: Vec<&str> = rows(device).iter().take(7).map(|row| row["label"].as_str().unwrap()).collect();
    // `Attention.forward`, `Mlp.forward` and `Block.forward`: the recomputed functions.
    let block = ["28", "41", "53", "26", "54", "29", "30"].map(|line| format!("minigpt.py:{line} forward"));
    assert_eq!(leading, block);
    assert!(rows(device).iter().take(7).all(|row| row["delta_bytes"].as_i64().unwrap() < 0));
    // The program was edited between the two recordings.
    let moved = rows(device).iter().find(|row| row["label"] == "cases.py:114 train_steps").unwrap();
    assert_eq!(moved["base_label"], "cases.py:129 train_steps");
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    // Recordings of ranks have files of other names.
    for name in names(FIXTURES).iter().filter(|name| !name.starts_with("big") && *name != "ranks8") {
        let path = fixture(name);
        let answer = diff(&path, &path, &[]);
        assert_eq!(answer["identical"], true, "{name}");
        assert_eq!(answer["settings"].as_array().unwrap().len(), 0, "{name}");
        for device in answer["devices"].as_array().unwrap() {
            assert_eq!((rows(device).len(), &device["delta_bytes"]), (0, &Value::from(0)), "{name}");
        }
    }
    let path = fixture("gpt_train");
    let text = memviz(&["diff", &path, &path, "--fail-on-growth", "0"]);
    assert_eq!(text.expect(0).stdout, format!("no differences between {path} and {path}\n"));
    assert_eq!(text.stderr, "");
}

/// For any two recordings and any grouping: rows sum, and each side equals `memviz peak` of that side alone.
#[test]
fn rows_sum_to_the_difference_of_both_peaks() {
    let mut recordings: Vec<String> = names(FIXTURES)
        .iter()
        .filter(|name| !name.starts_with("big") && *name != "ranks8")
        .step_by(5)
        .map(|name| fixture(name))
        .collect();
    recordings
        .extend([TRACE, "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.raw.json.gz"].map(str::to_owned));
    recordings.extend([
        format!("{MALFORMED}/free-of-unknown-address.pickle"),
        format!("{MALFORMED}/overlapping-alloc.pickle"),
    ]);
    let mut compared = 0;
    for (index, pair) in recordings.windows(2).enumerate() {
        let [base, new] = pair else { unreachable!() };
        let by = GROUPS[index % GROUPS.len()];
        let metric = ["allocated", "active", "requested", "reserved"][index % 4];
        let args = ["--by", by, "--metric", metric];
        // Without groups that one of the two may not show.
        let alone = |path: &str| memviz(&["peak", path, "--metric", metric, "--format", "json"]).json();
        let (base_alone, new_alone) = (alone(base), alone(new));
        let answer = diff(base, new, &args);
        for device in answer["devices"].as_array().unwrap() {
            compared += 1;
            let key = format!("{metric}_bytes");
            let mut at = [0; 2];
            for (value, (side, alone, number)) in at
                .iter_mut()
                .zip([("base", &base_alone, &device["base_device"]), ("new", &new_alone, &device["device"])])
            {
                let alone = find(alone, number);
                for key in ["baseline_bytes", "peak", "maxima", "end"] {
                    assert_eq!(device[side][key], alone[key], "{base} {new} {key}");
                }
                *value = alone["peak"][&key].as_i64().unwrap();
            }
            let [base_bytes, new_bytes] = at;
            assert_eq!(device["delta_bytes"].as_i64().unwrap(), new_bytes - base_bytes, "{base} {new}");
            if device["inclusive"] == false {
                let unchanged = device["unchanged"]["bytes"].as_i64().unwrap();
                assert_eq!(sum(&device["rows"], "delta_bytes"), new_bytes - base_bytes, "{base} {new} {by}");
                assert_eq!(sum(&device["rows"], "base_bytes") + unchanged, base_bytes, "{base} {new} {by}");
                assert_eq!(sum(&device["rows"], "new_bytes") + unchanged, new_bytes, "{base} {new} {by}");
            }
            let sizes: Vec<u64> =
                rows(device).iter().map(|row| row["delta_bytes"].as_i64().unwrap().unsigned_abs()).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "the largest change comes first: {sizes:?}");
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn the_rest_of_the_rows_is_one_row() {
    let (base, new) = (fixture("gpt_train"), fixture("gpt_train_ckpt"));
    let all = diff(&base, &new, &[]);
    let some = diff(&base, &new, &["--top", "3"]);
    let (all, some) = (&all["devices"][0], &some["devices"][0]);
    assert_eq!((rows(some).len(), some["left_out"].as_u64().unwrap() as usize), (4, rows(all).len() - 3));
    assert_eq!(rows(some)[..3], rows(all)[..3]);
    assert_eq!(rows(some)[3]["label"], "(other)");
    for key in ["base_bytes", "new_bytes", "delta_bytes", "base_blocks", "new_blocks"] {
        assert_eq!(sum(&some["rows"], key), sum(&all["rows"], key), "{key}");
    }
}

#[test]
fn inferred_rows_are_marked_unless_turned_off() {
    let (base, new) = (fixture("gpt_train"), fixture("no_history"));
    let label = "backward of minigpt.py:82 forward";
    let inferring = diff(&base, &new, &[]);
    let recorded = diff(&base, &new, &["--no-infer"]);
    let (inferring, recorded) = (&inferring["devices"][0], &recorded["devices"][0]);
    assert_eq!(inferring["delta_bytes"], recorded["delta_bytes"]);
    for device in [inferring, recorded] {
        assert_eq!(sum(&device["rows"], "delta_bytes"), device["delta_bytes"].as_i64().unwrap());
    }
    let is_inferred = |row: &&Value| row["inferred"] == true;
    assert!(rows(inferring).iter().filter(is_inferred).any(|row| row["label"] == label));
    assert!(rows(inferring).iter().any(|row| row["label"] == "minigpt.py:28 forward" && row["inferred"] == false));
    assert_eq!(rows(recorded).iter().filter(is_inferred).count(), 0);
    assert!(rows(recorded).iter().any(|row| row["label"] == "(no stack)"));
    for (format, explained) in [("text", "* inferred: backward"), ("markdown", "\\* inferred: backward")] {
        let answer = memviz(&["diff", &base, &new, "--format", format]).stdout;
        assert!(answer.contains(&format!("{label} *")) && answer.contains(explained), "{answer}");
        let answer = memviz(&["diff", &base, &new, "--format", format, "--no-infer"]).stdout;
        assert!(!answer.contains(" *`") && !answer.contains("inferred"), "{answer}");
    }
}

#[test]
fn rows_of_the_other_formats_are_those_of_json() {
    let (base, new) = (fixture("gpt_train"), fixture("gpt_train_ckpt"));
    let json = diff(&base, &new, &[]);
    let csv = memviz(&["diff", &base, &new, "--format", "csv"]);
    let lines: Vec<&str> = csv.expect(0).stdout.lines().skip(1).collect();
    let expected = rows(&json["devices"][0]);
    assert_eq!(lines.len(), expected.len());
    for (line, row) in lines.iter().zip(expected) {
        for key in ["label", "status", "base_bytes", "new_bytes", "delta_bytes", "inferred"] {
            let value = row[key].as_str().map_or_else(|| row[key].to_string(), str::to_owned);
            assert!(line.split(',').any(|cell| cell == value), "{key} {value} in {line}");
        }
    }
    for format in ["text", "markdown"] {
        let shown = memviz(&["diff", &base, &new, "--format", format]);
        for row in expected {
            assert!(shown.expect(0).stdout.contains(row["label"].as_str().unwrap()), "{format} {row}");
        }
        assert!(shown.stdout.contains("-1.44 GiB (-34.6%)"), "{}", shown.stdout);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let (base, new) = (fixture("multi_gpu"), fixture("multi_gpu_t215"));
    for format in ["text", "json", "svg"] {
        let args = ["diff", &base, &new, "--format", format, "--by", "stack"];
        let run = |threads| memviz(&[&args[..], &["--threads", threads]].concat()).expect(0).stdout.clone();
        assert_eq!(run("1"), run("2"), "{format}");
        assert_eq!(run("1"), run("8"), "{format}");
    }
}

#[test]
fn another_instant_of_both_is_compared_on_request() {
    let (base, new) = (fixture("gpt_train"), fixture("gpt_train_ckpt"));
    let device = &diff(&base, &new, &["--at", "end"])["devices"][0];
    let end = |side: &str| device[side]["end"]["allocated_bytes"].as_i64().unwrap();
    assert_eq!(device["delta_bytes"].as_i64().unwrap(), end("new") - end("base"));
    memviz(&["diff", &base, &new, "--at", "oom"]).expect_error("gpt_train/snapshot.pickle.gz: ");
}

// ------------------------------------------------------------------ devices and settings

#[test]
fn devices_of_only_one_file_are_named() {
    let (one, two) = (fixture("gpt_train"), fixture("multi_gpu"));
    let answer = diff(&one, &two, &[]);
    assert_eq!(answer["devices"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&answer["only_base_devices"], &answer["only_new_devices"]),
        (&Value::from(Vec::<i32>::new()), &Value::from(vec![1]))
    );
    let text = memviz(&["diff", &one, &two]);
    assert!(text.expect(0).stdout.contains("Device 1: only in the new recording, not compared"), "{}", text.stdout);
    let answer = diff(&two, &one, &[]);
    assert_eq!(answer["only_base_devices"], Value::from(vec![1]));
    memviz(&["diff", &two, &one, "--device", "1"])
        .expect_error(&format!("{one}: expected one of the recorded devices (0)"));
}

/// Ranks of one node dump what their own device holds.
#[test]
fn single_devices_are_compared_regardless_of_their_numbers() {
    let Some(corpus) = corpus() else { return };
    let ranks = format!("{corpus}/ranks8");
    let files: Vec<String> = names(&ranks).into_iter().filter(|name| name.contains("pickle")).collect();
    let path = |rank: usize| format!("{ranks}/{}", files[rank]);
    let answer = diff(&path(0), &path(5), &[]);
    assert_eq!(answer["devices"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(
        answer["devices"][0]["delta_bytes"].as_i64().unwrap(),
        sum(&answer["devices"][0]["rows"], "delta_bytes")
    );
}

#[test]
fn settings_that_differ_are_listed() {
    let answer = diff(&fixture("gpt_train"), &fixture("expandable"), &[]);
    let settings: BTreeMap<&str, (&Value, &Value)> = answer["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|setting| (setting["name"].as_str().unwrap(), (&setting["base"], &setting["new"])))
        .collect();
    assert_eq!(settings["expandable_segments"], (&Value::from("false"), &Value::from("true")));
    let answer = diff(&fixture("tiny_t201"), &fixture("tiny"), &[]);
    let expected = serde_json::json!([{"name": "allocator_settings", "base": null, "new": "recorded"}]);
    assert_eq!(answer["settings"], expected);
}

// ------------------------------------------------------------------ lines after an edit

/// The lines of `cases.py` that allocate in `tiny`, close together, so that each can take the place of another.
const LINES: [u16; 4] = [751, 752, 753, 755];

#[test]
fn lines_are_found_again_after_an_edit() {
    let folder = TempDir::new().unwrap();
    let base = fixture("tiny");
    let bytes = read_unpacked(&base);
    for (name, lines) in [
        ("above", [752, 753, 754, 756]),
        ("deleted_above", [750, 751, 752, 754]),
        ("far_above", [951, 952, 953, 955]),
        ("between", [751, 756, 757, 759]),
        ("at_two_places", [752, 760, 761, 763]),
    ] {
        let new = folder.path().join(format!("{name}.pickle"));
        // On another machine, too.
        let moved = replaced(&moved(&bytes, lines), "/home/user/train/", "/srv/other/train/");
        fs::write(&new, moved).unwrap();
        let new = new.to_str().unwrap();
        for by in ["site", "stack", "function", "file"] {
            let answer = diff(&base, new, &["--by", by]);
            let device = &answer["devices"][0];
            assert_eq!(rows(device).len(), 0, "{name} by {by}: {device}");
            assert!(device["unchanged"]["rows"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn a_function_with_another_name_is_another_row() {
    let folder = TempDir::new().unwrap();
    let (base, new) = (fixture("tiny"), folder.path().join("renamed.pickle"));
    fs::write(&new, replaced(&read_unpacked(&base), "tiny", "mini")).unwrap();
    let answer = diff(&base, new.to_str().unwrap(), &[]);
    let rows = rows(&answer["devices"][0]);
    let number = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert_eq!((number("new"), number("vanished"), number("changed")), (3, 3, 0), "{rows:?}");
    assert_eq!(sum(&answer["devices"][0]["rows"], "delta_bytes"), 0);
    // In the order of size, new rows before those that disappeared.
    assert!(rows[0]["label"] == "cases.py:752 mini" && rows[1]["label"] == "cases.py:752 tiny", "{rows:?}");
}

#[test]
fn a_trace_is_compared_with_a_snapshot_by_function() {
    let text = memviz(&["diff", TRACE, &fixture("gpt_train")]);
    let note = "a profiler trace names functions by their first line, so a snapshot's lines are counted under the first line of their function";
    assert!(text.expect(0).stdout.contains(note), "{}", text.stdout);
    let answer = diff(TRACE, &fixture("gpt_train"), &[]);
    assert!(answer["devices"][0]["new"]["fragmentation"].is_object());
    assert_eq!(answer["devices"][0]["base"]["fragmentation"], Value::Null);
    // The trace's `minigpt.py:85 get_batch` starts there; the snapshot allocates on line 88.
    let batch: Vec<&Value> =
        rows(&answer["devices"][0]).iter().filter(|row| row["label"].as_str().unwrap().contains("get_batch")).collect();
    assert_eq!(batch.len(), 1, "{batch:?}");
    assert_eq!(
        (&batch[0]["label"], &batch[0]["status"]),
        (&Value::from("minigpt.py:85 get_batch"), &Value::from("changed"))
    );
}

#[test]
fn a_trace_is_compared_with_a_snapshot_by_operator() {
    let answer = diff(TRACE, &fixture("llama_hf_all"), &["--by", "operator"]);
    let status = |operator: &str| {
        let row = rows(&answer["devices"][0]).iter().find(|row| row["label"] == operator);
        row.map(|row| row["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(status("aten::mm").as_deref(), Some("changed"));
    assert_eq!(status("aten::empty_strided").as_deref(), Some("changed"));
    assert_eq!(status("aten::silu").as_deref(), Some("new"));
    assert_eq!(status("(no operator)"), None, "every block of the snapshot has one");
    // Without C++ frames there are none, and the output says so.
    let text = memviz(&["diff", TRACE, &fixture("gpt_train"), "--by", "operator"]);
    assert!(text.expect(0).stdout.contains("a snapshot has operators only in C++ stacks"), "{}", text.stdout);
}

// ------------------------------------------------------------------ exit codes

#[test]
fn growth_beyond_the_limit_is_1() {
    let (base, new) = (fixture("gpt_train_ckpt"), fixture("gpt_train"));
    let growth = diff(&base, &new, &[])["devices"][0]["delta_bytes"].as_i64().unwrap();
    assert!(growth > 0);
    for (limit, code) in [(growth + 1, 0), (growth, 0), (growth - 1, 1), (0, 1)] {
        memviz(&["diff", &base, &new, "--fail-on-growth", &limit.to_string()]).expect(code);
    }
    for (limit, code) in [("2GiB", 0), ("1.43 GiB", 1), ("60%", 0), ("52%", 1), ("0%", 1)] {
        let run = memviz(&["diff", &base, &new, "--fail-on-growth", limit]);
        assert!(run.expect(code).stdout.contains("total, by site"), "{limit}: {run:?}");
        let reason = format!("{new}: memory grew by more than {}: Device 0 by 1.44 GiB", limit.trim());
        assert_eq!(code == 1, run.stderr.contains(&reason), "{limit}: {}", run.stderr);
        memviz(&["diff", &new, &base, "--fail-on-growth", limit]).expect(0);
    }
    for bad in ["", "10XB", "-1", "-1%", "1e3", "%", "99999999999999999999"] {
        let run = memviz(&["diff", &base, &new, &format!("--fail-on-growth={bad}")]);
        assert_eq!((run.expect(2).stdout.as_str(), run.stderr.contains("--fail-on-growth")), ("", true), "{bad}");
    }
}

#[test]
fn unknown_growth_exits_with_2() {
    let good = fixture("gpt_train");
    let cut = format!("{MALFORMED}/truncated-in-device-traces.pickle");
    for (base, new, limit, reason) in [
        (&good, &fixture("no_history"), "1TiB", "no history was recorded"),
        (&fixture("no_history"), &good, "0", "no history was recorded"),
        (&good, &fixture("multi_gpu"), "1TiB", "device 1 is only in the new recording; --device selects"),
        (&fixture("multi_gpu"), &good, "1TiB", "device 1 is only in the base"),
        (&good, &fixture("empty"), "0", "device 0 is only in the base"),
        (&good, &fixture("ring"), "1TiB", "allocated in the new recording is a lower bound"),
    ] {
        let run = memviz(&["diff", base, new, "--fail-on-growth", limit]);
        run.expect(2);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        for part in [new.as_str(), "cannot tell whether memory grew by more than", reason] {
            assert!(run.stderr.contains(part), "expected {part:?} in {:?}", run.stderr);
        }
        assert!(!run.stdout.is_empty(), "the answer is written all the same");
        memviz(&["diff", base, new]).expect(0);
    }
    memviz(&["diff", &good, &fixture("multi_gpu"), "--device", "0", "--fail-on-growth", "0"]).expect(0);
    // What came after the cut may have been more.
    memviz(&["diff", &good, &cut, "--fail-on-growth", "1TiB"]).expect(2);
    let run = memviz(&["diff", &good, &cut, "--allow-truncated", "--fail-on-growth", "1TiB"]);
    assert!(run.expect(2).stderr.contains("the file was cut off"), "{}", run.stderr);
    // What is only known in part but already beyond the limit, or within it in any case, is certain.
    memviz(&["diff", &fixture("tiny"), &fixture("ring"), "--fail-on-growth", "1MiB"]).expect(1);
    memviz(&["diff", &fixture("ring"), &fixture("tiny"), "--fail-on-growth", "0"]).expect(0);
    // The state at dump time is recorded as such.
    memviz(&["diff", &fixture("no_history"), &fixture("tiny"), "--at", "end", "--fail-on-growth", "1TiB"]).expect(0);
}

#[test]
fn strict_is_1_for_contradictions_of_either_file() {
    let (good, bad) = (fixture("tiny"), format!("{MALFORMED}/free-of-unknown-address.pickle"));
    memviz(&["diff", &good, &bad, "--strict"]).expect(1);
    memviz(&["diff", &bad, &good, "--strict"]).expect(1);
    memviz(&["diff", &good, &good, "--strict"]).expect(0);
}

#[test]
fn broken_files_are_named() {
    let good = fixture("tiny");
    for file in names(MALFORMED) {
        let path = format!("{MALFORMED}/{file}");
        let alone = memviz(&["peak", &path]);
        for (args, which) in [([&good, &path], &path), ([&path, &good], &path)] {
            let run = memviz(&["diff", args[0], args[1]]);
            assert_eq!(run.code, alone.code, "{file}: {}", run.stderr);
            if run.code == Some(2) {
                run.expect_error(&format!("memviz: {which}: "));
            }
        }
    }
    memviz(&["diff", "no/such/file", &good]).expect_error("memviz: no/such/file: ");
}

#[test]
fn one_input_may_be_standard_input() {
    let (base, new) = (fixture("tiny"), fixture("gpt_train"));
    let expected = diff(&base, &new, &[])["devices"].clone();
    let args = ["diff", "-", &new, "--format", "json"];
    let answer = memviz_reading(&args, &read_unpacked(&base)).json();
    assert_eq!((&answer["devices"], &answer["input"]["base"]["path"]), (&expected, &Value::from("<stdin>")));
    let args = ["diff", &base, "-", "--format", "json"];
    assert_eq!(memviz_reading(&args, &read_unpacked(&new)).json()["devices"], expected);
    memviz(&["diff", "-", "-"]).expect_error("expected at most one input from standard input, found two");
}

#[test]
fn neither_input_is_overwritten() {
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("a.pickle.gz");
    fs::copy(fixture("tiny"), &copy).unwrap();
    let copy = copy.to_str().unwrap();
    for inputs in [[copy, &fixture("tiny")], [&fixture("tiny"), copy]] {
        memviz(&["diff", inputs[0], inputs[1], "--format", "text", "-o", copy, "--force"]).expect_error("is the input");
    }
    assert_eq!(fs::read(copy).unwrap(), fs::read(fixture("tiny")).unwrap());
}

// ------------------------------------------------------------------ pictures

#[test]
fn the_picture_marks_both_peaks() {
    let folder = TempDir::new().unwrap();
    let (base, new) = (fixture("gpt_train"), fixture("gpt_train_ckpt"));
    let device = &diff(&base, &new, &[])["devices"][0];
    let peak = |side: &str| device[side]["peak"]["allocated_bytes"].to_string();
    for align in ["time", "entry", "step"] {
        let path = folder.path().join(format!("{align}.svg"));
        let path = path.to_str().unwrap();
        memviz(&["diff", &base, &new, "--align", align, "-o", path]).expect(0);
        let svg = read_text(path);
        assert!(svg.len() < 500_000, "{}", svg.len());
        let document = Document::parse(&svg).unwrap();
        let marks: Vec<&str> = document.descendants().filter_map(|node| node.attribute("data-peak-bytes")).collect();
        assert_eq!(marks, [peak("new"), peak("base")], "{align}");
        let texts: String = document.descendants().filter_map(|node| node.text()).collect();
        for part in ["base peak 4.15 GiB", "new peak 2.71 GiB", "minigpt.py:28 forward", "-1.44 GiB"] {
            assert!(texts.contains(part), "{align}: {part}");
        }
        // Both files have the same name: their folders distinguish them, and the folders above do not.
        for name in ["gpt_train/snapshot.pickle.gz", "gpt_train_ckpt/snapshot.pickle.gz"] {
            assert!(texts.contains(name) && !texts.contains("snapshots/"), "{align}: {name}");
        }
    }
}

#[test]
fn every_pair_can_be_drawn() {
    // Recordings of ranks have files of other names.
    let names = names(FIXTURES).into_iter().filter(|name| !name.starts_with("big") && name != "ranks8");
    let mut paths: Vec<String> = names.step_by(6).map(|name| fixture(&name)).collect();
    paths.push(TRACE.to_owned());
    paths.push(format!("{MALFORMED}/free-of-unknown-address.pickle"));
    for pair in paths.windows(2) {
        for align in ["time", "entry"] {
            let run = memviz(&["diff", &pair[0], &pair[1], "--format", "svg", "--align", align]);
            assert!(run.expect(0).stdout.len() < 500_000, "{pair:?}");
            Document::parse(&run.stdout).unwrap_or_else(|error| panic!("{pair:?}: {error}"));
        }
    }
    // Steps are what runs have in common, if both have them. A run of milliseconds would be a line next to a run of a second.
    for (base, new, align) in
        [("gpt_train", "gpt_train_ckpt", "step"), ("tiny", "private_pool", "time"), ("gpt_train", "tiny", "entry")]
    {
        let (base, new) = (fixture(base), fixture(new));
        let args = ["diff", &base, &new, "--format", "svg"];
        let chosen = memviz(&[&args[..], &["--align", align]].concat()).expect(0).stdout.clone();
        assert_eq!(memviz(&args).expect(0).stdout, chosen, "{align}");
    }
    let run = memviz(&["diff", &fixture("tiny"), &fixture("gpt_train"), "--format", "svg", "--align", "step"]);
    run.expect_error("expected steps of device 0 in the base, found none");
}

#[test]
fn names_from_files_are_escaped() {
    let folder = TempDir::new().unwrap();
    let new = folder.path().join("hostile.pickle");
    let hostile = replaced(&read_unpacked(&fixture("tiny")), "tiny", "</|\u{1b}");
    fs::write(&new, replaced(&hostile, "/home/user/train/", "/</text><script>/")).unwrap();
    let new = new.to_str().unwrap();
    for format in ["text", "csv", "markdown", "svg"] {
        let run = memviz(&["diff", &fixture("tiny"), new, "--format", format]);
        assert!(!run.expect(0).stdout.contains('\u{1b}'), "{format}");
        if format == "svg" {
            assert!(!run.stdout.contains("<script>"));
            Document::parse(&run.stdout).unwrap();
        }
        if format == "markdown" {
            assert!(run.stdout.contains("\\|"), "{}", run.stdout);
        }
    }
}

// ------------------------------------------------------------------ helpers

/// The JSON answer.
#[track_caller]
fn diff(base: &str, new: &str, args: &[&str]) -> Value {
    memviz(&[&["diff", base, new, "--format", "json"], args].concat()).json()
}

fn rows(device: &Value) -> &[Value] {
    device["rows"].as_array().unwrap()
}

fn sum(rows: &Value, key: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
}

fn find<'a>(answer: &'a Value, device: &Value) -> &'a Value {
    answer["devices"].as_array().unwrap().iter().find(|found| found["device"] == *device).unwrap()
}

/// `tiny` with other lines.
fn moved(bytes: &[u8], lines: [u16; 4]) -> Vec<u8> {
    let mut moved = bytes.to_vec();
    for (from, to) in LINES.into_iter().zip(lines) {
        // BININT2 and the number; each line is written once.
        let opcode = |line: u16| [b"M", &line.to_le_bytes() as &[u8]].concat();
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&opcode(from))).collect();
        assert_eq!(places.len(), 1, "line {from}");
        moved[places[0]..places[0] + 3].copy_from_slice(&opcode(to));
    }
    moved
}

/// Bytes with one text in place of another, as long.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut replaced = bytes.to_vec();
    let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from}");
    for at in places {
        replaced[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    replaced
}
