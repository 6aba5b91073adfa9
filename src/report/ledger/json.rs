//! The JSON of `memviz ledger`.

use super::words;
use crate::analysis::ledger::{DeviceLedger, Holder, Ledger, LedgerReport, LedgerRow, PoolShare};
use crate::facts::grouping::private_pools::PoolKind;
use crate::model::device_file::{HostSample, Occasion};
use crate::report::{Head, Source};
use serde::Serialize;
use std::collections::BTreeMap;

/// `memviz ledger`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerDevice {
    /// Device.
    pub device: i32,
    /// The name of the GPU; null if unknown.
    pub name: Option<String>,
    /// Limits of the figures, in words.
    pub notes: Vec<String>,
    /// The device at each sample, in chronological order.
    pub samples: Vec<LedgerSample>,
    /// Pinned host memory that PyTorch had reserved when the recording was written; null if not recorded.
    pub pinned_bytes: Option<i64>,
    /// Pinned host memory of the process at each sample, the same for all its devices; empty if the samples do not have it.
    pub pinned_samples: Vec<LedgerPinned>,
}

/// Pinned host memory at one instant. It is not part of the device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerPinned {
    /// When the sample was taken.
    pub at: Occasion,
    /// Its time since the epoch; null if unknown.
    pub time_us: Option<i64>,
    /// Bytes that PyTorch's allocator had pinned.
    pub reserved_bytes: u64,
    /// The number of these bytes that tensors and copies use.
    pub active_bytes: u64,
}

/// A device at one instant.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerSample {
    /// When the sample was taken.
    pub at: Occasion,
    /// Its time since the epoch; null if unknown.
    pub time_us: Option<i64>,
    /// Bytes of the device.
    pub total_bytes: u64,
    /// Bytes in use: the sum of all rows.
    pub used_bytes: u64,
    /// Bytes by holder.
    pub rows: Vec<LedgerHolder>,
    /// Memory reserved by PyTorch's allocator, by kind of pool; empty if unknown.
    pub pools: Vec<LedgerPool>,
    /// The number of reserved bytes that are allocated.
    pub allocated_bytes: u64,
    /// All counters of `torch.cuda.memory_stats` by name; absent if the sample does not have them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory_stats: BTreeMap<String, i64>,
}

/// The bytes of one holder.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerHolder {
    /// `pytorch`, `nccl`, `context`, `process`, `other_process` or `unexplained`.
    pub holder: &'static str,
    /// The holder in words.
    pub label: String,
    /// The ID of another process; absent for all other holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    /// Bytes; negative if figures contradict each other.
    pub bytes: i64,
}

/// Pools of one kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerPool {
    /// The use of the pools; null for the default pool.
    pub kind: Option<PoolKind>,
    /// Number of pools.
    pub pools: usize,
    /// Bytes of their segments.
    pub bytes: u64,
}

impl From<&LedgerRow> for LedgerHolder {
    fn from(row: &LedgerRow) -> Self {
        let pid = if let Holder::Other { pid, .. } = row.holder { Some(pid) } else { None };
        Self { holder: row.holder.name(), label: words::holder(&row.holder), pid, bytes: row.bytes }
    }
}

impl From<&PoolShare> for LedgerPool {
    fn from(share: &PoolShare) -> Self {
        Self { kind: share.kind, pools: share.pools, bytes: share.bytes }
    }
}

impl From<&Ledger> for LedgerSample {
    fn from(ledger: &Ledger) -> Self {
        Self {
            at: ledger.at,
            time_us: ledger.time_us,
            total_bytes: ledger.total_bytes,
            used_bytes: ledger.used_bytes,
            rows: ledger.rows.iter().map(LedgerHolder::from).collect(),
            pools: ledger.pools.iter().map(LedgerPool::from).collect(),
            allocated_bytes: ledger.allocated_bytes,
            memory_stats: ledger.memory_stats.clone(),
        }
    }
}

impl From<&HostSample> for LedgerPinned {
    fn from(sample: &HostSample) -> Self {
        let HostSample { at, time_us, reserved_bytes, active_bytes, .. } = *sample;
        Self { at, time_us, reserved_bytes, active_bytes }
    }
}

/// The whole answer of `memviz ledger`.
pub fn ledger<'a>(source: Source<'a>, report: &LedgerReport) -> Head<'a, LedgerDevice> {
    let device = |device: &DeviceLedger| LedgerDevice {
        device: device.device,
        name: device.name.clone(),
        notes: words::doubts(device),
        samples: device.samples.iter().map(LedgerSample::from).collect(),
        pinned_bytes: report.pinned_bytes,
        pinned_samples: report.host.iter().map(LedgerPinned::from).collect(),
    };
    Head::of::<LedgerReport>(source, None, report.devices.iter().map(device).collect())
}
