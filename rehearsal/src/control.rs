//! Functions that Python calls in this library itself.

use crate::cudnn;
use crate::exports::put;
use crate::reads::{self, Listener};
use crate::stubs;
use std::ffi::c_char;

exports! {
    /// Sets the function to call for each value read from a device, with its bytes and its purpose. Null removes it.
    fn memviz_rehearsal_on_read(listener: Option<Listener>) {
        reads::listen(listener);
    }
    /// Sets the next size that this thread reads from a device.
    fn memviz_rehearsal_assume(size: u64) {
        reads::assume(size);
    }
    /// Returns the number of values read from a device.
    fn memviz_rehearsal_reads() -> u64 {
        reads::count()
    }
    /// Writes what `cudnn::counts` returns.
    fn memviz_rehearsal_cudnn(to: *mut [u64; 5]) {
        put(to, cudnn::counts());
    }
    /// Writes the names of functions that failed because they cannot be rehearsed, one per line, up to the size of the
    /// buffer. Returns the total number of bytes.
    fn memviz_rehearsal_refused(to: *mut c_char, room: usize) -> usize {
        let names = stubs::all_refused();
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(names.as_ptr().cast(), to, names.len().min(room));
        }
        names.len()
    }
}
