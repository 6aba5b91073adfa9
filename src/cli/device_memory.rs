//! What can be typed about the memory of a device.

use crate::model::bytes::Bytes;
use crate::model::gpu::{Gpu, Threads};
use clap::Args;

/// The group of both ways to name a device's memory.
pub const TOTAL: &str = "total";

/// How much memory a device has.
#[derive(Debug, Args)]
pub struct DeviceMemoryArgs {
    /// Memory of the device, such as 80GiB: its total as PyTorch's messages name it [default: what an oom entry shows]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_device, group = TOTAL)]
    capacity: Option<Bytes>,
    /// The device by its name, such as h100-80gb, instead of its memory
    #[arg(long, value_name = "NAME", value_parser = Gpu::named, group = TOTAL)]
    gpu: Option<&'static Gpu>,
}

impl DeviceMemoryArgs {
    /// Bytes of the device, if it was named in either way.
    pub fn total(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.0).or(self.gpu.map(|gpu| gpu.memory))
    }

    /// What the device runs at once, if it was named.
    pub fn threads(&self) -> Option<Threads> {
        self.gpu.map(|gpu| gpu.threads)
    }
}
