//! The part of the driver that PyTorch and Triton use: expandable segments and kernel modules.

use crate::addresses::{GRANULE, Purpose, granules};
use crate::attributes::driver_attribute;
use crate::config::config;
use crate::exports::{drop_handle, new_handle, put};
use crate::kernels::any;
use crate::runtime::{known, version};
use crate::state::{current_device, device_count, devices, is_device_address, set_current_device, status};
use crate::stubs;
use std::ffi::{CStr, c_char, c_void};

/// Memory without an address.
pub struct Piece {
    size: usize,
    device: usize,
}

/// The fields of `CUmemAllocationProp` that are read.
#[repr(C)]
pub struct Properties {
    kind: i32,
    handles: i32,
    location_kind: i32,
    location: i32,
}

/// Returned for driver functions that do not exist here: PyTorch looks up more functions than it calls.
extern "C" fn unknown() -> i32 {
    stubs::refused(c"a function of the driver that this release of PyTorch asks for");
    status::NOT_SUPPORTED
}

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const NOT_FOUND: i32 = 1;

/// Looks up a function by name at run time.
unsafe fn entry_point(name: *const c_char, to: *mut *mut c_void, state: *mut i32) -> i32 {
    // SAFETY: the caller passes the name of a function. Looking it up in this process reads nothing else.
    unsafe {
        // The runtime inside of cuDNN begins with this one. Without it, that runtime has no device, as cuDNN does.
        if CStr::from_ptr(name) == c"cuGetProcAddress" {
            put(to, std::ptr::null_mut());
            put(state, NOT_FOUND);
            return status::NOT_FOUND;
        }
        let found = libc::dlsym(libc::RTLD_DEFAULT, name);
        put(to, if found.is_null() { unknown as *mut c_void } else { found });
        put(state, 0);
    }
    status::SUCCESS
}

exports! {
    fn cuInit(_flags: u32) -> i32 {
        if device_count() == 0 { status::NO_DEVICE } else { status::SUCCESS }
    }
    // NVRTC, which compiles without a device, requests a table but works without one.
    fn cuGetExportTable(to: *mut *const c_void, _table: *const c_void) -> i32 {
        put(to, std::ptr::null());
        status::NOT_SUPPORTED
    }
    fn cuDriverGetVersion(to: *mut i32) -> i32 {
        put(to, version());
        status::SUCCESS
    }
    fn cuDeviceGetCount(to: *mut i32) -> i32 {
        put(to, device_count() as i32);
        status::SUCCESS
    }
    fn cuDeviceGet(to: *mut i32, device: i32) -> i32 {
        put(to, device);
        if known(device).is_some() { status::SUCCESS } else { status::NO_SUCH_DEVICE }
    }
    fn cuDeviceGetAttribute(to: *mut i32, number: i32, _device: i32) -> i32 {
        put(to, config().map_or(0, |config| driver_attribute(config, number)));
        status::SUCCESS
    }
    fn cuDeviceGetUuid(to: *mut [u8; 16], device: i32) -> i32 {
        put(to, std::array::from_fn(|byte| (0x10 * (device + 1)) as u8 + byte as u8));
        status::SUCCESS
    }
    fn cuCtxGetCurrent(to: *mut *mut c_void) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuCtxGetDevice(to: *mut i32) -> i32 {
        put(to, current_device() as i32);
        status::SUCCESS
    }
    fn cuCtxPushCurrent(_context: *mut c_void) -> i32 {
        status::SUCCESS
    }
    fn cuCtxPopCurrent(to: *mut *mut c_void) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuDevicePrimaryCtxGetState(_device: i32, flags: *mut u32, active: *mut i32) -> i32 {
        put(flags, 0);
        put(active, 1);
        status::SUCCESS
    }
    fn cuDevicePrimaryCtxRetain(to: *mut *mut c_void, device: i32) -> i32 {
        if let Some(device) = known(device) {
            set_current_device(device);
        }
        put(to, any());
        status::SUCCESS
    }
    fn cuMemGetAllocationGranularity(to: *mut usize, _properties: *const Properties, _option: i32) -> i32 {
        put(to, GRANULE);
        status::SUCCESS
    }
    fn cuMemAddressReserve(to: *mut usize, size: usize, _alignment: usize, _near: usize, _flags: u64) -> i32 {
        let Some(mut devices) = devices() else { return status::NO_DEVICE };
        let taken = granules(size).and_then(|size| devices.addresses.take(size, Purpose::Reservation, current_device()));
        put(to, taken.unwrap_or(0));
        if taken.is_some() { status::SUCCESS } else { status::NO_MEMORY }
    }
    fn cuMemAddressFree(at: usize, _size: usize) -> i32 {
        let released = devices().and_then(|mut devices| devices.addresses.release(at, Purpose::Reservation));
        if released.is_some() { status::SUCCESS } else { status::INVALID }
    }
    fn cuMemCreate(to: *mut *mut Piece, size: usize, properties: *const Properties, _flags: u64) -> i32 {
        let Some(mut devices) = devices() else { return status::NO_DEVICE };
        let device = properties.as_ref().and_then(|properties| known(properties.location));
        let (Some(device), Some(size)) = (device, granules(size)) else { return status::INVALID };
        if let Err(error) = devices.charge(device, size) {
            return error;
        }
        put(to, new_handle(Piece { size, device }));
        status::SUCCESS
    }
    fn cuMemRelease(piece: *mut Piece) -> i32 {
        if let (Some(piece), Some(mut devices)) = (piece.as_ref(), devices()) {
            devices.discharge(piece.device, piece.size);
        }
        drop_handle(piece);
        status::SUCCESS
    }
    fn cuModuleLoad(to: *mut *mut c_void, _name: *const c_char) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuModuleLoadData(to: *mut *mut c_void, _code: *const c_void) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuModuleLoadDataEx(
        to: *mut *mut c_void, _code: *const c_void, _count: u32, _options: *mut c_void, _values: *mut c_void,
    ) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuLibraryLoadData(
        to: *mut *mut c_void, _code: *const c_void, _options: *mut c_void, _values: *mut c_void, _count: u32,
        _library_options: *mut c_void, _library_values: *mut c_void, _library_count: u32,
    ) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuLibraryGetKernel(to: *mut *mut c_void, _library: *mut c_void, _name: *const c_char) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuKernelGetFunction(to: *mut *mut c_void, _kernel: *mut c_void) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuModuleGetFunction(to: *mut *mut c_void, _module: *mut c_void, _name: *const c_char) -> i32 {
        put(to, any());
        status::SUCCESS
    }
    fn cuFuncGetAttribute(to: *mut i32, attribute: i32, _function: *mut c_void) -> i32 {
        // Maximum threads per block, and registers.
        put(to, match attribute { 0 => 1024, 4 => 32, _ => 0 });
        status::SUCCESS
    }
    fn cuPointerGetAttribute(to: *mut c_void, attribute: i32, at: usize) -> i32 {
        match attribute {
            // The device address.
            3 => put(to.cast::<usize>(), at),
            // The kind of memory: 1 is host memory, 2 is device memory.
            2 => put(to.cast::<u32>(), if is_device_address(at) { 2 } else { 1 }),
            _ => {
                stubs::refused(c"cuPointerGetAttribute");
                return status::NOT_SUPPORTED;
            }
        }
        status::SUCCESS
    }
    fn cudaGetDriverEntryPoint(name: *const c_char, to: *mut *mut c_void, _flags: u64, state: *mut i32) -> i32 {
        entry_point(name, to, state)
    }
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char, to: *mut *mut c_void, _version: u32, _flags: u64, state: *mut i32,
    ) -> i32 {
        entry_point(name, to, state)
    }
    fn cuGetProcAddress_v2(
        name: *const c_char, to: *mut *mut c_void, _version: i32, _flags: u64, state: *mut i32,
    ) -> i32 {
        entry_point(name, to, state)
    }
}
