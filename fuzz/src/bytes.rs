//! Files of any bytes, by what their beginning says that they are.

use super::{open_and_answer, read_and_replay, read_baseline, read_lines};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Any bytes at all, read as a snapshot and replayed.
pub fn pickle(bytes: &[u8]) {
    read_and_replay(bytes.to_vec(), false);
    read_and_replay(bytes.to_vec(), true);
}

/// Any bytes at all behind the beginning of a trace, and every question asked about it.
pub fn json(bytes: &[u8]) {
    for begin in ["", "{\"traceEvents\":[", "[["] {
        open_and_answer(&[begin.as_bytes(), bytes].concat());
    }
}

/// Any bytes at all behind the beginning of a page.
pub fn html(bytes: &[u8]) {
    for begin in ["<!DOCTYPE html>", "<html><body><script>", "<"] {
        open_and_answer(&[begin.as_bytes(), bytes].concat());
    }
}

/// Any bytes at all behind the beginning of a profile of JAX.
pub fn pprof(bytes: &[u8]) {
    // The types of the values come first: "allocations" in "count", "space" in "bytes".
    open_and_answer(&[b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04", bytes].concat());
    open_and_answer(&[b"\x0a\x04", bytes].concat());
}

/// Any bytes at all as a compressed file: behind the mark of each format, and as the contents of one that is whole.
///
/// # Panics
/// Never: there is room to compress into.
pub fn compression(bytes: &[u8]) {
    let marks: [&[u8]; 4] = [&[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18], b"PK\x03\x04"];
    for mark in marks {
        open_and_answer(&[mark, bytes].concat());
    }
    let mut whole = GzEncoder::new(Vec::new(), Compression::fast());
    whole.write_all(bytes).expect("there is room");
    open_and_answer(&whole.finish().expect("there is room"));
}

/// Any bytes at all as lines of `ranks`, and as answers that are baselines of `check`.
pub fn summaries(bytes: &[u8]) {
    read_lines(bytes);
    read_lines(&[b"{\"schema_version\":1,\"command\":\"ranks\",\"line\":\"rank\",", bytes].concat());
    if let Ok(text) = std::str::from_utf8(bytes) {
        read_baseline(text);
        read_baseline(&format!("{{\"schema_version\":1,\"command\":\"check\",{text}"));
    }
}
