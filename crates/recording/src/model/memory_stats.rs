//! PyTorch's own counters, recorded beside the history that they can be compared with.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The counters of all devices, as `torch_memviz` writes them: JSON under the key `memory_stats` of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MemoryStats {
    version: u32,
    /// By the number of the device.
    pub devices: Vec<DeviceStats>,
}

/// The counters of a device at both ends of a recording; `None` if they changed while they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceStats {
    pub start: Option<Counted>,
    pub end: Option<Counted>,
}

/// Counters by their names in `torch.cuda.memory_stats()`. Those that a release of PyTorch does not have are missing.
pub type Counted = BTreeMap<String, i64>;

impl MemoryStats {
    /// The key in a snapshot.
    pub const KEY: &str = "memory_stats";
    /// The counter of served requests.
    pub const REQUESTS: &str = "allocation.all.allocated";
    const VERSION: u32 = 1;

    /// Reads the JSON; `None` if it is of another version.
    pub fn of_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|found: &Self| found.version == Self::VERSION)
    }
}

impl DeviceStats {
    /// How many requests were served between both ends, if that is known. A program can reset this counter.
    pub fn requests(&self) -> Option<i64> {
        self.at_end(MemoryStats::REQUESTS)?.checked_sub(self.at_start(MemoryStats::REQUESTS)?)
    }

    /// A counter when the recording started. PyTorch has none before the first use of a device: then it is 0.
    pub fn at_start(&self, name: &str) -> Option<i64> {
        let start = self.start.as_ref()?;
        if start.is_empty() { self.at_end(name).map(|_| 0) } else { start.get(name).copied() }
    }

    /// A counter when the recording was written.
    pub fn at_end(&self, name: &str) -> Option<i64> {
        self.end.as_ref()?.get(name).copied()
    }
}
