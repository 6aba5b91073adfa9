//! Any bytes at all, as a file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    memviz_fuzz::read_and_replay(bytes.to_vec(), false);
    memviz_fuzz::read_and_replay(bytes.to_vec(), true);
});
