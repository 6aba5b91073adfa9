//! See `memviz_fuzz::texts::changes`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| memviz_fuzz::texts::changes(text));
