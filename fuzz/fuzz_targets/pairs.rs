//! See `memviz_fuzz::pairs`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::pairs::{self, Plan};

fuzz_target!(|plan: Plan| pairs::run(&plan));
