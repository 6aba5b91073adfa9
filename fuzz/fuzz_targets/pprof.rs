//! See `memviz_fuzz::bytes::pprof`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memviz_fuzz::bytes::pprof(bytes));
