//! The scratch memory of cuBLAS and cuBLASLt.
//!
//! PyTorch gives each of their handles, one for each thread and stream, a block when it is first used, and never takes it
//! back. `CUBLAS_WORKSPACE_CONFIG` and `CUBLASLT_WORKSPACE_SIZE` change the sizes; such workspaces are not recognised
//! without C++ frames.

/// `:4096:2:16:8`, in KiB: that of cuBLAS below compute capability 9.0. Nothing else is likely to have this size.
const DISTINCT: u64 = (4096 * 2 + 16 * 8) * 1024;
/// From compute capability 9.0 on.
const LARGE: u64 = 32 << 20;
/// That of cuBLASLt below.
const SMALL: u64 = 1 << 20;

/// Whether a workspace may have this size.
pub(super) fn is_size(requested: u64) -> bool {
    [DISTINCT, LARGE, SMALL].contains(&requested)
}

/// Whether the workspace of cuBLAS, which every backward pass has, may have this size.
pub(super) fn is_cublas_size(requested: u64) -> bool {
    [DISTINCT, LARGE].contains(&requested)
}

/// Whether a workspace may have this size, and hardly anything else.
pub(super) fn is_distinct_size(requested: u64) -> bool {
    requested == DISTINCT
}
