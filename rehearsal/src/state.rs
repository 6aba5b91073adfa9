//! What is allocated on the devices, and what each thread has set.

use crate::addresses::{Addresses, Purpose, granules};
use crate::config::{Config, config};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Results of the runtime and the driver that are the same number in both.
pub mod status {
    /// Done.
    pub const SUCCESS: i32 = 0;
    /// An argument that CUDA does not take.
    pub const INVALID: i32 = 1;
    /// The device has no more memory.
    pub const NO_MEMORY: i32 = 2;
    /// There is no device.
    pub const NO_DEVICE: i32 = 100;
    /// There is no device of this number.
    pub const NO_SUCH_DEVICE: i32 = 101;
    /// What is asked for is not rehearsed.
    pub const NOT_SUPPORTED: i32 = 801;
}

/// Device addresses: apart from those that programs, libraries and stacks are placed at.
const FIRST: usize = 0x6000_0000_0000;
const LENGTH: usize = 16 << 40;

/// The accounts of all devices.
pub struct Devices {
    pub addresses: Addresses,
    /// Bytes in use, by device.
    used: Vec<usize>,
    /// Bytes that each has.
    memory: usize,
}

impl Devices {
    fn new(config: &Config) -> Self {
        let used = vec![config.context.min(config.memory); config.devices];
        let addresses = Addresses::new(FIRST, FIRST + LENGTH, config.placement);
        Self { addresses, used, memory: config.memory }
    }

    /// Takes memory without an address.
    ///
    /// # Errors
    /// When the device has no more, or there is no such device.
    pub fn charge(&mut self, device: usize, size: usize) -> Result<(), i32> {
        let used = self.used.get_mut(device).ok_or(status::INVALID)?;
        let now = used.checked_add(size).filter(|&now| now <= self.memory).ok_or(status::NO_MEMORY)?;
        *used = now;
        Ok(())
    }

    /// Gives memory back.
    pub fn discharge(&mut self, device: usize, size: usize) {
        if let Some(used) = self.used.get_mut(device) {
            *used = used.saturating_sub(size);
        }
    }

    /// Takes memory and addresses for it.
    ///
    /// # Errors
    /// As `charge`.
    pub fn allocate(&mut self, device: usize, size: usize) -> Result<usize, i32> {
        let size = granules(size).ok_or(status::NO_MEMORY)?;
        self.charge(device, size)?;
        self.addresses.take(size, Purpose::Memory, device).ok_or_else(|| {
            self.discharge(device, size);
            status::NO_MEMORY
        })
    }

    /// Gives back what begins at an address.
    ///
    /// # Errors
    /// When nothing does.
    pub fn free(&mut self, at: usize) -> Result<(), i32> {
        let range = self.addresses.release(at, Purpose::Memory).ok_or(status::INVALID)?;
        self.discharge(range.device, range.size);
        Ok(())
    }

    /// Bytes in use.
    pub fn used(&self, device: usize) -> usize {
        self.used.get(device).copied().unwrap_or(0)
    }

    /// Bytes that are free.
    pub fn free_bytes(&self, device: usize) -> usize {
        self.memory.saturating_sub(self.used(device))
    }
}

static DEVICES: OnceLock<Option<Mutex<Devices>>> = OnceLock::new();

/// The accounts; None where no device is rehearsed.
pub fn devices() -> Option<MutexGuard<'static, Devices>> {
    let made = DEVICES.get_or_init(|| config().map(|config| Mutex::new(keep_addresses(Devices::new(config)))));
    // A thread that panics holds no lock: what the lock guards is always whole.
    made.as_ref().map(|devices| devices.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps device addresses from being given to anything else in this process. Who reads or writes there is stopped by the system.
fn keep_addresses(devices: Devices) -> Devices {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces none that is there.
    let at = unsafe { libc::mmap(FIRST as *mut libc::c_void, LENGTH, libc::PROT_NONE, flags, -1, 0) };
    if at as usize != FIRST {
        // Addresses could be those of other memory, and copies between them would be confused: nothing can be rehearsed.
        eprintln!(
            "memviz: expected {LENGTH} bytes of free addresses for the rehearsed devices, found fewer; see ulimit -v"
        );
        std::process::abort();
    }
    devices
}

/// Whether an address is one of a device.
pub fn is_device_address(address: usize) -> bool {
    (FIRST..FIRST + LENGTH).contains(&address)
}

/// An address of a device that is never given to anybody.
pub fn nobodys_address() -> usize {
    FIRST
}

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The device of this thread.
pub fn current_device() -> usize {
    DEVICE.get()
}

/// Changes the device of this thread.
pub fn set_current_device(device: usize) {
    DEVICE.set(device);
}

/// Number of devices.
pub fn device_count() -> usize {
    config().map_or(0, |config| config.devices)
}

/// Remembers an error for who asks for the last one, and gives it back.
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

/// Forgets the last error of this thread, and gives it.
pub fn take_last_error() -> i32 {
    ERROR.replace(status::SUCCESS)
}

/// The status of something done.
pub fn outcome(result: Result<(), i32>) -> i32 {
    remember(result.err().unwrap_or(status::SUCCESS))
}
