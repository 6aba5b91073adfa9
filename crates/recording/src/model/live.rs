//! The live buffers at one instant, as `jax.profiler.save_device_memory_profile` writes them.

use super::{DeviceId, SourceNotes, StackId, Stacks, Strings};

/// Live buffers by stack and device.
#[derive(Clone, Debug, Default)]
pub struct LiveProfile {
    pub strings: Strings,
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
    pub bytes: u64,
}
