//! Device attributes, which CUDA returns by number.

use crate::config::Config;

/// An attribute of the runtime (`cudaDeviceAttr`) or of the driver (`CUdevice_attribute`): those below 102 are the same in both.
pub fn attribute(config: &Config, number: i32) -> i32 {
    match number {
        // Threads per block, in total and along x and y; shared memory per block that CUDA itself uses.
        1..=3 | 111 => 1024,
        // Threads per block along z.
        4 => 64,
        // Blocks per grid along x; maximum pitch of a copy.
        5 | 11 => i32::MAX,
        // Blocks per grid along y and z.
        6 | 7 => 65535,
        // Default shared memory per block.
        8 => 48 << 10,
        // Constant memory; registers per block and per multiprocessor.
        9 | 12 | 82 => 65536,
        // Threads per warp.
        10 => 32,
        // Clock rate in kHz: timing is not rehearsed.
        13 => 1_500_000,
        16 => config.multiprocessors,
        37 => config.bus,
        38 => config.cache,
        39 => config.threads_per_multiprocessor,
        // Mapped host memory, concurrent kernels, unified addresses, stream priorities, cooperative launches, and
        // memory pools.
        19 | 31 | 41 | 78 | 95 | 115 => 1,
        75 => config.capability / 10,
        76 => config.capability % 10,
        81 => config.shared_per_multiprocessor,
        97 => config.shared_per_block,
        106 => config.blocks_per_multiprocessor,
        _ => 0,
    }
}

/// Attributes that only the driver has.
pub fn driver_attribute(config: &Config, number: i32) -> i32 {
    match number {
        // Virtual memory management (expandable segments), with file descriptors as handles.
        102 | 103 => 1,
        _ => attribute(config, number),
    }
}
