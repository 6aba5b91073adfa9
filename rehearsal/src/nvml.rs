//! The part of NVML that PyTorch uses: the number of devices and the processes that use them.

use crate::exports::put;
use crate::runtime::known;
use crate::state::{device_count, devices, status};
use std::ffi::{CStr, c_char};

/// The handle of a device: its number plus one, so that no handle is null.
type Device = usize;

/// A process that uses a device.
#[repr(C)]
pub struct Process {
    number: u32,
    bytes: u64,
}

exports! {
    fn nvmlInit_v2() -> i32 {
        status::SUCCESS
    }
    fn nvmlShutdown() -> i32 {
        status::SUCCESS
    }
    fn nvmlDeviceGetCount_v2(to: *mut u32) -> i32 {
        put(to, device_count() as u32);
        status::SUCCESS
    }
    fn nvmlDeviceGetHandleByIndex_v2(number: u32, to: *mut Device) -> i32 {
        put(to, number as usize + 1);
        if (number as usize) < device_count() { status::SUCCESS } else { status::NO_SUCH_DEVICE }
    }
    fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, to: *mut Device) -> i32 {
        // In the format of `cudaDeviceGetPCIBusId`.
        let text = CStr::from_ptr(text).to_string_lossy();
        let number = text.split(':').nth(1).and_then(|bus| i32::from_str_radix(bus, 16).ok());
        let device = number.and_then(|number| known(number - 1));
        put(to, device.map_or(0, |device| device + 1));
        if device.is_some() { status::SUCCESS } else { status::INVALID }
    }
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: *mut u32, processes: *mut Process) -> i32 {
        let Some(devices) = devices() else { return status::NO_DEVICE };
        let room = count.as_ref().copied().unwrap_or(0);
        put(count, 1);
        if room > 0 && device > 0 {
            put(processes, Process { number: std::process::id(), bytes: devices.used(device - 1) as u64 });
        }
        status::SUCCESS
    }
}
