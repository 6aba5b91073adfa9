//! The CUDA runtime: device memory, pinned memory, and copies.

use crate::config::config;
use crate::exports::put;
use crate::layout::{Memory, pointer_attributes};
use crate::reads;
use crate::state::{current_device, devices, is_device_address, nobodys_address, outcome, remember, status};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Pinned memory: length by start address.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn pinned<T>(act: impl FnOnce(&mut BTreeMap<usize, usize>) -> T) -> T {
    act(&mut PINNED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the kind of memory at an address.
pub fn memory_at(address: usize) -> Memory {
    if is_device_address(address) {
        let found = devices().and_then(|devices| devices.addresses.find(address));
        return Memory::Device(found.map_or(0, |(_, range)| range.device));
    }
    let is_pinned = pinned(|all| all.range(..=address).next_back().is_some_and(|(at, size)| address - at < *size));
    if is_pinned { Memory::Pinned } else { Memory::Host }
}

/// Copies between host addresses. Copies from a device write zeros, and copies to a device do nothing.
unsafe fn copy(to: *mut c_void, from: *const c_void, size: usize) -> i32 {
    if size == 0 || is_device_address(to as usize) {
        return status::SUCCESS;
    }
    if is_device_address(from as usize) {
        // SAFETY: the caller lets `size` bytes be written there.
        unsafe { to.cast::<u8>().write_bytes(0, size) };
        let value = reads::note(size).to_le_bytes();
        // SAFETY: as before, and no more than `size` bytes.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), size.min(value.len())) };
    } else {
        // SAFETY: the caller lets `size` bytes be read and written there; they may overlap.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), size) };
    }
    status::SUCCESS
}

/// Fills host memory. Device memory has no values.
unsafe fn fill(to: *mut c_void, value: i32, size: usize) -> i32 {
    if size > 0 && !is_device_address(to as usize) {
        // SAFETY: the caller lets `size` bytes be written there.
        unsafe { to.cast::<u8>().write_bytes(value as u8, size) };
    }
    status::SUCCESS
}

unsafe fn allocate(to: *mut usize, size: usize) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { put(to, 0) };
    if size == 0 {
        return status::SUCCESS;
    }
    let Some(mut devices) = devices() else { return remember(status::NO_DEVICE) };
    outcome(devices.allocate(current_device(), size).map(|at| {
        // SAFETY: as the caller promises.
        unsafe { put(to, at) };
    }))
}

fn free(at: usize) -> i32 {
    if at == 0 {
        return status::SUCCESS;
    }
    devices().map_or_else(|| remember(status::NO_DEVICE), |mut devices| outcome(devices.free(at)))
}

unsafe fn allocate_pinned(to: *mut *mut c_void, size: usize) -> i32 {
    // SAFETY: `to` may be written to, as the caller promises; pages are a power of two.
    let error = unsafe { libc::posix_memalign(to, 4096, size.max(1)) };
    if error != 0 {
        return remember(status::NO_MEMORY);
    }
    // SAFETY: it was just written.
    pinned(|all| all.insert(unsafe { *to } as usize, size));
    status::SUCCESS
}

exports! {
    fn cudaMalloc(to: *mut usize, size: usize) -> i32 {
        allocate(to, size)
    }
    fn cudaMallocAsync(to: *mut usize, size: usize, _stream: *mut c_void) -> i32 {
        allocate(to, size)
    }
    fn cudaMallocManaged(to: *mut usize, size: usize, _flags: u32) -> i32 {
        allocate(to, size)
    }
    fn cudaFree(at: usize) -> i32 {
        free(at)
    }
    fn cudaFreeAsync(at: usize, _stream: *mut c_void) -> i32 {
        free(at)
    }
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> i32 {
        let (Some(config), Some(devices)) = (config(), devices()) else { return remember(status::NO_DEVICE) };
        put(free, devices.free_bytes(current_device()));
        put(total, config.memory);
        status::SUCCESS
    }
    fn cudaHostAlloc(to: *mut *mut c_void, size: usize, _flags: u32) -> i32 {
        allocate_pinned(to, size)
    }
    fn cudaMallocHost(to: *mut *mut c_void, size: usize) -> i32 {
        allocate_pinned(to, size)
    }
    fn cudaFreeHost(at: *mut c_void) -> i32 {
        if pinned(|all| all.remove(&(at as usize))).is_some() {
            libc::free(at);
        }
        status::SUCCESS
    }
    fn cudaHostRegister(at: *mut c_void, size: usize, _flags: u32) -> i32 {
        pinned(|all| all.insert(at as usize, size));
        status::SUCCESS
    }
    fn cudaHostUnregister(at: *mut c_void) -> i32 {
        pinned(|all| all.remove(&(at as usize)));
        status::SUCCESS
    }
    fn cudaHostGetDevicePointer(to: *mut usize, at: usize, _flags: u32) -> i32 {
        put(to, at);
        status::SUCCESS
    }
    fn cudaPointerGetAttributes(to: *mut c_void, at: usize) -> i32 {
        let Some(config) = config() else { return remember(status::NO_DEVICE) };
        let bytes = pointer_attributes(config, at, memory_at(at));
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        status::SUCCESS
    }
    fn cudaMemcpy(to: *mut c_void, from: *const c_void, size: usize, _kind: i32) -> i32 {
        copy(to, from, size)
    }
    fn cudaMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, _kind: i32, _stream: *mut c_void) -> i32 {
        copy(to, from, size)
    }
    fn cudaMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, _kind: i32,
        _stream: *mut c_void,
    ) -> i32 {
        for row in 0..height {
            copy(to.wrapping_byte_add(row * to_pitch), from.wrapping_byte_add(row * from_pitch), width);
        }
        status::SUCCESS
    }
    fn cudaMemset(to: *mut c_void, value: i32, size: usize) -> i32 {
        fill(to, value, size)
    }
    fn cudaMemsetAsync(to: *mut c_void, value: i32, size: usize, _stream: *mut c_void) -> i32 {
        fill(to, value, size)
    }
    fn cudaGetSymbolAddress(to: *mut usize, _symbol: *const c_void) -> i32 {
        put(to, nobodys_address());
        status::SUCCESS
    }
}
