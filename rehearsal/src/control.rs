//! What Python asks of the library itself.

use crate::cudnn;
use crate::reads::{self, Listener};
use crate::stubs;
use std::ffi::c_char;

exports! {
    /// Has a function told of each value that is read from a device: its bytes, and what for. Null is nobody.
    fn memviz_rehearsal_on_read(listener: Option<Listener>) {
        reads::listen(listener);
    }
    /// Has the next size that this thread reads from a device be this one.
    fn memviz_rehearsal_assume(size: u64) {
        reads::assume(size);
    }
    /// How many values were read from a device.
    fn memviz_rehearsal_reads() -> u64 {
        reads::count()
    }
    /// How many operations of cuDNN were done, whose workspaces are not known.
    fn memviz_rehearsal_cudnn() -> u64 {
        cudnn::count()
    }
    /// Writes the names of functions that failed because they are not rehearsed, a line each, as far as there is room; gives how
    /// many bytes there are.
    fn memviz_rehearsal_refused(to: *mut c_char, room: usize) -> usize {
        let names = stubs::all_refused();
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(names.as_ptr().cast(), to, names.len().min(room));
        }
        names.len()
    }
}
