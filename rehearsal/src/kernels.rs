//! Kernels: registration, launch and queries. No kernel runs.

use crate::config::config;
use crate::exports::put;
use crate::layout::function_attributes;
use crate::state::{remember, status};
use std::cell::Cell;
use std::ffi::c_void;

/// Three extents.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Extent {
    x: u32,
    y: u32,
    z: u32,
}

/// The launch settings of `<<<...>>>`, which the compiler turns into two calls.
#[derive(Clone, Copy)]
struct Launch {
    grid: Extent,
    block: Extent,
    shared: usize,
    stream: usize,
}

const NONE: Extent = Extent { x: 0, y: 0, z: 0 };

thread_local! {
    static LAUNCH: Cell<Launch> = const { Cell::new(Launch { grid: NONE, block: NONE, shared: 0, stream: 0 }) };
}

static KERNEL: [u64; 8] = [0; 8];

/// The target of the handle of any kernel, module or context.
pub fn any() -> *mut c_void {
    (&raw const KERNEL).cast_mut().cast()
}

exports! {
    fn __cudaPushCallConfiguration(grid: Extent, block: Extent, shared: usize, stream: usize) -> u32 {
        LAUNCH.set(Launch { grid, block, shared, stream });
        0
    }
    fn __cudaPopCallConfiguration(grid: *mut Extent, block: *mut Extent, shared: *mut usize, stream: *mut usize) -> i32 {
        let launch = LAUNCH.get();
        put(grid, launch.grid);
        put(block, launch.block);
        put(shared, launch.shared);
        put(stream, launch.stream);
        status::SUCCESS
    }
    fn __cudaRegisterFatBinary(_code: *mut c_void) -> *mut c_void {
        any()
    }
    fn __cudaGetKernel(kernel: *mut *mut c_void, _function: *const c_void) -> i32 {
        put(kernel, any());
        status::SUCCESS
    }
    fn cudaGetKernel(kernel: *mut *mut c_void, _function: *const c_void) -> i32 {
        put(kernel, any());
        status::SUCCESS
    }
    fn cudaFuncGetAttributes(to: *mut c_void, _function: *const c_void) -> i32 {
        let Some(config) = config() else { return remember(status::NO_DEVICE) };
        let bytes = function_attributes(config);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        status::SUCCESS
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, _function: *const c_void, _threads: i32, _shared: usize,
    ) -> i32 {
        put(blocks, 2);
        status::SUCCESS
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, _function: *const c_void, _threads: i32, _shared: usize, _flags: u32,
    ) -> i32 {
        put(blocks, 2);
        status::SUCCESS
    }
    fn cudaOccupancyMaxPotentialBlockSize(
        grid: *mut i32, threads: *mut i32, _function: *const c_void, _shared: usize, _limit: i32,
    ) -> i32 {
        put(grid, 2 * config().map_or(1, |config| config.multiprocessors));
        put(threads, 256);
        status::SUCCESS
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, _function: *const c_void, _threads: i32, _shared: usize,
    ) -> i32 {
        put(blocks, 2);
        status::SUCCESS
    }
    fn cuOccupancyMaxPotentialClusterSize(blocks: *mut i32, _function: *const c_void, _launch: *const c_void) -> i32 {
        put(blocks, 8);
        status::SUCCESS
    }
    fn cuOccupancyMaxActiveClusters(clusters: *mut i32, _function: *const c_void, _launch: *const c_void) -> i32 {
        put(clusters, 1);
        status::SUCCESS
    }
}
