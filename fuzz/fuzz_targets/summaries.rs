//! Any text at all as what memviz wrote earlier: lines of `memviz ranks`, and answers that are baselines of `check`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    memviz_fuzz::read_lines(bytes);
    memviz_fuzz::read_lines(&[b"{\"schema_version\":1,\"command\":\"ranks\",\"line\":\"rank\",", bytes].concat());
    if let Ok(text) = std::str::from_utf8(bytes) {
        memviz_fuzz::read_baseline(text);
        memviz_fuzz::read_baseline(&format!("{{\"schema_version\":1,\"command\":\"check\",{text}"));
    }
});
