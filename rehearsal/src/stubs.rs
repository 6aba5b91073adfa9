//! Stubs for all functions that PyTorch imports and that are not implemented here.
//!
//! A function that only performs an action (a kernel, a matrix product, a setting) does nothing and succeeds. A
//! function that returns information fails and reports its name: an invented result could change what the program
//! allocates.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

static REFUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reports, the first time, that a function cannot be rehearsed.
pub fn refused(name: &CStr) {
    let name = name.to_string_lossy().into_owned();
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if !refused.contains(&name) {
        eprintln!("memviz: rehearsal: {name} is not rehearsed, so it fails");
        refused.insert(name);
    }
}

/// Names of functions that failed because they cannot be rehearsed, one per line.
pub fn all_refused() -> String {
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    refused.iter().flat_map(|name| [name, "\n"]).collect()
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
