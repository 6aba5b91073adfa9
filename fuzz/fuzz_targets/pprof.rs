//! Any bytes at all behind the beginning of a profile of JAX, and every question asked about it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The types of the values come first: "allocations" in "count", "space" in "bytes".
    memviz_fuzz::open_and_answer([b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04", bytes].concat());
    memviz_fuzz::open_and_answer([b"\x0a\x04", bytes].concat());
});
