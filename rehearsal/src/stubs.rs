//! Functions that are not written here, from the list of all that PyTorch imports.
//!
//! What only does something (a kernel, a matrix product, a setting) has nothing to do, and succeeds. What is asked for an
//! answer fails, with its name: an answer made up could change what the program allocates.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

static REFUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says, the first time, that a function is not rehearsed.
pub fn refused(name: &CStr) {
    let name = name.to_string_lossy().into_owned();
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if !refused.contains(&name) {
        eprintln!("memviz: rehearsal: {name} is not rehearsed, so it fails");
        refused.insert(name);
    }
}

/// Names of functions that failed because they are not rehearsed, a line each.
pub fn all_refused() -> String {
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    refused.iter().flat_map(|name| [name, "\n"]).collect()
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
