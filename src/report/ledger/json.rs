//! The JSON of `memviz ledger`.

use super::words;
use crate::analysis::ledger::{DeviceLedger, Ledger, LedgerReport};
use crate::model::device_file::{HostSample, Occasion};
use crate::report::{Head, Source};
use serde::Serialize;

/// `memviz ledger`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerDevice<'a> {
    /// Device.
    pub device: i32,
    /// The name of the GPU; null if unknown.
    pub name: Option<&'a str>,
    /// Limits of the figures, in words.
    pub notes: Vec<String>,
    /// The device at each sample, in chronological order.
    pub samples: &'a [Ledger],
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

impl From<&HostSample> for LedgerPinned {
    fn from(sample: &HostSample) -> Self {
        let HostSample { at, time_us, reserved_bytes, active_bytes, .. } = *sample;
        Self { at, time_us, reserved_bytes, active_bytes }
    }
}

/// The whole answer of `memviz ledger`.
pub fn ledger<'a>(source: Source<'a>, report: &'a LedgerReport) -> Head<'a, LedgerDevice<'a>> {
    let device = |device: &'a DeviceLedger| LedgerDevice {
        device: device.device,
        name: device.name.as_deref(),
        notes: words::doubts(device),
        samples: &device.samples,
        pinned_bytes: report.pinned_bytes,
        pinned_samples: report.host.iter().map(LedgerPinned::from).collect(),
    };
    Head::of::<LedgerReport>(source, None, report.devices.iter().map(device).collect())
}
