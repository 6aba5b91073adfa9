//! Recordings that each grow in one way, in which careless code would take quadratic time.

use serde_json::{Value, json};
use std::io::Write;

/// The first address.
const START: u64 = 1 << 40;
const SEGMENT: u64 = 2 << 20;

/// A family: its name, and the member of a size.
pub type Family = (&'static str, fn(u64) -> Vec<u8>);

/// All of them, with what increases.
pub const FAMILIES: [Family; 14] = [
    ("streams", |size| apart(size, |number| (number, json!([0, 0])))),
    ("private pools", |size| apart(size, |number| (0, json!([0, number])))),
    ("segments", |size| apart(size, |_| (0, json!([0, 0])))),
    ("frames of one stack", |size| {
        pickle(&live(&[(0..size).map(|line| frame(&format!("/home/u/f{line}.py"), line % 1000)).collect()]), &[])
    }),
    ("modules in one another", |size| {
        let module =
            json!({"filename": "/usr/lib/site-packages/torch/nn/modules/module.py", "line": 7, "name": "_call_impl"});
        let frames = (0..size).flat_map(|number| [frame(&format!("/home/u/f{number}.py"), 3), module.clone()]);
        pickle(&live(&[frames.collect()]), &[])
    }),
    ("modules of one file", |size| {
        let module =
            json!({"filename": "/usr/lib/site-packages/torch/nn/modules/module.py", "line": 7, "name": "_call_impl"});
        let stack = |number: u64| {
            let named = json!({"filename": "/home/u/m.py", "line": 3 * number, "name": format!("forward{number}")});
            vec![named, module.clone(), frame("/home/u/train.py", 9)]
        };
        pickle(&live(&(0..size).map(stack).collect::<Vec<_>>()), &[])
    }),
    ("steps", |size| {
        let mut trace = live(&vec![vec![frame("/home/u/m.py", 3)]; 4]);
        let mut ends = Vec::new();
        for step in 0..size {
            ends.push(
                json!({"stage": "START", "name": format!("ProfilerStep#{step}"), "device": 0, "time_us": trace.len()}),
            );
            for action in ["alloc", "free_requested", "free_completed"] {
                let addr = START + (1 << 20);
                trace.push(entry(action, addr, 1024, 0, &[frame("/home/u/m.py", 5)], trace.len() as u64));
            }
            let (addr, time) = (START + (2 << 20) + 512 * step, trace.len() as u64);
            trace.push(entry("alloc", addr, 512, 0, &[frame("/home/u/keep.py", 9)], time));
            ends.push(json!({"stage": "END", "name": format!("ProfilerStep#{step}"), "device": 0, "time_us": time}));
        }
        pickle(&trace, &ends)
    }),
    ("stacks", |size| pickle(&live(&(0..size).map(|line| vec![frame("/home/u/m.py", line)]).collect::<Vec<_>>()), &[])),
    ("devices' entries", |size| {
        let mut trace = live(&[vec![frame("/home/u/m.py", 3)]]);
        for _ in 0..size {
            for action in ["alloc", "free_requested", "free_completed"] {
                let entry = entry(action, START + 512, 512, 0, &[frame("/home/u/m.py", 5)], trace.len() as u64);
                trace.push(entry);
            }
        }
        pickle(&trace, &[])
    }),
    ("pending frees", |size| {
        let mut trace = live(&vec![vec![frame("/home/u/m.py", 3)]; size as usize]);
        for action in ["free_requested", "free_completed"] {
            for block in 0..size {
                trace.push(entry(action, START + 512 * block, 512, 0, &[], trace.len() as u64));
            }
        }
        pickle(&trace, &[])
    }),
    ("ranges that are unmapped and not there", |size| {
        let mut trace: Vec<Value> =
            (0..size).map(|number| entry("segment_map", START + number * SEGMENT, SEGMENT, 0, &[], number)).collect();
        for _ in 0..size {
            trace.push(entry("segment_unmap", START, (size + 1) * SEGMENT, 0, &[], trace.len() as u64));
        }
        pickle(&trace, &[])
    }),
    ("failed requests", |size| {
        let mut trace = live(&[vec![frame("/home/u/m.py", 3)]]);
        for _ in 0..size {
            trace.push(json!({"action": "oom", "device_free": 5 << 20, "size": 1u64 << 30, "stream": 0,
                              "time_us": trace.len(), "frames": [frame("/home/u/m.py", 7)]}));
        }
        pickle(&trace, &[])
    }),
    ("annotations one after the other", |size| {
        let end = |stage: &str, time: u64| json!({"stage": stage, "name": "step", "device": 0, "time_us": time});
        let ends: Vec<Value> = (0..size).flat_map(|at| [end("START", 4 * at), end("END", 4 * at + 3)]).collect();
        pickle(&live(&vec![vec![frame("/home/u/m.py", 3)]; 4]), &ends)
    }),
    ("annotations in one another", |size| {
        let end = |stage: &str, time: u64| json!({"stage": stage, "name": "part", "device": 0, "time_us": time});
        let starts = (0..size).map(|at| end("START", at));
        let ends = (0..size).map(|at| end("END", 2 * size + at));
        pickle(&live(&vec![vec![frame("/home/u/m.py", 3)]; 4]), &starts.chain(ends).collect::<Vec<_>>())
    }),
];

pub fn frame(file: &str, line: u64) -> Value {
    json!({"filename": file, "line": line, "name": "forward"})
}

pub fn entry(action: &str, addr: u64, size: u64, stream: u64, frames: &[Value], time: u64) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time, "frames": frames})
}

/// The entries of a live block of 512 bytes for each of these stacks.
pub fn live(stacks: &[Vec<Value>]) -> Vec<Value> {
    let mut trace = Vec::new();
    for (addr, frames) in (START..).step_by(512).zip(stacks) {
        if (addr - START).is_multiple_of(SEGMENT) {
            trace.push(entry("segment_alloc", addr, SEGMENT, 0, &[], trace.len() as u64));
        }
        trace.push(entry("alloc", addr, 512, 0, frames, trace.len() as u64));
    }
    trace
}

/// Blocks in separate segments, each on the stream and in the pool with its number.
fn apart(size: u64, of: impl Fn(u64) -> (u64, Value)) -> Vec<u8> {
    let (mut trace, mut segments) = (Vec::new(), Vec::new());
    for number in 0..size {
        let (stream, pool) = of(number);
        let addr = START + number * SEGMENT;
        let frames = [frame("/home/u/m.py", 3)];
        for (action, bytes) in [("segment_alloc", SEGMENT), ("alloc", 512)] {
            let mut made = entry(action, addr, bytes, stream, &frames, trace.len() as u64);
            made["pool_id"] = pool.clone();
            trace.push(made);
        }
        segments.push(json!({
            "device": 0, "address": addr, "total_size": SEGMENT, "allocated_size": 512, "active_size": 512,
            "requested_size": 512, "stream": stream, "segment_type": "small", "segment_pool_id": pool,
            "is_expandable": false, "frames": frames, "blocks": [
                {"address": addr, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames},
                {"address": addr + 512, "size": SEGMENT - 512, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        }));
    }
    serialized(&json!({"segments": segments, "device_traces": [trace], "external_annotations": []}))
}

pub fn pickle(trace: &[Value], annotations: &[Value]) -> Vec<u8> {
    serialized(&json!({"segments": [], "device_traces": [trace], "external_annotations": annotations}))
}

pub fn serialized(snapshot: &Value) -> Vec<u8> {
    serde_pickle::to_vec(snapshot, serde_pickle::SerOptions::new()).unwrap()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
