//! NCCL: every collective completes immediately and transfers nothing. Device memory of NCCL itself is not rehearsed.

use crate::exports::{drop_handle, new_handle, put};
use crate::state::status;
use std::ffi::{c_char, c_void};

/// A communicator.
pub struct Communicator {
    size: i32,
    rank: i32,
}

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

unsafe fn create(to: *mut *mut Communicator, size: i32, rank: i32) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, new_handle(Communicator { size, rank })) };
    status::SUCCESS
}

exports! {
    fn ncclGetVersion(to: *mut i32) -> i32 {
        put(to, 22_000);
        status::SUCCESS
    }
    fn ncclGetUniqueId(to: *mut UniqueId) -> i32 {
        put(to, UniqueId([1; 128]));
        status::SUCCESS
    }
    fn ncclGetErrorString(_error: i32) -> *const c_char {
        c"not supported by memviz's rehearsal".as_ptr()
    }
    fn ncclGetLastError(_communicator: *mut Communicator) -> *const c_char {
        c"not supported by memviz's rehearsal".as_ptr()
    }
    fn ncclCommInitRank(to: *mut *mut Communicator, size: i32, _id: UniqueId, rank: i32) -> i32 {
        create(to, size, rank)
    }
    fn ncclCommInitRankConfig(
        to: *mut *mut Communicator, size: i32, _id: UniqueId, rank: i32, _config: *mut c_void,
    ) -> i32 {
        create(to, size, rank)
    }
    fn ncclCommInitRankScalable(
        to: *mut *mut Communicator, size: i32, rank: i32, _count: i32, _ids: *mut UniqueId, _config: *mut c_void,
    ) -> i32 {
        create(to, size, rank)
    }
    fn ncclCommDestroy(communicator: *mut Communicator) -> i32 {
        drop_handle(communicator);
        status::SUCCESS
    }
    fn ncclCommAbort(communicator: *mut Communicator) -> i32 {
        drop_handle(communicator);
        status::SUCCESS
    }
    fn ncclCommCount(communicator: *const Communicator, to: *mut i32) -> i32 {
        put(to, communicator.as_ref().map_or(0, |communicator| communicator.size));
        status::SUCCESS
    }
    fn ncclCommUserRank(communicator: *const Communicator, to: *mut i32) -> i32 {
        put(to, communicator.as_ref().map_or(0, |communicator| communicator.rank));
        status::SUCCESS
    }
    fn ncclCommGetAsyncError(_communicator: *mut Communicator, to: *mut i32) -> i32 {
        put(to, 0);
        status::SUCCESS
    }
    fn ncclCommRegister(_communicator: *mut Communicator, _at: *mut c_void, _size: usize, to: *mut *mut c_void) -> i32 {
        put(to, crate::kernels::any());
        status::SUCCESS
    }
}
