//! cuBLAS and cuBLASLt. PyTorch allocates their workspaces itself, with sizes that depend on the compute capability.

use crate::exports::{drop_handle, new_handle, put};
use crate::runtime::version;
use crate::state::status;
use std::ffi::c_void;

/// What a handle or a descriptor points to.
type Opaque = [u64; 32];

/// Size of `cublasLtMatmulHeuristicResult_t` in bytes: the algorithm, its workspace, its status, and reserved fields.
const HEURISTIC: usize = 96;

/// The version in cuBLAS's encoding: 12.4 is 120400.
fn library_version() -> i32 {
    version() / 1000 * 10_000 + version() % 1000 / 10 * 100
}

unsafe fn create(to: *mut *mut Opaque) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, new_handle([0; 32])) };
    status::SUCCESS
}

unsafe fn destroy(handle: *mut Opaque) -> i32 {
    // SAFETY: from `create`, as the caller promises.
    unsafe { drop_handle(handle) };
    status::SUCCESS
}

exports! {
    fn cublasCreate_v2(to: *mut *mut Opaque) -> i32 {
        create(to)
    }
    fn cublasDestroy_v2(handle: *mut Opaque) -> i32 {
        destroy(handle)
    }
    fn cublasGetVersion_v2(_handle: *mut Opaque, to: *mut i32) -> i32 {
        put(to, library_version());
        status::SUCCESS
    }
    fn cublasGetMathMode(_handle: *mut Opaque, to: *mut i32) -> i32 {
        put(to, 0);
        status::SUCCESS
    }
    fn cublasGetPointerMode_v2(_handle: *mut Opaque, to: *mut i32) -> i32 {
        put(to, 0);
        status::SUCCESS
    }
    fn cublasLtGetVersion() -> usize {
        library_version() as usize
    }
    fn cublasLtCreate(to: *mut *mut Opaque) -> i32 {
        create(to)
    }
    fn cublasLtDestroy(handle: *mut Opaque) -> i32 {
        destroy(handle)
    }
    fn cublasLtMatmulDescCreate(to: *mut *mut Opaque, _compute: i32, _scale: i32) -> i32 {
        create(to)
    }
    fn cublasLtMatmulDescDestroy(handle: *mut Opaque) -> i32 {
        destroy(handle)
    }
    fn cublasLtMatrixLayoutCreate(to: *mut *mut Opaque, _kind: i32, _rows: u64, _columns: u64, _stride: i64) -> i32 {
        create(to)
    }
    fn cublasLtMatrixLayoutDestroy(handle: *mut Opaque) -> i32 {
        destroy(handle)
    }
    fn cublasLtMatmulPreferenceCreate(to: *mut *mut Opaque) -> i32 {
        create(to)
    }
    fn cublasLtMatmulPreferenceDestroy(handle: *mut Opaque) -> i32 {
        destroy(handle)
    }
    // Returns one algorithm, which works and needs no workspace: PyTorch has already allocated one in any case.
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: *mut Opaque, _operation: *mut Opaque, _a: *mut Opaque, _b: *mut Opaque, _c: *mut Opaque, _d: *mut Opaque,
        _preference: *mut Opaque, wanted: i32, results: *mut c_void, found: *mut i32,
    ) -> i32 {
        if wanted > 0 {
            results.cast::<u8>().write_bytes(0, HEURISTIC);
        }
        put(found, i32::from(wanted > 0));
        status::SUCCESS
    }
    fn cublasLtMatmulAlgoCheck(
        _handle: *mut Opaque, _operation: *mut Opaque, _a: *mut Opaque, _b: *mut Opaque, _c: *mut Opaque, _d: *mut Opaque,
        _algorithm: *const c_void, result: *mut c_void,
    ) -> i32 {
        result.cast::<u8>().write_bytes(0, HEURISTIC);
        status::SUCCESS
    }
}
