//! The live buffers of one instant, as `jax.profiler.save_device_memory_profile` writes them.

use super::{DeviceId, SourceNotes, StackId, Stacks, Strings};

/// What is live, by stack and device.
#[derive(Clone, Debug, Default)]
pub struct LiveProfile {
    /// Names of functions and files.
    pub strings: Strings,
    /// Where buffers were made.
    pub stacks: Stacks,
    /// Buffers, those of one stack and device together.
    pub samples: Vec<LiveSample>,
    /// What the reader noticed.
    pub notes: SourceNotes,
}

/// Buffers of one stack on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSample {
    /// Where they were made.
    pub stack: StackId,
    /// Their device.
    pub device: DeviceId,
    /// How many they are, at least one.
    pub count: u64,
    /// Their bytes, all together.
    pub bytes: u64,
}
