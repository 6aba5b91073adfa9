//! The CUDA runtime: devices, versions and errors.

use crate::attributes::attribute;
use crate::config::config;
use crate::exports::put;
use crate::layout::device_properties;
use crate::state::{self, current_device, device_count, remember, status};
use std::ffi::{CStr, c_char, c_void};

/// Writes the properties of a device.
unsafe fn properties(to: *mut c_void, device: i32) -> i32 {
    let Some(config) = config() else { return remember(status::NO_DEVICE) };
    let Some(device) = known(device) else { return remember(status::NO_SUCH_DEVICE) };
    let bytes = device_properties(config, device);
    // SAFETY: the caller's structure is that of this CUDA version, which has this size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) };
    status::SUCCESS
}

/// The number of a device, if there is one.
pub fn known(device: i32) -> Option<usize> {
    usize::try_from(device).ok().filter(|&device| device < device_count())
}

/// The name of an error, and its meaning.
fn words(error: i32) -> (&'static CStr, &'static CStr) {
    match error {
        status::SUCCESS => (c"cudaSuccess", c"no error"),
        status::INVALID => (c"cudaErrorInvalidValue", c"invalid argument"),
        status::NO_MEMORY => (c"cudaErrorMemoryAllocation", c"out of memory"),
        status::NO_DEVICE => (c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
        status::NO_SUCH_DEVICE => (c"cudaErrorInvalidDevice", c"invalid device ordinal"),
        status::NOT_SUPPORTED => (c"cudaErrorNotSupported", c"operation not supported by memviz's rehearsal"),
        _ => (c"cudaErrorUnknown", c"unknown error"),
    }
}

/// The version of CUDA, for both the runtime and the driver.
pub fn version() -> i32 {
    config().map_or(0, |config| config.cuda)
}

exports! {
    fn cudaGetDeviceCount(count: *mut i32) -> i32 {
        put(count, device_count() as i32);
        if device_count() == 0 { remember(status::NO_DEVICE) } else { status::SUCCESS }
    }
    fn cudaGetDevice(device: *mut i32) -> i32 {
        put(device, current_device() as i32);
        status::SUCCESS
    }
    fn cudaSetDevice(device: i32) -> i32 {
        let Some(device) = known(device) else { return remember(status::NO_SUCH_DEVICE) };
        state::set_current_device(device);
        status::SUCCESS
    }
    fn cudaGetDeviceProperties(to: *mut c_void, device: i32) -> i32 {
        properties(to, device)
    }
    fn cudaGetDeviceProperties_v2(to: *mut c_void, device: i32) -> i32 {
        properties(to, device)
    }
    fn cudaDeviceGetAttribute(value: *mut i32, number: i32, device: i32) -> i32 {
        let Some(config) = config() else { return remember(status::NO_DEVICE) };
        if known(device).is_none() {
            return remember(status::NO_SUCH_DEVICE);
        }
        put(value, attribute(config, number));
        status::SUCCESS
    }
    fn cudaDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) -> i32 {
        let name = format!("0000:{:02x}:00.0", device + 1);
        let Some(length) = usize::try_from(length).ok().filter(|&length| length > name.len()) else {
            return remember(status::INVALID);
        };
        text.write_bytes(0, length);
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), text, name.len());
        status::SUCCESS
    }
    fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> i32 {
        put(least, 0);
        put(greatest, -5);
        status::SUCCESS
    }
    fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> i32 {
        put(can, i32::from(device != peer));
        status::SUCCESS
    }
    fn cudaDriverGetVersion(to: *mut i32) -> i32 {
        put(to, version());
        status::SUCCESS
    }
    fn cudaRuntimeGetVersion(to: *mut i32) -> i32 {
        put(to, version());
        status::SUCCESS
    }
    fn cudaGetLastError() -> i32 {
        state::take_last_error()
    }
    fn cudaPeekAtLastError() -> i32 {
        state::last_error()
    }
    fn cudaGetErrorName(error: i32) -> *const c_char {
        words(error).0.as_ptr()
    }
    fn cudaGetErrorString(error: i32) -> *const c_char {
        words(error).1.as_ptr()
    }
    fn cuGetErrorName(error: i32, text: *mut *const c_char) -> i32 {
        put(text, words(error).0.as_ptr());
        status::SUCCESS
    }
    fn cuGetErrorString(error: i32, text: *mut *const c_char) -> i32 {
        put(text, words(error).1.as_ptr());
        status::SUCCESS
    }
}
