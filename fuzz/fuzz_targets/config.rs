//! See `memviz_fuzz::texts::config`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| memviz_fuzz::texts::config(text));
