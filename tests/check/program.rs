//! Small recordings with names of the test's choice.

use serde_json::{Value, json};

/// An allocation that stays, in a segment of its own.
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

fn pickle(value: &Value) -> Vec<u8> {
    serde_pickle::to_vec(value, serde_pickle::SerOptions::new()).unwrap()
}
