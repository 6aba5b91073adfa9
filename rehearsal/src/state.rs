//! The memory allocated on the devices, and the settings of each thread.

use crate::addresses::{Addresses, Purpose, granules};
use crate::config::{Config, config};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Result codes that have the same number in the runtime and the driver.
pub mod status {
    /// Success.
    pub const SUCCESS: i32 = 0;
    /// An invalid argument.
    pub const INVALID: i32 = 1;
    /// The device is out of memory.
    pub const NO_MEMORY: i32 = 2;
    /// There is no device.
    pub const NO_DEVICE: i32 = 100;
    /// There is no device with this number.
    pub const NO_SUCH_DEVICE: i32 = 101;
    /// There is no function with this name.
    pub const NOT_FOUND: i32 = 500;
    /// The operation cannot be rehearsed.
    pub const NOT_SUPPORTED: i32 = 801;
}

/// Device addresses, separate from those of programs, libraries and stacks.
const FIRST: usize = 0x6000_0000_0000;
const LENGTH: usize = 16 << 40;

/// The accounts of all devices.
pub struct Devices {
    pub addresses: Addresses,
    /// Bytes in use, by device.
    used: Vec<usize>,
    /// Total bytes of each device.
    memory: usize,
}

impl Devices {
    fn new(config: &Config) -> Self {
        let used = vec![config.context.min(config.memory); config.devices];
        let addresses = Addresses::new(FIRST, FIRST + LENGTH, config.placement);
        Self { addresses, used, memory: config.memory }
    }

    /// Allocates memory without an address.
    ///
    /// # Errors
    /// If the device is out of memory, or there is no such device.
    pub fn charge(&mut self, device: usize, size: usize) -> Result<(), i32> {
        let used = self.used.get_mut(device).ok_or(status::INVALID)?;
        let now = used.checked_add(size).filter(|&now| now <= self.memory).ok_or(status::NO_MEMORY)?;
        *used = now;
        Ok(())
    }

    /// Frees memory.
    pub fn discharge(&mut self, device: usize, size: usize) {
        if let Some(used) = self.used.get_mut(device) {
            *used = used.saturating_sub(size);
        }
    }

    /// Allocates memory and addresses for it.
    ///
    /// # Errors
    /// See `charge`.
    pub fn allocate(&mut self, device: usize, size: usize) -> Result<usize, i32> {
        let size = granules(size).ok_or(status::NO_MEMORY)?;
        self.charge(device, size)?;
        self.addresses.take(size, Purpose::Memory, device).ok_or_else(|| {
            self.discharge(device, size);
            status::NO_MEMORY
        })
    }

    /// Frees the allocation that starts at an address.
    ///
    /// # Errors
    /// If no allocation starts there.
    pub fn free(&mut self, at: usize) -> Result<(), i32> {
        let range = self.addresses.release(at, Purpose::Memory).ok_or(status::INVALID)?;
        self.discharge(range.device, range.size);
        Ok(())
    }

    /// Bytes in use.
    pub fn used(&self, device: usize) -> usize {
        self.used.get(device).copied().unwrap_or(0)
    }

    /// Free bytes.
    pub fn free_bytes(&self, device: usize) -> usize {
        self.memory.saturating_sub(self.used(device))
    }
}

static DEVICES: OnceLock<Option<Mutex<Devices>>> = OnceLock::new();

/// The accounts; `None` if no device is rehearsed.
pub fn devices() -> Option<MutexGuard<'static, Devices>> {
    let made = DEVICES.get_or_init(|| config().map(|config| Mutex::new(keep_addresses(Devices::new(config)))));
    // No thread panics while it holds the lock, so the accounts are always consistent.
    made.as_ref().map(|devices| devices.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reserves the device addresses in this process. The operating system stops any read or write there.
fn keep_addresses(devices: Devices) -> Devices {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which does not replace an existing one.
    let at = unsafe { libc::mmap(FIRST as *mut libc::c_void, LENGTH, libc::PROT_NONE, flags, -1, 0) };
    if at as usize != FIRST {
        // Device addresses could overlap with other memory, and copies would be wrong: a rehearsal is not possible.
        eprintln!(
            "memviz: expected {LENGTH} bytes of free addresses for the rehearsed devices, found fewer; see ulimit -v"
        );
        std::process::abort();
    }
    devices
}

/// Whether an address is a device address.
pub fn is_device_address(address: usize) -> bool {
    (FIRST..FIRST + LENGTH).contains(&address)
}

/// A device address that is never allocated.
pub fn nobodys_address() -> usize {
    FIRST
}

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The current device of this thread.
pub fn current_device() -> usize {
    DEVICE.get()
}

/// Sets the current device of this thread.
pub fn set_current_device(device: usize) {
    DEVICE.set(device);
}

/// The number of devices.
pub fn device_count() -> usize {
    config().map_or(0, |config| config.devices)
}

/// Stores an error as the last one of this thread, and returns it.
pub fn remember(status: i32) -> i32 {
    if status != status::SUCCESS {
        ERROR.set(status);
    }
    status
}

/// The last error of this thread.
pub fn last_error() -> i32 {
    ERROR.get()
}

/// Clears and returns the last error of this thread.
pub fn take_last_error() -> i32 {
    ERROR.replace(status::SUCCESS)
}

/// The status of a result.
pub fn outcome(result: Result<(), i32>) -> i32 {
    remember(result.err().unwrap_or(status::SUCCESS))
}
