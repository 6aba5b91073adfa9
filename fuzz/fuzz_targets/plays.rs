//! See `memviz_fuzz::plays`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz_fuzz::plays::{self, Plan};

fuzz_target!(|plan: Plan| plays::run(&plan));
