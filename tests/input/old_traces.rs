//! Traces of PyTorch 1.8 to 1.12, which contain less than current ones.

use crate::read;
use crate::support::{open, read_unpacked};
use memviz::analysis::peak::PeakOptions;
use memviz::model::CPU_DEVICE;
use memviz::replay::{Bound, Metric, Track};
use serde_json::{Value, json};

/// A memory event of PyTorch 1.9: no category, no address, no totals; numbers of threads are strings.
fn memory(time: i64, device: i64, bytes: i64) -> Value {
    json!({"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": "4093687616", "ts": time,
        "args": {"Device Type": i64::from(device >= 0), "Device Id": device, "Bytes": bytes}})
}

fn operator(name: &str, time: i64, duration: i64) -> Value {
    json!({"ph": "X", "cat": "Operator", "name": name, "pid": 7, "tid": "4093687616", "ts": time, "dur": duration,
        "args": {"Device": 0, "External id": 2}})
}

#[test]
fn the_curve_is_the_sum_of_what_the_events_say() {
    let events = json!([
        operator("ProfilerStep#3", 0, 100),
        operator("aten::empty", 10, 5),
        memory(11, 0, 4096),
        operator("aten::mm", 20, 5),
        memory(21, 0, 1024),
        // Nothing of this size was seen to come: it is from before the trace.
        memory(30, 0, -512),
        memory(40, 0, -4096),
        memory(41, -1, 100),
        memory(50, 0, 2048),
    ]);
    let recording = read(events.to_string().as_bytes()).unwrap();
    let history = recording.history(0).unwrap();
    let mut curve = Vec::new();
    Track::new(&recording.snapshot, history).walk(|_, counters| curve.push(counters.allocated));
    assert_eq!(history.start.allocated, 512);
    assert_eq!(curve, [4608, 5632, 5120, 1024, 3072]);
    assert_eq!(history.anomalies.total(), 0);
    // It is unknown what else was there before.
    let bounds = Metric::ALL.map(|metric| history.completeness.bound(metric));
    assert_eq!(history.completeness.bound(Metric::Allocated), Some(Bound::Lower));
    assert_eq!(history.completeness.bound(Metric::Reserved), Some(Bound::Unknown));
    assert!(bounds.iter().all(Option::is_some) && !history.completeness.is_complete());
    assert_eq!(recording.history(CPU_DEVICE).unwrap().end.allocated, 100);

    let peak = recording.peak(&PeakOptions::default().devices(vec![0])).unwrap();
    let rows: Vec<_> = peak.devices[0].attribution.rows.iter().map(|row| (row.label.as_str(), row.bytes)).collect();
    assert_eq!(rows, [("aten::empty", 4096), ("aten::mm", 1024), ("(before the recording)", 512)]);
    let notes = crate::notes(&recording);
    assert!(notes.contains("have no addresses") && notes.contains("inferred"), "{notes}");
    // A range of the profiler is not an operator.
    let range = recording.snapshot.annotations.first().map(|range| recording.snapshot.strings.get(range.name));
    assert_eq!(range, Some("ProfilerStep#3"));
}

/// A trace of the repository, its memory events without some of their keys.
fn without(keys: &[&str]) -> Vec<u8> {
    let path = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
    let mut trace: Value = serde_json::from_slice(&read_unpacked(path)).unwrap();
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        if event["name"] == "[memory]" {
            let object = event.as_object_mut().unwrap();
            object.remove("cat");
            let args = object["args"].as_object_mut().unwrap();
            args.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    trace.to_string().into_bytes()
}

#[test]
fn memory_events_need_no_category() {
    let whole = open("fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz");
    let bare = read(&without(&[])).unwrap();
    for (whole, bare) in whole.histories.iter().zip(&bare.histories) {
        assert_eq!(whole.allocations, bare.allocations);
        assert_eq!((whole.maxima, whole.end), (bare.maxima, bare.end));
    }
}

#[test]
fn without_totals_the_curve_lacks_memory_that_is_never_freed() {
    let whole = open("fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz");
    for keys in [&["Total Allocated", "Total Reserved"][..], &["Addr", "Total Allocated", "Total Reserved"]] {
        let bare = read(&without(keys)).unwrap();
        for (whole, bare) in whole.histories.iter().zip(&bare.histories) {
            let missing = whole.start.allocated - bare.start.allocated;
            assert!(missing >= 0, "more than there was: {missing}");
            let maximum = |history: &memviz::replay::History| history.maxima[Metric::Allocated as usize].bytes;
            assert_eq!(maximum(whole) - maximum(bare), missing);
            assert_eq!(whole.end.allocated - bare.end.allocated, missing);
            assert_eq!(bare.anomalies.total(), 0);
        }
    }
}

#[test]
fn a_trace_holds_totals_in_every_event_or_in_none() {
    let mut trace: Value = serde_json::from_slice(&without(&[])).unwrap();
    let events = trace["traceEvents"].as_array_mut().unwrap();
    let last = events.iter_mut().rfind(|event| event["name"] == "[memory]").unwrap();
    last["args"].as_object_mut().unwrap().remove("Total Allocated");
    let error = crate::error(trace.to_string().as_bytes());
    assert!(error.contains("expected \"Total Allocated\" in a [memory] event"), "{error}");
}

#[test]
fn devices_of_other_kinds_are_named() {
    let event = |device_type: i64| {
        let mut event = memory(1, 0, 4096);
        event["args"]["Device Type"] = json!(device_type);
        event
    };
    let notes = |events: &Value| {
        let recording = read(events.to_string().as_bytes()).unwrap();
        (recording.histories.len(), crate::notes(&recording))
    };
    for (device_type, words) in [(12, "XPU"), (19, "MTIA"), (20, "PrivateUse1"), (99, "type 99")] {
        let (devices, notes) = notes(&json!([event(device_type)]));
        assert!(devices == 1 && notes.contains("memory of ") && notes.contains(words), "{notes}");
    }
    assert!(!notes(&json!([event(1)])).1.contains("CUDA devices"));
    let (devices, notes) = notes(&json!([event(1), event(12)]));
    assert!(devices == 1 && notes.contains("memory of XPU devices, in addition to CUDA devices (1x)"), "{notes}");
}
