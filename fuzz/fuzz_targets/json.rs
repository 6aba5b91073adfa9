//! Any bytes at all behind the beginning of JSON, as a profiler trace or memory timeline, and every question asked about it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for begin in ["", "{\"traceEvents\":[", "[["] {
        memviz_fuzz::open_and_answer([begin.as_bytes(), bytes].concat());
    }
});
