//! See `memviz_fuzz::texts::settings`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| memviz_fuzz::texts::settings(text));
