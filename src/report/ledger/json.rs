//! The JSON of `memviz ledger`.

use super::words;
use crate::analysis::ledger::{DeviceLedger, Ledger, LedgerReport};
use crate::model::device_file::{HostSample, Occasion};
use crate::report::common::json::keys;
use crate::report::{Head, Source};

keys! { schema
    /// `memviz ledger`, one device.
    pub struct LedgerDevice<'a>(report: &'a LedgerReport, device: &'a DeviceLedger) {
        /// Device.
        pub device: i32 = device.device,
        /// The name of the GPU; null if unknown.
        pub name: Option<&'a str> = device.name.as_deref(),
        /// Limits of the figures, in words.
        pub notes: Vec<String> = words::doubts(device),
        /// The device at each sample, in chronological order.
        pub samples: &'a [Ledger] = &device.samples,
        /// Pinned host memory that PyTorch had reserved when the recording was written; null if not recorded.
        pub pinned_bytes: Option<i64> = report.pinned_bytes,
        /// Pinned host memory of the process at each sample, the same for all its devices; empty if the samples do not have it.
        pub pinned_samples: Vec<LedgerPinned> = report.host.iter().map(LedgerPinned::of).collect(),
    }
}

keys! { schema
    /// Pinned host memory at one instant. It is not part of the device.
    pub struct LedgerPinned(sample: &HostSample) {
        let HostSample { at, time_us, reserved_bytes, active_bytes, .. } = *sample;
        /// When the sample was taken.
        pub at: Occasion = at,
        /// Its time since the epoch; null if unknown.
        pub time_us: Option<i64> = time_us,
        /// Bytes that PyTorch's allocator had pinned.
        pub reserved_bytes: u64 = reserved_bytes,
        /// The number of these bytes that tensors and copies use.
        pub active_bytes: u64 = active_bytes,
    }
}

pub fn ledger<'a>(source: Source<'a>, report: &'a LedgerReport) -> Head<'a, LedgerDevice<'a>> {
    let devices = report.devices.iter().map(|device| LedgerDevice::of(report, device)).collect();
    Head::of::<LedgerReport>(source, None, devices)
}
