//! Any bytes at all behind the beginning of a page.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for begin in ["<!DOCTYPE html>", "<html><body><script>", "<"] {
        memviz_fuzz::open_and_answer([begin.as_bytes(), bytes].concat());
    }
});
