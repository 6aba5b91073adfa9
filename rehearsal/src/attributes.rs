//! What CUDA answers when it is asked for one property of a device by its number.

use crate::config::Config;

/// An attribute of the runtime (`cudaDeviceAttr`) or of the driver (`CUdevice_attribute`): those below 102 are the same in both.
pub fn attribute(config: &Config, number: i32) -> i32 {
    match number {
        // Threads of a block, in all and along x and y; shared memory of a block that CUDA itself takes.
        1..=3 | 111 => 1024,
        // Threads of a block along z.
        4 => 64,
        // Blocks of a grid along x; pitch of a copy.
        5 | 11 => i32::MAX,
        // Blocks of a grid along y and z.
        6 | 7 => 65535,
        // Shared memory of a block that does not ask for more.
        8 => 48 << 10,
        // Constant memory; registers of a block and of a multiprocessor.
        9 | 12 | 82 => 65536,
        // Threads of a warp.
        10 => 32,
        // Clock in kHz: times are not rehearsed.
        13 => 1_500_000,
        16 => config.multiprocessors,
        37 => config.bus,
        38 => config.cache,
        39 => config.threads_per_multiprocessor,
        // Mapped host memory, kernels at the same time, unified addresses, streams with priorities, cooperative launches, and
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

/// What only the driver is asked for.
pub fn driver_attribute(config: &Config, number: i32) -> i32 {
    match number {
        // Addresses and memory apart from each other (expandable segments), and handles of them as files.
        102 | 103 => 1,
        _ => attribute(config, number),
    }
}
