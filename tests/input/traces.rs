//! Profiler traces that are written by hand: gaps, threads, keys in any order, hostile nesting, traces that were cut off or damaged.

use memviz::Recording;
use memviz::analysis::flame::FlameOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::{BASELINE, GroupBy};
use memviz::input::ReadOptions;
use memviz::replay::Metric;
use std::io::Cursor;

/// Reads JSON unchanged.
fn read(json: &str) -> memviz::Result<Recording> {
    Recording::read(Cursor::new(json.as_bytes().to_vec()), &ReadOptions::default())
}

/// A `[memory]` event of device 0 on thread 1.
fn memory(ts: &str, bytes: i64, addr: u64, allocated: i64) -> String {
    format!(
        r#"{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 1, "ts": {ts},
            "args": {{"Total Reserved": 4096, "Total Allocated": {allocated}, "Bytes": {bytes}, "Device Id": 0,
            "Device Type": 1, "Addr": {addr}, "Ev Idx": 1}}}}"#
    )
}

/// A span that ends after `dur`.
fn span(category: &str, name: &str, tid: i64, ts: f64, dur: f64, args: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 7, "tid": {tid}, "ts": {ts}, "dur": {dur},
            "args": {{{args}}}}}"#
    )
}

fn trace(events: &[String]) -> String {
    format!(r#"{{"schemaVersion": 1, "profile_memory": 1, "traceEvents": [{}], "traceName": "x"}}"#, events.join(", "))
}

#[test]
fn gaps_in_the_trace_are_anomalies() {
    // (events as bytes, address and total; anomalies; baseline, maximum and end; rows at the end)
    let cases = [
        // 50 bytes come unseen, then 30 of them go unseen.
        (vec![(100, 1, 100), (10, 2, 160), (-10, 2, 120)], "2 total_gap", [0, 160, 120], 120),
        // 30 of the baseline's 50 bytes go unseen.
        (vec![(100, 1, 150), (10, 2, 130)], "1 total_gap", [50, 150, 130], 130),
        // A free is missing, and it is unknown which one: rows then sum to more than the counter.
        (vec![(100, 1, 100), (10, 2, 40)], "1 total_gap", [0, 100, 40], 110),
        // It is detected when the next block is allocated at its address.
        (vec![(100, 1, 100), (60, 1, 60)], "1 overlapping_alloc", [0, 100, 60], 60),
        (vec![(100, 1, 100), (10, 2, 10)], "1 total_reset", [0, 100, 10], 110),
        (vec![(100, 1, 100), (-100, 1, 0), (-100, 1, 0)], "1 free_of_unknown", [0, 100, 0], 0),
        (vec![(100, 1, 100), (-90, 1, 0)], "1 size_mismatch", [0, 100, 0], 0),
        // More is freed than was there before. By its own account the free began at 100 bytes.
        (vec![(8, 3, 8), (-100, 1, 0)], "2 total_gap", [0, 100, 0], 100),
    ];
    for (events, expected, [baseline, maximum, end], rows) in cases {
        let texts = events.iter().enumerate();
        let texts = texts.map(|(index, &(bytes, addr, total))| memory(&format!("{index}.5"), bytes, addr, total));
        let recording = read(&trace(&texts.collect::<Vec<_>>())).unwrap();
        let history = recording.history(0).unwrap();
        let found: Vec<String> =
            history.anomalies.kinds().map(|anomaly| format!("{} {}", anomaly.count, anomaly.kind.name())).collect();
        assert_eq!(found.join(", "), expected, "{events:?}");
        let counters = [history.start.allocated, history.maxima[0].bytes, history.end.allocated];
        assert_eq!(counters, [baseline, maximum, end], "{events:?}");
        let at_end = PeakOptions::default().at(Some("end".parse().unwrap()));
        assert_eq!(recording.peak(&at_end).unwrap().devices[0].attribution.total_bytes, rows, "{events:?}");
    }
}

#[test]
fn forward_threads_are_distinguished_or_refused() {
    let forward = |tid, ts, number, file: &str| {
        let python = span("python_function", &format!("{file}.py(3): forward"), tid, ts, 2.0, "");
        let operator = span(
            "cpu_op",
            "aten::mm",
            tid,
            ts + 0.5,
            1.0,
            &format!(r#""Sequence number": {number}, "Fwd thread id": 0"#),
        );
        [python, operator]
    };
    let backward = |ts: f64, number, thread, addr, total| {
        let link = format!(r#""Fwd thread id": {thread}, "Sequence number": {number}"#);
        [span("cpu_op", "MmBackward0", 1, ts, 1.0, &link), memory(&format!("{}", ts + 0.5), 8, addr, total)]
    };
    let sites = |events: Vec<String>| -> Vec<String> {
        let recording = read(&trace(&events)).unwrap();
        let report = recording.peak(&PeakOptions::default()).unwrap();
        let mut labels: Vec<String> =
            report.devices[0].attribution.rows.iter().map(|row| format!("{} {}", row.bytes, row.label)).collect();
        labels.sort();
        labels
    };
    // Both threads count from 5. Number 6 is on one thread only, so forward thread 2 must be thread 12.
    let forwards = [forward(11, 1.0, 5, "a"), forward(12, 1.0, 5, "b"), forward(12, 4.0, 6, "b2")].concat();
    let known = [forwards.clone(), backward(10.0, 6, 2, 1, 8).to_vec(), backward(12.0, 5, 2, 2, 16).to_vec()].concat();
    assert_eq!(sites(known), ["8 backward of b.py:3 forward", "8 backward of b2.py:3 forward"]);
    // The meaning of thread number 5 is unknown here.
    let unknown = [forwards, backward(10.0, 5, 2, 1, 8).to_vec()].concat();
    assert_eq!(sites(unknown), ["8 MmBackward0"]);
    // A forward operator that ran after the backward one does not belong to it.
    let later = [forward(11, 20.0, 5, "a").to_vec(), backward(10.0, 5, 1, 1, 8).to_vec()].concat();
    assert_eq!(sites(later), ["8 MmBackward0"]);
}

/// As `with_modules=True` writes them around operators of `TorchScript`, if there are no Python stacks.
#[test]
fn modules_of_torchscript_are_around_operators() {
    let operator = |name, ts, dur, modules: &str, more: &str| {
        span("cpu_op", name, 1, ts, dur, &format!(r#""Module Hierarchy": "{modules}"{more}"#))
    };
    let forward = r#", "Sequence number": 5, "Fwd thread id": 0"#;
    let backward = r#""Sequence number": 5, "Fwd thread id": 2"#;
    let events = [
        operator("forward", 1.0, 20.0, "TOP(Net)::forward.", ""),
        operator("aten::linear", 2.0, 4.0, "TOP()::<forward op>.a(Block)::forward.fc(Linear)::forward.", forward),
        memory("3.5", 8, 1, 8),
        operator("aten::linear", 7.0, 4.0, "TOP(Net)::forward.SELF(Net)::tail.fc(Linear)::forward.", ""),
        memory("8.5", 16, 2, 24),
        span("cpu_op", "AddmmBackward0", 3, 30.0, 4.0, backward),
        memory("31.5", 32, 3, 56).replace("\"tid\": 1", "\"tid\": 3"),
    ];
    let recording = read(&trace(&events)).unwrap();
    let labels = |by| -> Vec<String> {
        let report = recording.peak(&PeakOptions::default().by(by)).unwrap();
        report.devices[0].attribution.rows.iter().map(|row| format!("{} {}", row.bytes, row.label)).collect()
    };
    assert_eq!(labels(GroupBy::Site), ["32 AddmmBackward0 in fc(Linear)", "24 aten::linear in fc(Linear)"]);
    assert_eq!(labels(GroupBy::ModulePath), ["40 Net.a(Block).fc(Linear)", "16 Net.fc(Linear)"]);
}

#[test]
fn keys_come_in_any_order_and_unneeded_ones_are_skipped() {
    let event = r#"{"args": {"Addr": -1, "Deep": [[[{"a": "]}\""}]]], "Device Type": 1, "Total Allocated": 64,
        "Device Id": 3, "Bytes": 7, "Bytes": 64, "Total Reserved": 128}, "ts": 5.25, "tid": 1, "pid": 7,
        "name": "\u005bmemory]x", "name": "[memory]", "s": "t", "ph": "i", "cat": "cpu_instant_event"}"#;
    let kernel = r#"{"ph": "X", "ts": "soon", "dur": NaN, "cat": "kernel", "name": 3, "tid": {}, "args": [1, 2]}"#;
    let text = format!(
        r#"{{"traceEvents": [{kernel}, {event}], "distributedInfo": {{"backend": "nccl", "rank": 3, "world_size": 8}},
        "baseTimeNanoseconds": 1000000}}"#
    );
    let recording = read(&text).unwrap();
    let history = recording.history(3).unwrap();
    assert_eq!((history.end.allocated, history.end.reserved, history.allocations[0].addr), (64, 128, u64::MAX));
    assert_eq!(recording.snapshot.entries.times(), [1005]);
    assert_eq!(recording.snapshot.notes.rank, Some((3, Some(8))));
    // Chrome also accepts files that contain only the array.
    assert_eq!(read(&format!("\n [{event}]\n")).unwrap().history(3).unwrap().end.allocated, 64);
}

#[test]
fn hostile_json_is_refused_in_one_line_or_counted() {
    let good = memory("1.5", 64, 1, 64);
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        trace(&[good.replace(from, to)])
    };
    let refused = [
        (String::from("{}"), "\"traceEvents\""),
        (String::from("[]x"), "expected the end"),
        (String::from("{\"traceEvents\": []}"), "profile_memory=True"),
        (String::from("{\"traceEvents\": {}}"), "expected an array of events, found {"),
        (String::from("{\"traceEvents\": [1]}"), "expected an event, found 1"),
        (String::from("{\"traceEvents\": [{\"ph\" 1}]}"), "expected \":\", found 1"),
        (String::from("{\"traceEvents\": [], \"traceEvents\": []}"), "found a second"),
        (format!("{} x", trace(&[])), "expected the end of the file"),
        (with("\"ts\": 1.5", "\"ts\": \"1.5\""), "expected a number for \"ts\", found \"1.5\""),
        (with("\"ts\": 1.5", "\"ts\": NaN"), "found NaN"),
        (with("\"ts\": 1.5", "\"ts\": 1e999"), "found 1e999"),
        (with("\"Bytes\": 64", "\"Bytes\": \"64\""), "expected an integer for \"Bytes\", found \"64\""),
        (with("\"Bytes\": 64", "\"Bytes\": 64.5"), "found 64.5"),
        (with("\"Bytes\": 64", "\"Bytes\": 9223372036854775808"), "expected an integer for \"Bytes\""),
        (with("\"Bytes\": 64", "\"Byte\": 64"), "expected \"Bytes\" in a [memory] event"),
        (with("\"Device Id\": 0", "\"Device Id\": -1"), "expected a device from 0 to 127, found -1"),
        (with("\"args\": {", "\"args\": 3, \"x\": {"), "expected an object for \"args\", found 3"),
        (with("\"Ev Idx\": 1", &format!("\"x\": {}1{}", "[".repeat(1000), "]".repeat(1000))), "deep"),
        (String::from("<!doctype html><img src='data:image/png;base64,x'>"), "export to .raw.json.gz"),
        (String::from("[[1, 2, 3, 4], [5, 9, 1, 0]]"), "expected [time, action 1 to 4"),
        (String::from("[[1, 2, 8, 8]]"), "category 0 to 7"),
        (String::from("[[1, 2], [[0,1,0,0,0,0,0,0,0]]]"), "as many rows as times"),
        (String::from("[[1], [[0,1,0,0,0,0,0,0,0], [0,1,0,0,0,0,0,0,0]]]"), "as many rows as times"),
        (String::from("[[1], [[5,1,0,0,0,0,0,0,0]]]"), "a row of 0"),
        (String::from("[[\"1\"], []]"), "expected an integer"),
    ];
    for (text, part) in &refused {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(part) && error.lines().count() == 1, "{text}\n{error}");
    }
    // Odd, but no reason to give up.
    let negative = span("cpu_op", "aten::mm", 1, 1.0, -3.0, "");
    let recording = read(&trace(&[negative, good.clone(), good.replace("\"tid\": 1", "\"tid\": \"x\"")])).unwrap();
    let left_out: Vec<_> =
        recording.snapshot.notes.left_out.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    assert_eq!(left_out, [("events with a negative duration", 1), ("events without a time or a thread", 1)]);
    assert_eq!(read(&with("\"ts\": 1.5", "\"ts\": -1.5")).unwrap().history(0).unwrap().end.allocated, 64);

    let mut invalid = trace(&[span("python_function", "a\u{1}b.py(3): f", 1, 1.0, 3.0, ""), good]).into_bytes();
    let at = invalid.iter().position(|&byte| byte == 1).unwrap();
    invalid[at] = 0xff;
    let recording = Recording::read(Cursor::new(invalid), &ReadOptions::default()).unwrap();
    assert_eq!(
        recording.peak(&PeakOptions::default()).unwrap().devices[0].attribution.rows[0].label,
        "a\u{fffd}b.py:3 f"
    );
}

#[test]
fn hostile_nesting_costs_no_more_than_its_size() {
    // Quadratic work would take minutes.
    let count: i32 = 30_000;
    let mut events: Vec<String> = (0..count)
        .map(|index| {
            let link = format!(r#""Sequence number": 5, "Fwd thread id": {}"#, index % 2);
            span("cpu_op", &format!("op{index}"), 1, f64::from(index), 1e6, &link)
        })
        .collect();
    events.extend((0..count).map(|index| {
        span("cpu_op", "aten::mm", i64::from(index) + 2, 0.5, 1.0, r#""Sequence number": 5, "Fwd thread id": 0"#)
    }));
    events.extend((0..count).map(|index| {
        memory(&format!("{}.5", count + index), 8, u64::from(index.unsigned_abs()) + 1, i64::from(index + 1) * 8)
    }));
    let recording = read(&trace(&events)).unwrap();
    assert_eq!(recording.history(0).unwrap().end.allocated, i64::from(count) * 8);
    assert_eq!(
        recording.snapshot.notes.left_out["events nested more than 256 deep"],
        u64::from(count.unsigned_abs()) - 256
    );
}

/// A short trace of everything.
fn sample() -> String {
    let link = r#""Sequence number": 5, "Fwd thread id": "#;
    let events = [
        span("user_annotation", "step_0", 1, 0.0, 90.0, ""),
        span("python_function", "train.py(3): main", 1, 0.0, 95.5, r#""Python id": 1"#),
        span("python_function", "nn.Module: Linear_0", 1, 5.0, 20.0, ""),
        span("cpu_op", "aten::linear", 1, 10.0, 10.0, &format!("{link}0")),
        span("cpu_op", "MmBackward0", 2, 50.0, 10.0, &format!("{link}1")),
        memory("11.5", 64, 1, 100),
        memory("55.5", 32, 2, 132).replace("\"tid\": 1", "\"tid\": 2"),
        memory("56.5", -36, 9, 96).replace("4096", "2048"),
        memory("57.5", 1 << 40, 9, 96).replace("[memory]", "[OutOfMemory]"),
        memory("58.5", -64, 1, 32).replace("\"Device Type\": 1", "\"Device Type\": 0"),
    ];
    trace(&events)
}

/// Asks everything of a recording.
fn ask_everything(recording: &Recording) {
    for by in [GroupBy::Site, GroupBy::Operator, GroupBy::NnModule, GroupBy::Stream, GroupBy::Annotation] {
        for metric in Metric::ALL {
            let _ = recording.peak(&PeakOptions::default().by(by).metric(metric));
        }
    }
    let _ = recording.flame(&FlameOptions::default());
    let _ = recording.timeline(
        &memviz::analysis::timeline::TimelineOptions::default()
            .peak(PeakOptions::default())
            .axis(memviz::analysis::timeline::XAxis::Time)
            .columns(10)
            .inactive(true),
    );
    let _ = recording.info(&[]);
    let _ = recording.segment_map(&PeakOptions::default());
}

#[test]
fn the_sample_is_understood() {
    let recording = read(&sample()).unwrap();
    let history = recording.history(0).unwrap();
    assert_eq!((history.start.allocated, history.maxima[0].bytes, history.end.allocated), (36, 132, 96));
    assert_eq!((history.maxima[3].bytes, history.end.reserved, recording.anomalies()), (4096, 4096, 0));
    let report = recording.peak(&PeakOptions::default()).unwrap();
    let rows = report.devices[0].attribution.rows.iter().map(|row| (row.bytes, row.label.as_str()));
    let expected = [(64, "train.py:3 main"), (36, BASELINE), (32, "backward of train.py:3 main")];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert_eq!(report.devices[0].annotations, ["step_0"]);
    ask_everything(&recording);
}

#[test]
fn a_trace_that_was_cut_off_is_refused_or_analysed() {
    let text = sample();
    let lenient = || {
        let mut options = ReadOptions::default();
        options.allow_truncated = true;
        options
    };
    let mut analyzed = 0;
    for cut in (1..text.len()).step_by(3) {
        let bytes = text.as_bytes()[..cut].to_vec();
        let error = Recording::read(Cursor::new(bytes.clone()), &ReadOptions::default()).expect_err("it is cut off");
        assert!(matches!(error, memviz::Error::Truncated { .. }), "{cut}: {error}");
        if let Ok(recording) = Recording::read(Cursor::new(bytes), &lenient()) {
            ask_everything(&recording);
            assert_eq!(recording.snapshot.notes.truncated_at, Some(cut as u64));
            assert!(recording.histories.iter().all(|history| history.completeness.truncated));
            analyzed += 1;
        }
    }
    // From `"profile_memory": 1` on, there is something to report.
    assert!(analyzed > (text.len() - 100) / 3, "{analyzed} of {}", text.len());

    // A killed writer leaves half a gzip member as well.
    let mut packed = std::fs::read("fixtures/traces/profiler_traces/cpu.trace.json.gz").unwrap();
    packed.truncate(packed.len() / 2);
    assert!(Recording::read(Cursor::new(packed.clone()), &ReadOptions::default()).is_err());
    let recording = Recording::read(Cursor::new(packed), &lenient()).unwrap();
    assert!(recording.snapshot.notes.truncated_at.is_some());
    ask_everything(&recording);
}

#[test]
fn damaged_json_never_panics() {
    let texts = [
        sample(),
        "[[-1, 1, 64, 0], [10, 2, 32, 4], [20, 3, -32, 4], [20, 3, 32, 5], [30, 4, -32, 5], [40, 4, -1, 1]]".to_owned(),
        "[[1, 2, 2], [[0,1,2,0,0,0,0,0,0], [0,1,0,5,0,0,0,0,0], [0,0,0,-7,0,0,0,0,1]]]".to_owned(),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let replacements =
        ["", "-", "9", "9223372036854775807", "\"", "\\", "[", "]", "{", "}", ",", "NaN", "null", "\u{0}"];
    let mut read_well = 0;
    for round in 0..2400 {
        let mut text = texts[round % texts.len()].clone();
        for _ in 0..=random(3) {
            let at = random(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, replacements[random(replacements.len())]);
            }
        }
        let mut options = ReadOptions::default();
        options.allow_truncated = round % 2 == 0;
        if let Ok(recording) = Recording::read(Cursor::new(text.into_bytes()), &options) {
            ask_everything(&recording);
            read_well += 1;
        }
    }
    assert!(read_well > 200, "only {read_well} were read");
}
