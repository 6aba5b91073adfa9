//! See `memviz_fuzz::cuts`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::cuts::{self, Plan};

fuzz_target!(|plan: Plan| cuts::run(&plan));
