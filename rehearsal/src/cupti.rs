//! CUPTI, for PyTorch's profiler: the profiler runs, but receives no kernel records.

use crate::exports::put;
use crate::kernels::any;
use crate::state::status;
use std::ffi::{c_char, c_void};

/// No more records.
const LIMIT_REACHED: i32 = 12;

exports! {
    fn cuptiGetResultString(_result: i32, text: *mut *const c_char) -> i32 {
        put(text, c"not supported by memviz's rehearsal".as_ptr());
        status::SUCCESS
    }
    fn cuptiGetCallbackName(_domain: i32, _number: u32, text: *mut *const c_char) -> i32 {
        put(text, c"".as_ptr());
        status::SUCCESS
    }
    fn cuptiGetVersion(to: *mut u32) -> i32 {
        put(to, 26);
        status::SUCCESS
    }
    fn cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: u32, count: *mut usize) -> i32 {
        put(count, 0);
        status::SUCCESS
    }
    fn cuptiActivityGetNextRecord(_buffer: *mut u8, _size: usize, record: *mut *mut c_void) -> i32 {
        put(record, std::ptr::null_mut());
        LIMIT_REACHED
    }
    fn cuptiActivityPopExternalCorrelationId(_kind: i32, number: *mut u64) -> i32 {
        put(number, 0);
        status::SUCCESS
    }
    fn cuptiSubscribe(subscriber: *mut *mut c_void, _callback: *mut c_void, _data: *mut c_void) -> i32 {
        put(subscriber, any());
        status::SUCCESS
    }
}
