//! A figure is exact only if nothing contradicts it: whatever a recording loses, no budget that it exceeds is met afterward.

use super::Folder;
use super::program::{pickle, whole};
use crate::support::{self, fixture, memviz};
use memviz::Recording;
use memviz::analysis::check::CheckVerdict;
use memviz::analysis::check::{Budgets, CheckOptions};
use memviz::input::ReadOptions;
use memviz::model::TraceEntries;
use memviz::replay::{Metric, replay};
use serde_json::{Value, json};
use std::fs;
use std::io::Cursor;

/// What the whole recording measures on each of its devices.
const PEAK: u64 = 50 << 20;
const RESERVED: u64 = 52 << 20;

fn budgets(device: i32, slack: i64) -> Budgets {
    let limit = |bytes: u64| Some(bytes.saturating_add_signed(slack));
    Budgets::default().devices(vec![device]).max_peak(limit(PEAK)).max_reserved(limit(RESERVED))
}

/// The verdicts on each budget of each device; `None` if the file is refused.
fn verdicts(value: &Value, slack: i64) -> Option<Vec<CheckVerdict>> {
    let mut options = ReadOptions::default();
    options.on_one_thread = true;
    let recording = Recording::read(Cursor::new(pickle(value)), &options).ok()?;
    let options = CheckOptions::default().budgets(vec![budgets(0, slack), budgets(1, slack)]).top(1);
    Some(recording.check(&options).checks.iter().map(|check| check.verdict).collect())
}

/// Where every value of a tree is.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, part) in parts {
        let place = format!("{at}/{key}");
        places(part, &place, found);
        found.push(place);
    }
}

/// A copy without the value at a path.
fn without(value: &Value, place: &str) -> Value {
    let mut copy = value.clone();
    let (parent, key) = place.rsplit_once('/').unwrap();
    match copy.pointer_mut(parent).unwrap() {
        Value::Object(fields) => drop(fields.remove(key)),
        Value::Array(items) => drop(items.remove(key.parse().unwrap())),
        _ => unreachable!("only these have parts"),
    }
    copy
}

/// A copy in which a key has another name.
fn renamed(value: &Value, place: &str) -> Option<Value> {
    let mut copy = value.clone();
    let (parent, key) = place.rsplit_once('/').unwrap();
    let fields = copy.pointer_mut(parent).unwrap().as_object_mut()?;
    let part = fields.remove(key).unwrap();
    fields.insert(format!("{key}_of_tomorrow"), part);
    Some(copy)
}

fn replaced(value: &Value, place: &str, by: Value) -> Value {
    let mut copy = value.clone();
    *copy.pointer_mut(place).unwrap() = by;
    copy
}

#[test]
fn the_whole_recording_is_judged_to_the_byte() {
    assert_eq!(verdicts(&whole(), 0), Some(vec![CheckVerdict::Passed; 4]));
    assert_eq!(verdicts(&whole(), -1), Some(vec![CheckVerdict::Failed; 4]));
}

#[test]
fn no_exceeded_budget_is_kept_by_losing_a_part() {
    let whole = whole();
    let mut all = Vec::new();
    places(&whole, "", &mut all);
    assert!(all.len() > 300, "only {} parts", all.len());
    let mut problems = Vec::new();
    let mut judge = |what: &str, value: &Value| {
        // That the file is refused is an answer as well.
        let Some(verdicts) = verdicts(value, -1) else { return };
        if verdicts.contains(&CheckVerdict::Passed) {
            problems.push(format!("{what}: {verdicts:?}"));
        }
    };
    for place in &all {
        judge(&format!("without {place}"), &without(&whole, place));
        if let Some(renamed) = renamed(&whole, place) {
            judge(&format!("{place} renamed"), &renamed);
        }
        for other in [json!(null), json!("no"), json!([]), json!({}), json!(true)] {
            judge(&format!("{place} as {other}"), &replaced(&whole, place, other));
        }
    }
    support::assert_none(&problems);
}

#[test]
fn no_exceeded_budget_is_kept_by_a_file_that_ends_early() {
    let bytes = pickle(&whole());
    let mut options = ReadOptions::default();
    (options.on_one_thread, options.allow_truncated) = (true, true);
    for length in 0..bytes.len() {
        let Ok(recording) = Recording::read(Cursor::new(bytes[..length].to_vec()), &options) else { continue };
        let options = CheckOptions::default().budgets(vec![budgets(0, -1), budgets(1, -1)]).top(1);
        let kept = recording.check(&options).checks.iter().any(|check| check.verdict == CheckVerdict::Passed);
        assert!(!kept, "the first {length} of {} bytes", bytes.len());
        let options = CheckOptions::default().budgets(vec![budgets(0, 0)]).top(1);
        let kept = recording.check(&options).checks.iter().any(|check| check.verdict == CheckVerdict::Passed);
        assert!(!kept, "the first {length} of {} bytes are not all", bytes.len());
    }
}

#[test]
fn unknown_parts_are_named_and_do_not_pass() {
    let folder = Folder::new();
    let whole = whole();
    let changed = |place: &str, by: Value| pickle(&replaced(&whole, place, by));
    let mut later = whole.clone();
    later["color"] = json!(1);
    let overflowed = |value: Value| {
        let mut changed = whole.clone();
        changed["trace_alloc_overflowed"] = value;
        pickle(&changed)
    };
    let rehearsed = |facts: &str| {
        let mut changed = whole.clone();
        changed["rehearsal"] = json!(facts);
        pickle(&changed)
    };
    let by_value = r#"{"version": 1, "gpu": "t4", "reads": [{"file": "/a/train.py", "line": 7, "code": "y = x[x > 0]", "kind": "size", "count": 2}]}"#;
    let mut entries = whole.clone();
    let trace = entries["device_traces"][0].as_array_mut().unwrap();
    trace.insert(2, json!({"action": "virtual_alloc", "addr": 1, "size": 2, "stream": 0, "frames": [], "time_us": 10}));
    let twice = [pickle(&whole), pickle(&whole)].concat();
    let setting = |name: &str| format!("/allocator_settings/{name}");
    for (bytes, reason) in [
        (pickle(&later), "unknown key snapshot.color"),
        (pickle(&entries), "unknown action \"virtual_alloc\""),
        (overflowed(json!(1)), "expected a boolean for \"trace_alloc_overflowed\""),
        (overflowed(json!([true])), "expected a boolean for \"trace_alloc_overflowed\""),
        (overflowed(json!(true)), "ring buffer dropped entries"),
        (
            rehearsed(by_value),
            "some sizes depend on values read from the device, which a rehearsal does not know (train.py:7 y = x[x > 0])",
        ),
        (rehearsed("{\"version\": 2}"), "expected a rehearsal with keys that this version knows for \"rehearsal\""),
        (twice, "more data follows the recording"),
        (pickle(&without(&whole, "/allocator_settings")), "allocator settings are missing"),
        (changed("/allocator_settings/max_split_size", json!("200")), "expected an integer for \"max_split_size\""),
        (
            changed("/allocator_settings/expandable_segments", json!(0)),
            "expected a boolean for \"expandable_segments\"",
        ),
        (pickle(&without(&whole, &setting("max_split_size"))), "expected \"max_split_size\""),
        (pickle(&without(&whole, &setting("roundup_power2_divisions/8"))), "expected 16 counts"),
    ] {
        let path = folder.write("changed.pickle", bytes);
        let run = folder.check(&[&path, "--max-peak", "80GiB"]);
        run.expect(2);
        assert!(run.stderr.contains(reason), "expected {reason:?} in {:?}", run.stderr);
    }
}

/// A ring buffer, or a recording that started late: only stacks distinguish the two, and this one has none.
#[test]
fn a_late_beginning_without_stacks_is_not_known() {
    let mut late = whole();
    let trace = late["device_traces"][0].as_array_mut().unwrap();
    trace.drain(..2);
    assert_eq!(verdicts(&late, 0).unwrap()[0], CheckVerdict::Unknown, "the lost block has a stack");
    let blank = |value: &Value| {
        let mut all = Vec::new();
        places(value, "", &mut all);
        all.iter()
            .filter(|place| place.ends_with("/frames"))
            .fold(value.clone(), |value, place| replaced(&value, place, json!([])))
    };
    assert_eq!(verdicts(&blank(&late), 0).unwrap()[0], CheckVerdict::Unknown);
    // Entries with stacks show that blocks without one are from before the recording, or older than the ring buffer.
    let segments = blank(&late)["segments"].clone();
    late["segments"] = segments;
    assert_eq!(verdicts(&late, 0).unwrap()[0], CheckVerdict::Unknown);
    late["trace_alloc_overflowed"] = json!(false);
    assert_eq!(verdicts(&late, 0).unwrap()[0], CheckVerdict::Passed, "the file rules that out");
}

/// Whatever is missing from a real recording: a budget below the peak of the whole is never met.
#[test]
fn no_part_of_a_real_recording_is_judged_as_the_whole() {
    for name in ["fragmented_nocrash", "conf_roundup", "expandable", "tiny", "private_pool", "side_stream"] {
        let whole = support::open(&fixture(name));
        let limits =
            [Metric::Allocated, Metric::Reserved].map(|metric| whole.histories[0].maxima[metric as usize].bytes);
        let judged = |recording: &Recording, slack: i64| {
            let [peak, reserved] = limits.map(|bytes| u64::try_from(bytes + slack).ok());
            let budgets = Budgets::default().devices(vec![0]).max_peak(peak).max_reserved(reserved);
            let report = recording.check(&CheckOptions::default().budgets(vec![budgets]).top(1));
            report.checks.iter().map(|check| check.verdict).collect::<Vec<_>>()
        };
        assert_eq!(judged(&whole, 0), [CheckVerdict::Passed; 2], "{name}");
        let entries = whole.snapshot.traces[0].rows.len();
        let mut problems = Vec::new();
        let mut never_passes = |what: String, kept: &dyn Fn(usize) -> bool| {
            if judged(&with_entries(&whole, kept), -1).contains(&CheckVerdict::Passed) {
                problems.push(format!("{name} {what}"));
            }
        };
        for part in 1..24 {
            let at = entries * part / 24;
            never_passes(format!("from entry {at} on"), &|entry| entry >= at);
            never_passes(format!("up to entry {at}"), &|entry| entry < at);
            never_passes(format!("without entry {at}"), &|entry| entry != at);
        }
        support::assert_none(&problems);
    }
}

/// A recording with some of the entries of device 0, which is its first.
fn with_entries(whole: &Recording, kept: &dyn Fn(usize) -> bool) -> Recording {
    let mut snapshot = whole.snapshot.clone();
    snapshot.entries = TraceEntries::default();
    for (device, trace) in snapshot.traces.iter_mut().enumerate() {
        let start = snapshot.entries.len();
        let rows = whole.snapshot.entries.rows(trace.rows.clone()).enumerate();
        rows.filter(|&(entry, _)| device > 0 || kept(entry)).for_each(|(_, entry)| snapshot.entries.push(entry));
        trace.rows = start..snapshot.entries.len();
    }
    let histories = replay(&snapshot);
    Recording { snapshot, histories, ..whole.clone() }
}

/// Settings that are unknown, or contradictory, leave every size open.
#[test]
fn unknown_settings_are_not_exact() {
    let whole = whole();
    let with = |key: &str, value: Value| {
        let mut changed = whole.clone();
        changed["allocator_settings"][key] = value;
        changed
    };
    let text = "PYTORCH_CUDA_ALLOC_CONF";
    for (key, value) in [
        ("large_page_mb", json!(64)),
        (text, json!("newround:8")),
        (text, json!("roundup_power2_divisions:7")),
        (text, json!("max_split_size_mb:30")),
        (text, json!("backend:cudaMallocAsync")),
        (text, json!("expandable_segments")),
        ("roundup_power2_divisions", json!({"1": 7})),
        ("max_split_size", json!(true)),
        ("max_split_size", json!(-5)),
        ("garbage_collection_threshold", json!(true)),
        ("garbage_collection_threshold", json!(3.5)),
    ] {
        let verdicts = verdicts(&with(key, value.clone()), 1 << 40).unwrap();
        assert_eq!(verdicts, [CheckVerdict::Unknown; 4], "{key} {value}");
    }
    for (key, value) in [
        (text, json!("garbage_collection_threshold:0.0,pinned_num_register_threads:8")),
        ("release_lock_on_cudamalloc", json!(true)),
    ] {
        let found = verdicts(&with(key, value.clone()), 0).unwrap();
        assert_eq!(found.contains(&CheckVerdict::Passed), key != text, "{key} {value}");
    }
}

/// Python keeps the last of several values of a key. Which one was intended is unknown.
#[test]
fn a_duplicate_key_is_unknown() {
    let bytes = pickle(&whole());
    // The root's dictionary is filled last: one more item, an empty list of traces, before STOP.
    let [body, b"."] = [&bytes[..bytes.len() - 1], &bytes[bytes.len() - 1..]] else { panic!("STOP is last") };
    for key in ["device_traces", "segments", "allocator_settings"] {
        let item = [&b"X"[..], &(key.len() as u32).to_le_bytes(), key.as_bytes(), b"]s."].concat();
        let twice = [body, &item].concat();
        let recording = Recording::read(Cursor::new(twice), &ReadOptions::default());
        let Ok(recording) = recording else { continue };
        let options = CheckOptions::default().budgets(vec![budgets(0, 1 << 40)]).top(1);
        let verdicts: Vec<_> = recording.check(&options).checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [CheckVerdict::Unknown; 2], "{key}");
        if key == "device_traces" {
            assert_eq!(
                recording.histories.iter().map(memviz::replay::History::entries).sum::<u32>(),
                0,
                "the last one counts"
            );
        }
    }
}

/// A segment with a block from before the recording that disappears without an entry.
#[test]
fn segments_whose_end_was_not_recorded_leave_reserved_open() {
    let mut late = whole();
    late["trace_alloc_overflowed"] = json!(false);
    let frames = json!([]);
    let trace = late["device_traces"][0].as_array_mut().unwrap();
    for action in ["free_completed", "free_requested"] {
        trace.insert(
            0,
            json!({"action": action, "addr": 1u64 << 50, "size": 20 << 20, "stream": 0, "frames": frames,
                               "time_us": 0, "compile_context": "N/A"}),
        );
    }
    let verdicts = verdicts(&late, 1 << 40).unwrap();
    assert_eq!(verdicts, [CheckVerdict::Passed, CheckVerdict::Unknown, CheckVerdict::Passed, CheckVerdict::Passed]);
}

/// A temporary segment, none of whose entries is left: its block is in no segment.
#[test]
fn a_small_block_outside_of_every_segment_contradicts_the_recording() {
    let mut whole = whole();
    let (stays, goes) = (1u64 << 44, 1u64 << 45);
    let trace = whole["device_traces"][0].as_array_mut().unwrap();
    for (action, addr, size) in [
        ("segment_alloc", goes, 2 << 20),
        ("alloc", goes, 512),
        ("free_requested", goes, 512),
        ("free_completed", goes, 512),
        ("segment_free", goes, 2 << 20),
        ("segment_alloc", stays, 2 << 20),
        ("alloc", stays, 512),
        ("free_requested", stays, 512),
        ("free_completed", stays, 512),
        ("segment_free", stays, 2 << 20),
    ] {
        let time = 10 * trace.len();
        trace.push(json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time,
                          "compile_context": "N/A", "user_metadata": "", "frames": []}));
    }
    assert_eq!(verdicts(&whole, 2 << 20).unwrap()[..2], [CheckVerdict::Passed; 2]);
    let entries = whole["device_traces"][0].as_array_mut().unwrap();
    entries.retain(|entry| entry["addr"] != json!(goes) || !entry["action"].as_str().unwrap().starts_with("segment"));
    assert_eq!(verdicts(&whole, 1 << 40).unwrap()[..2], [CheckVerdict::Unknown; 2]);
}

#[test]
fn events_that_count_memory_are_not_left_out_in_silence() {
    let event = |name: &str, thread: Value, time: u64, bytes: i64, total: u64| {
        json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": 1, "tid": thread, "ts": time,
               "args": {"Total Reserved": 1u64 << 30, "Total Allocated": total, "Bytes": bytes, "Device Id": 0,
                        "Device Type": 1, "Addr": 256 + time, "Ev Idx": 0}})
    };
    let trace = |name: &str, thread: &Value| {
        let [first, last] = [(1, 512), (4, 1024)].map(|(time, total)| event("[memory]", json!(1), time, 512, total));
        let peak = event(name, thread.clone(), 2, 1 << 30, (1 << 30) + 512);
        json!({"schemaVersion": 1, "profile_memory": 1, "traceEvents": [first, peak, last]}).to_string()
    };
    let folder = Folder::new();
    for (name, thread) in [("[memory:large]", json!(1)), ("[memory]", json!("main"))] {
        let path = folder.write("trace.json", trace(name, &thread));
        let run = folder.check(&[&path, "--max-peak", "1MiB"]);
        run.expect(2);
        assert!(run.stderr.contains("1 memory event was left out"), "{name}: {}", run.stderr);
    }
}

#[test]
fn recordings_that_contradict_themselves_have_not_grown_nor_kept_still() {
    let strange = "fixtures/malformed/overlapping-alloc.pickle";
    for pair in [[strange, &fixture("tiny")], [&fixture("tiny"), strange], [strange, strange]] {
        let run = memviz(&["diff", "--fail-on-growth", "80GiB", pair[0], pair[1]]);
        run.expect(2);
        assert!(run.stderr.contains("contradicts itself"), "{}", run.stderr);
    }
}

#[cfg(unix)]
#[test]
fn unreadable_files_of_a_glob_do_not_pass() {
    let folder = Folder::new();
    fs::copy(fixture("tiny"), folder.path("rank0.gz")).unwrap();
    folder.write("memviz.toml", "[[budget]]\ninput = \"*.gz\"\nmax-peak = \"1GiB\"\n");
    folder.check(&[]).expect(0);
    std::os::unix::fs::symlink("gone", folder.path("rank1.gz")).unwrap();
    let run = folder.check(&[]);
    assert!(run.expect(2).stderr.contains("rank1.gz"), "{}", run.stderr);
    fs::remove_file(folder.path("rank1.gz")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path("rank2.gz")).status();
    if made.is_ok_and(|status| status.success()) {
        let run = folder.check(&[]);
        assert!(run.expect(2).stderr.contains("rank2.gz: expected a file, found a pipe"), "{}", run.stderr);
        fs::remove_file(folder.path("rank2.gz")).unwrap();
    }
    // A configuration that leads nowhere was meant to limit something.
    fs::remove_file(folder.path("memviz.toml")).unwrap();
    std::os::unix::fs::symlink("gone", folder.path("memviz.toml")).unwrap();
    folder.check(&["rank0.gz", "--max-peak", "1GiB"]).expect_error("memviz.toml: ");
}

#[test]
fn a_rehearsal_is_checked_and_names_its_gaps() {
    let mut rehearsed = whole();
    let reads = json!([
        {"file": "train.py", "line": 9, "code": "print(loss.item())", "kind": "value", "count": 3},
        {"file": "train.py", "line": 11, "code": "splits = counts.tolist()", "kind": "copy", "count": 2},
    ]);
    let facts = json!({"version": 1, "gpu": "a100-40gb", "memory": 64 << 20, "context": 8 << 20, "reads": reads, "cudnn_operations": 1});
    rehearsed["rehearsal"] = json!(facts.to_string());
    let folder = Folder::new();
    let path = folder.write("rehearsed.pickle", pickle(&rehearsed));
    let run = folder.check(&[&path, "--max-peak", "80GiB"]);
    run.expect(0);
    for said in [
        "rehearsed for a100-40gb with 64.00 MiB, without a GPU",
        "read 3 values from the device: a rehearsal returns zeros",
        "train.py:9 print(loss.item()), 3 times",
        "copied 2 tensors to the host: a rehearsal returns zeros",
        "train.py:11 splits = counts.tolist(), 2 times",
        "1 cuDNN operation",
    ] {
        assert!(run.stdout.contains(said), "expected {said:?} in {}", run.stdout);
    }
    // Every answer has the facts.
    for command in ["peak", "fit", "simulate", "triage"] {
        let answer = memviz(&[command, &path, "--format", "json"]).json();
        let input = answer.get("input").unwrap_or_else(|| &answer["inputs"][0]);
        let facts = &input["rehearsal"];
        assert_eq!((&facts["gpu"], &facts["sizes_from_values"]), (&json!("a100-40gb"), &json!(false)), "{command}");
        assert_eq!(facts["value_reads"][0]["kind"], "value");
        assert_eq!(facts["cudnn_operations"], 1);
    }
    // The device that was rehearsed is the one to fit.
    let fit = memviz(&["fit", &path, "--format", "json"]).json();
    assert_eq!(fit["devices"][0]["capacity_bytes"], 56 << 20);
    let plain = folder.write("plain.pickle", pickle(&whole()));
    assert!(memviz(&["peak", &plain, "--format", "json"]).json()["input"].get("rehearsal").is_none());
}

#[test]
fn a_peak_with_uncertain_workspaces_is_checked_at_its_bound() {
    let mut rehearsed = whole();
    let facts = json!({"version": 1, "gpu": "h100-80gb", "memory": 64 << 20, "context": 8 << 20, "cudnn_planned": 7,
        "cudnn_uncertain": 3, "cudnn_smaller": 512, "cudnn_larger": 1 << 20});
    rehearsed["rehearsal"] = json!(facts.to_string());
    let peak_of = |slack: i64| {
        let verdicts = verdicts(&rehearsed, slack).unwrap();
        // How much more is reserved for a larger workspace is not known.
        assert_eq!((verdicts[1], verdicts[3]), (CheckVerdict::Unknown, CheckVerdict::Unknown));
        assert_eq!(verdicts[0], verdicts[2]);
        verdicts[0]
    };
    assert_eq!(peak_of(1 << 20), CheckVerdict::Passed);
    assert_eq!(peak_of((1 << 20) - 1), CheckVerdict::Unknown);
    assert_eq!(peak_of(-512), CheckVerdict::Unknown);
    assert_eq!(peak_of(-513), CheckVerdict::Failed);
    let path = Folder::new();
    let path = path.write("rehearsed.pickle", pickle(&rehearsed));
    let run = memviz(&["peak", &path]);
    let said = "of 7 cuDNN operations planned without a device, 3 may need up to 1.00 MiB more workspace";
    assert!(run.stdout.contains(said), "{}", run.stdout);
    let facts = &memviz(&["peak", &path, "--format", "json"]).json()["input"]["rehearsal"];
    assert_eq!((&facts["cudnn_uncertain"], &facts["cudnn_larger_bytes"]), (&json!(3), &json!(1 << 20)));
}
