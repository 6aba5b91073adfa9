//! Samples of whole devices: the file `run.device.json`, which `torch_memviz.record` writes next to a recording.

use super::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The samples of all devices that a program uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceFile {
    /// The version of the file's keys.
    pub version: u32,
    /// The process ID that the recorded process sees, which differs from the one outside if it runs in a container.
    pub pid: u64,
    /// What listed the processes: `nvml`, or `nvidia-smi`, which rounds to MiB.
    #[serde(default)]
    pub processes_from: Option<String>,
    /// The devices.
    pub devices: Vec<DeviceSamples>,
    /// Pinned host memory of the process, in chronological order; empty where PyTorch does not count it.
    #[serde(default)]
    pub host: Vec<HostSample>,
}

impl DeviceFile {
    /// The total bytes of a device, and the highest number of bytes in use outside PyTorch's allocator in any sample; `None`
    /// if there is no sample, or if the devices differ in size.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let samples = || self.devices.iter().flat_map(|device| &device.samples);
        let total = samples().next()?.total_bytes;
        let outside = samples().map(|sample| sample.used_bytes().saturating_sub(sample.reserved_bytes)).max()?;
        samples().all(|sample| sample.total_bytes == total).then_some((total, outside))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceSamples {
    /// Its index in the process.
    pub device: DeviceId,
    /// The name of the GPU.
    #[serde(default)]
    pub name: Option<String>,
    /// Why a sample does not list the processes.
    #[serde(default)]
    pub processes_missing: Option<String>,
    /// In chronological order.
    pub samples: Vec<DeviceSample>,
}

names! {
    /// When a sample was taken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Occasion {
        /// When recording started.
        Start = "start",
        /// At the end of the step at which the most memory was in use.
        Peak = "peak",
        /// When a request failed.
        Oom = "oom",
        /// When the recording was written, for example on a signal.
        Dump = "dump",
        /// Where the program asked for it.
        Point = "point",
        /// When recording ended.
        End = "end",
    }
}

/// The memory of a device at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DeviceSample {
    /// When it was taken.
    pub at: Occasion,
    /// The name that the program gave to a point.
    #[serde(default)]
    pub name: Option<String>,
    /// The time, in microseconds since the epoch.
    #[serde(default)]
    pub time_us: Option<i64>,
    /// Total bytes of the device, as `torch.cuda.mem_get_info` returns them.
    pub total_bytes: u64,
    /// Free bytes, from the same call.
    pub free_bytes: u64,
    /// Bytes that PyTorch's allocator had reserved.
    pub reserved_bytes: u64,
    /// How many of these bytes were allocated to tensors.
    pub allocated_bytes: u64,
    /// The processes on the device; `None` if they could not be listed.
    #[serde(default)]
    pub processes: Option<Vec<GpuProcess>>,
    /// Memory of NCCL by process group.
    #[serde(default)]
    pub nccl: Vec<GroupMemory>,
    /// All counters of PyTorch's allocator by their names in `torch.cuda.memory_stats`.
    #[serde(default)]
    pub memory_stats: BTreeMap<String, i64>,
}

impl DeviceSample {
    /// Bytes in use by any program or library.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }
}

/// The pinned host memory of PyTorch's allocator at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HostSample {
    /// When it was taken.
    pub at: Occasion,
    /// The time, in microseconds since the epoch.
    #[serde(default)]
    pub time_us: Option<i64>,
    /// Bytes that the allocator had pinned.
    pub reserved_bytes: u64,
    /// How many of these bytes were in use by tensors and copies.
    pub active_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GpuProcess {
    /// Its process ID, according to the driver.
    pub pid: u64,
    /// The name of its program.
    #[serde(default)]
    pub name: Option<String>,
    /// Its bytes on the device; `None` if the driver does not report them.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// Memory of one NCCL process group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GroupMemory {
    /// The name of the group.
    pub group: String,
    /// Bytes that its communicators hold on the device.
    pub bytes: u64,
}
