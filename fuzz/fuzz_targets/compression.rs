//! Any bytes at all as a compressed file: behind the mark of each format, and as the contents of one that is whole.

#![no_main]

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    let marks: [&[u8]; 3] = [&[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd], b"PK\x03\x04"];
    for mark in marks {
        memviz_fuzz::open_and_answer([mark, bytes].concat());
    }
    let mut whole = GzEncoder::new(Vec::new(), Compression::fast());
    whole.write_all(bytes).expect("there is room");
    memviz_fuzz::open_and_answer(whole.finish().expect("there is room"));
});
