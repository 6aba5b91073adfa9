//! Options for the memory of a device.

use crate::error::Error;
use crate::facts::gpu::Gpu;
use crate::input;
use crate::model::Rehearsal;
use crate::model::bytes::Bytes;
use crate::model::gpu::Threads;
use clap::Args;
use std::path::Path;

/// The group of the two options for a device's memory.
pub const TOTAL: &str = "total";

/// How much memory a device has.
#[derive(Debug, Args)]
pub struct DeviceMemoryArgs {
    /// Memory of the device, such as 80GiB [default: from the recording]
    ///
    /// PyTorch's OOM message states it as the total capacity. A failed request shows how much of it
    /// the allocator can use; for `fit`, samples or a profiler trace next to the recording also shows it.
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_capacity, group = TOTAL)]
    capacity: Option<Bytes>,
    /// Name of the device, such as h100-80gb, or a profiler trace recorded on it
    #[arg(long, value_name = "NAME|TRACE", value_parser = NamedGpu::parse, group = TOTAL)]
    gpu: Option<NamedGpu>,
}

/// A GPU in the table, or in a trace.
#[derive(Clone, Copy, Debug)]
struct NamedGpu {
    /// Its name in the table; `None` for a GPU in a trace.
    name: Option<&'static str>,
    memory: u64,
    threads: Option<Threads>,
}

impl NamedGpu {
    /// The GPU with a name. If a file has that name, the GPU on which this trace was recorded.
    fn parse(text: &str) -> Result<Self, Error> {
        let path = Path::new(text);
        if !path.is_file() {
            let gpu = Gpu::named(text).map_err(|error| match error {
                Error::Request(text) => {
                    Error::Request(text.replacen(", found", ", or the path of a profiler trace, found", 1))
                }
                other => other,
            })?;
            return Ok(Self { name: Some(gpu.name), memory: gpu.memory, threads: Some(gpu.threads) });
        }
        let gpus = input::gpus_of_trace(path)?;
        match gpus.split_first() {
            Some((first, others))
                if first.memory > 0
                    && others.iter().all(|other| (other.memory, other.threads) == (first.memory, first.threads)) =>
            {
                Ok(Self { name: None, memory: first.memory, threads: first.threads })
            }
            _ => {
                let sizes: Vec<String> = gpus.iter().map(|gpu| Bytes(gpu.memory).to_string()).collect();
                let found = if sizes.is_empty() { "none".to_owned() } else { format!("GPUs of {}", sizes.join(", ")) };
                Err(Error::Request(format!("expected a trace with only one kind of GPU, found {found}")))
            }
        }
    }
}

impl DeviceMemoryArgs {
    /// Bytes of the device, if it was named in either way.
    pub fn total(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.0).or(self.gpu.map(|gpu| gpu.memory))
    }

    /// Whether the requested device differs from the one that was rehearsed.
    pub fn is_elsewhere(&self, rehearsal: &Rehearsal) -> bool {
        match (self.gpu.and_then(|gpu| gpu.name), self.capacity) {
            (Some(name), _) => !Gpu::named(&rehearsal.gpu).is_ok_and(|gpu| gpu.name == name),
            (None, Some(capacity)) => capacity.0 != rehearsal.memory,
            (None, None) => self.gpu.is_some(),
        }
    }

    /// How many threads the device runs at once, if it was named.
    pub fn threads(&self) -> Option<Threads> {
        self.gpu.and_then(|gpu| gpu.threads)
    }
}
