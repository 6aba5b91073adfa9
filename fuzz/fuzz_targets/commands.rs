//! See `memviz_fuzz::commands`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::commands::{self, Plan};

fuzz_target!(|plan: Plan| commands::run(&plan));
