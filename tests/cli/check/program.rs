//! Small recordings with names of the test's choice.

use serde_json::{Value, json};

/// An allocation that stays, in a separate segment.
pub struct Alloc {
    pub file: String,
    pub line: u64,
    pub function: String,
    /// A multiple of 2, 10 at least, so that the block is its segment.
    pub mib: u64,
}

impl Alloc {
    pub fn new(file: &str, line: u64, function: &str, mib: u64) -> Self {
        Self { file: file.to_owned(), line, function: function.to_owned(), mib }
    }
}

/// The pickle of a complete recording of these.
pub fn snapshot(allocs: &[Alloc]) -> Vec<u8> {
    let (trace, segments) = device(0, allocs);
    pickle(&json!({"segments": segments, "device_traces": [trace]}))
}

/// Device 0 is as it should be; on device 1 memory is allocated that is in use.
pub fn two_devices_of_which_one_contradicts_itself() -> Vec<u8> {
    let alloc = || [Alloc::new("train.py", 7, "step", 20)];
    let (first, mut segments) = device(0, &alloc());
    let (mut second, more) = device(1, &alloc());
    segments.extend(more);
    second.extend(second.last().cloned());
    pickle(&json!({"segments": segments, "device_traces": [first, second]}))
}

fn device(number: u64, allocs: &[Alloc]) -> (Vec<Value>, Vec<Value>) {
    let (mut trace, mut segments) = (Vec::new(), Vec::new());
    let mut address = (number + 1) << 40;
    for alloc in allocs {
        let size = alloc.mib << 20;
        let frames = json!([{"filename": alloc.file, "line": alloc.line, "name": alloc.function}]);
        trace.push(entry("segment_alloc", address, size, &frames));
        trace.push(entry("alloc", address, size, &frames));
        segments.push(json!({
            "device": number, "address": address, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
            "is_expandable": false, "frames": frames,
            "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated",
                        "frames": frames}],
        }));
        address += size;
    }
    (trace, segments)
}

fn entry(action: &str, addr: u64, size: u64, frames: &Value) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "frames": frames, "time_us": 1})
}

pub fn pickle(value: &Value) -> Vec<u8> {
    serde_pickle::to_vec(value, serde_pickle::SerOptions::new()).unwrap()
}

/// A recording of two devices with all that a release writes which writes settings: on each, a block of 20 MiB stays, one
/// of 30 MiB is freed, and one of 24 MiB takes its place.
pub fn whole() -> Value {
    let divisions: serde_json::Map<String, Value> = (0..16).map(|power| ((1 << power).to_string(), json!(0))).collect();
    let (mut traces, mut segments) = (Vec::new(), Vec::new());
    for device in 0..2u64 {
        let (first, second) = ((device + 1) << 40, ((device + 1) << 40) + (64 << 20));
        let frames = |line: u64| json!([{"filename": "train.py", "line": line, "name": "step"}]);
        let mut trace = Vec::new();
        let mut enter = |action: &str, addr: u64, mib: u64, line: u64| {
            let (size, time) = (mib << 20, 10 * trace.len() as u64);
            trace.push(json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time,
                              "compile_context": "N/A", "user_metadata": "", "frames": frames(line)}));
        };
        enter("segment_alloc", first, 20, 3);
        enter("alloc", first, 20, 3);
        enter("segment_alloc", second, 32, 5);
        enter("alloc", second, 30, 5);
        enter("free_requested", second, 30, 6);
        enter("free_completed", second, 30, 6);
        enter("alloc", second, 24, 7);
        traces.push(trace);
        let mut segment = |address: u64, blocks: &[(u64, &str, u64)]| {
            let sum = |wanted: &dyn Fn(&str) -> bool| {
                blocks.iter().filter(|block| wanted(block.1)).map(|block| block.0 << 20).sum::<u64>()
            };
            let (total, active) = (sum(&|_| true), sum(&|state| state != "inactive"));
            let mut next = address;
            let blocks: Vec<Value> = blocks
                .iter()
                .map(|&(mib, state, line)| {
                    let block = json!({"address": next, "size": mib << 20, "requested_size": mib << 20, "state": state,
                                       "frames": if state == "inactive" { json!([]) } else { frames(line) }});
                    next += mib << 20;
                    block
                })
                .collect();
            segments.push(json!({
                "device": device, "address": address, "total_size": total, "allocated_size": active,
                "active_size": active, "requested_size": active, "stream": 0, "segment_type": "large",
                "segment_pool_id": [0, 0], "is_expandable": false, "frames": frames(3), "blocks": blocks,
            }));
        };
        segment(first, &[(20, "active_allocated", 3)]);
        segment(second, &[(24, "active_allocated", 7), (8, "inactive", 0)]);
    }
    json!({
        "segments": segments, "device_traces": traces, "external_annotations": [],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": false, "roundup_power2_divisions": divisions,
        },
    })
}

/// A recording of six steps, with everything that a release writes. Each step allocates a temporary block of 30 MiB, in a
/// segment of 40 MiB, and leaves one of 20 MiB behind.
pub fn leaking() -> Value {
    let [spare, first] = [1u64 << 40, 2u64 << 40];
    let frames = |line: u64| json!([{"filename": "train.py", "line": line, "name": "step"}]);
    let (mut trace, mut segments, mut annotations) = (Vec::new(), Vec::new(), Vec::new());
    let mut enter = |action: &str, addr: u64, mib: u64, line: u64| {
        let time = 10 * trace.len() as u64;
        trace.push(json!({"action": action, "addr": addr, "size": mib << 20, "stream": 0, "time_us": time,
                          "compile_context": "N/A", "user_metadata": "", "frames": frames(line)}));
        time
    };
    let mut segment = |address: u64, mib: u64, held: u64, line: u64| {
        let (size, state) = (mib << 20, if held > 0 { "active_allocated" } else { "inactive" });
        segments.push(json!({
            "device": 0, "address": address, "total_size": size, "allocated_size": held << 20, "active_size": held << 20,
            "requested_size": held << 20, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
            "is_expandable": false, "frames": frames(line),
            "blocks": [{"address": address, "size": size, "requested_size": held << 20, "state": state,
                        "frames": if held > 0 { frames(line) } else { json!([]) }}],
        }));
    };
    enter("segment_alloc", spare, 40, 3);
    segment(spare, 40, 0, 3);
    for step in 0..6u64 {
        let kept = first + (step << 30);
        let start = enter("alloc", spare, 30, 5);
        enter("segment_alloc", kept, 20, 7);
        enter("alloc", kept, 20, 7);
        enter("free_requested", spare, 30, 8);
        let end = enter("free_completed", spare, 30, 8) + 5;
        segment(kept, 20, 20, 7);
        for (stage, time) in [("START", start), ("END", end)] {
            annotations
                .push(json!({"stage": stage, "name": format!("ProfilerStep#{step}"), "device": 0, "time_us": time}));
        }
    }
    let settings = whole()["allocator_settings"].clone();
    json!({"segments": segments, "device_traces": [trace], "external_annotations": annotations,
           "allocator_settings": settings})
}
