//! See `memviz_fuzz::mutation`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::mutation::{self, Plan};

fuzz_target!(|plan: Plan| mutation::run(&plan));
