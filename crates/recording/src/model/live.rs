//! The live buffers at one instant, as `jax.profiler.save_device_memory_profile` writes them.

use super::{DeviceId, SourceNotes, StackId, Stacks, Strings};

/// Live buffers by stack and device.
#[derive(Clone, Debug, Default)]
pub struct LiveProfile {
    /// Names of functions and files.
    pub strings: Strings,
    /// Where buffers were allocated.
    pub stacks: Stacks,
    /// Buffers, combined by stack and device.
    pub samples: Vec<LiveSample>,
    /// What the reader noticed.
    pub notes: SourceNotes,
}

/// The buffers of one stack on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSample {
    pub stack: StackId,
    pub device: DeviceId,
    /// Number of buffers, at least one.
    pub count: u64,
    /// Total bytes of these buffers.
    pub bytes: u64,
}
