//! A profile for the Firefox Profiler: every allocation and free with its address, so that the profiler can show the
//! retained memory of any range, and a memory track for each device.
//!
//! The format is documented in `docs-developer` in the profiler's repository; this version is upgraded by each later
//! profiler. A device is a thread in a separate process.

use crate::analysis::export::{DeviceLives, LivesReport};
use crate::report::Source;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::source::file_names;
use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Versions of the format: the version that Firefox records, and the version that the profiler processes.
const RECORDED: u32 = 24;
const PROCESSED: u32 = 49;
const CATEGORY: &str = "Memory";

/// Rows of stacks, frames and functions of one thread.
#[derive(Default)]
struct Tables {
    strings: IndexSet<String, RandomState>,
    /// Name and file of each function, and its line in each frame.
    functions: IndexSet<(u32, Option<u32>), RandomState>,
    frames: IndexSet<(u32, Option<u64>), RandomState>,
    stacks: IndexSet<(Option<u32>, u32), RandomState>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocations {
    time: Vec<f64>,
    weight: Vec<i64>,
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    memory_address: Vec<u64>,
    thread_id: Vec<i32>,
    length: usize,
}

#[derive(Default, Serialize)]
struct Changes {
    time: Vec<f64>,
    count: Vec<i64>,
    length: usize,
}

pub fn write(source: Source<'_>, report: &LivesReport, out: &mut dyn Write) -> io::Result<()> {
    let first = report.devices.iter().filter_map(|device| device.events.first()).map(|life| life.time_us).min();
    let first = first.unwrap_or(0);
    let threads: Vec<Value> = report.devices.iter().map(|device| thread(device, first)).collect();
    let counters: Vec<Value> =
        report.devices.iter().enumerate().map(|(index, device)| counter(device, index, first)).collect();
    let file = file_names(&[source.path]).first().copied().unwrap_or_default();
    let start = if report.has_times { first as f64 / 1000.0 } else { 0.0 };
    let profile = json!({
        "meta": {
            "version": RECORDED,
            "preprocessedProfileVersion": PROCESSED,
            "product": format!("memviz {}", safe(file)),
            "importedFrom": "memviz",
            "startTime": start,
            "interval": 1,
            "processType": 0,
            "stackwalk": 0,
            "debug": false,
            "symbolicated": true,
            "pausedRanges": [],
            "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
            "categories": [{"name": CATEGORY, "color": "blue", "subcategories": ["Other"]}],
            "markerSchema": [],
            "usesOnlyOneStackType": true,
            "doesNotUseFrameImplementation": true,
            "sourceCodeIsNotOnSearchfox": true,
        },
        "libs": [],
        "pages": [],
        "profilerOverhead": [],
        "counters": counters,
        "threads": threads,
    });
    serde_json::to_writer(&mut *out, &profile)?;
    writeln!(out)
}

/// Milliseconds since the first event.
fn milliseconds(time_us: i64, first: i64) -> f64 {
    (i128::from(time_us) - i128::from(first)) as f64 / 1000.0
}

fn process(device: &DeviceLives) -> String {
    (i64::from(device.device) + 100).to_string()
}

fn counter(device: &DeviceLives, index: usize, first: i64) -> Value {
    // The profiler ignores the first value, since it does not know when its count started.
    let start = device.events.first().map_or(0, |life| life.time_us);
    let mut changes = Changes { time: vec![milliseconds(start, first)], count: vec![0], length: 0 };
    for life in &device.events {
        changes.time.push(milliseconds(life.time_us, first));
        changes.count.push(life.bytes);
    }
    changes.length = changes.time.len();
    json!({
        "name": "allocated",
        "category": CATEGORY,
        "description": "Bytes that PyTorch's allocator has handed out",
        "pid": process(device),
        "mainThreadIndex": index,
        "samples": changes,
    })
}

fn thread(device: &DeviceLives, first: i64) -> Value {
    let mut tables = Tables::default();
    let stacks: Vec<Option<u32>> = device.stacks.iter().map(|stack| tables.stack(device, stack)).collect();
    let mut allocations = Allocations { weight_type: "bytes", ..Allocations::default() };
    let mut samples: IndexMap<&str, Value> = IndexMap::new();
    for life in &device.events {
        allocations.time.push(milliseconds(life.time_us, first));
        allocations.weight.push(life.bytes);
        allocations.stack.push(life.stack.and_then(|stack| stacks.get(stack as usize).copied().flatten()));
        allocations.memory_address.push(life.address);
        allocations.thread_id.push(device.device);
    }
    allocations.length = allocations.time.len();
    // The profiler draws a thread from its samples: one for each event.
    samples.insert("stack", json!(allocations.stack));
    samples.insert("time", json!(allocations.time));
    samples.insert("weight", Value::Null);
    samples.insert("weightType", json!("samples"));
    samples.insert("length", json!(allocations.length));
    let name = device_name(device.device);
    json!({
        "name": name,
        "processName": name,
        "isMainThread": true,
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "pid": process(device),
        "tid": device.device,
        "samples": samples,
        "nativeAllocations": allocations,
        "markers": {"length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": []},
        "stackTable": tables.stack_table(),
        "frameTable": tables.frame_table(),
        "funcTable": tables.function_table(),
        "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "stringArray": tables.strings,
    })
}

impl Tables {
    fn string(&mut self, text: &str) -> u32 {
        self.strings.insert_full(safe(text)).0 as u32
    }

    /// The number of a stack, whose places are innermost first; `None` without places.
    fn stack(&mut self, device: &DeviceLives, places: &[u32]) -> Option<u32> {
        let mut outer = None;
        for place in places.iter().rev().filter_map(|&place| device.places.get(place as usize)) {
            let name = self.string(&place.function);
            let file = (!place.file.is_empty()).then(|| self.string(&place.file));
            let function = self.functions.insert_full((name, file)).0 as u32;
            let frame = self.frames.insert_full((function, place.line)).0 as u32;
            outer = Some(self.stacks.insert_full((outer, frame)).0 as u32);
        }
        outer
    }

    fn stack_table(&self) -> Value {
        let length = self.stacks.len();
        json!({
            "length": length,
            "prefix": self.stacks.iter().map(|(outer, _)| *outer).collect::<Vec<_>>(),
            "frame": self.stacks.iter().map(|(_, frame)| *frame).collect::<Vec<_>>(),
            "category": vec![0; length],
            "subcategory": vec![0; length],
        })
    }

    fn frame_table(&self) -> Value {
        let length = self.frames.len();
        let nothing = vec![Value::Null; length];
        json!({
            "length": length,
            "address": vec![-1; length],
            "inlineDepth": vec![0; length],
            "category": vec![0; length],
            "subcategory": vec![0; length],
            "func": self.frames.iter().map(|(function, _)| *function).collect::<Vec<_>>(),
            "line": self.frames.iter().map(|(_, line)| *line).collect::<Vec<_>>(),
            "nativeSymbol": nothing,
            "innerWindowID": nothing,
            "implementation": nothing,
            "column": nothing,
        })
    }

    fn function_table(&self) -> Value {
        let length = self.functions.len();
        let nothing = vec![Value::Null; length];
        json!({
            "length": length,
            "name": self.functions.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            "fileName": self.functions.iter().map(|(_, file)| *file).collect::<Vec<_>>(),
            "isJS": vec![false; length],
            "relevantForJS": vec![false; length],
            "resource": vec![-1; length],
            "lineNumber": nothing,
            "columnNumber": nothing,
        })
    }
}
