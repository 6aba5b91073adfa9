//! The scratch memory of cuBLAS.

/// Sizes of the workspace that PyTorch gives cuBLAS, one for each thread and stream, unless `CUBLAS_WORKSPACE_CONFIG`
/// says otherwise: `:4096:2:16:8` (in KiB), and 32 MiB from compute capability 9.0 on.
const SIZES: [u64; 2] = [(4096 * 2 + 16 * 8) * 1024, 32 * 1024 * 1024];

/// Whether an allocation of this size may be a workspace.
pub(super) fn is_size(requested: u64) -> bool {
    SIZES.contains(&requested)
}
