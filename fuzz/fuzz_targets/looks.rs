//! See `memviz_fuzz::looks`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::looks::{self, Plan};

fuzz_target!(|plan: Plan| looks::run(&plan));
