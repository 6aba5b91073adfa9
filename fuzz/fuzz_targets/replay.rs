//! See `memviz_fuzz::entries`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::entries::{self, Plan};

fuzz_target!(|plan: Plan| entries::run(&plan));
