//! The measured values of an earlier recording, to compare a new one with.

use super::measure::maximum;
use crate::analysis::peak::{PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::model::DeviceId;
use crate::replay::Metric;
use crate::wire::answers::{SavedAnswer, SavedDevice};

#[derive(Clone, Debug, Default)]
pub struct EarlierRun {
    pub devices: Vec<EarlierDevice>,
}

#[derive(Clone, Debug)]
pub struct EarlierDevice {
    pub device: DeviceId,
    /// Peak of allocated bytes; `None` if it was not exact.
    pub allocated: Option<u64>,
    /// Peak of reserved bytes; `None` if it was not exact.
    pub reserved: Option<u64>,
    /// All sites and their bytes at the peak of allocated bytes; `None` if they are unknown.
    pub sites: Option<Vec<(String, u64)>>,
}

impl EarlierDevice {
    pub(super) fn peak(&self, metric: Metric) -> Option<u64> {
        if metric == Metric::Reserved { self.reserved } else { self.allocated }
    }
}

impl EarlierRun {
    pub fn of(recording: &Devices<'_>) -> Result<Self> {
        let peaks = PeakReport::of(recording, &PeakOptions::default())?;
        let device = |device: &Device<'_>| {
            let peak = peaks.devices.iter().find(|peak| peak.device == device.id());
            let rows = peak.map(|peak| peak.attribution.rows.iter());
            EarlierDevice {
                device: device.id(),
                allocated: maximum(device.track, Metric::Allocated).value(),
                reserved: maximum(device.track, Metric::Reserved).value(),
                sites: rows.map(|rows| rows.map(|row| (row.label.clone(), row.bytes)).collect()),
            }
        };
        Ok(Self { devices: recording.all().iter().map(device).collect() })
    }

    pub fn of_answer(answer: &SavedAnswer) -> Self {
        let device = |saved: &SavedDevice| EarlierDevice {
            device: saved.device,
            allocated: saved.allocated,
            reserved: saved.reserved,
            sites: saved.sites.clone(),
        };
        Self { devices: answer.devices.iter().map(device).collect() }
    }

    pub fn device(&self, device: DeviceId) -> Option<&EarlierDevice> {
        self.devices.iter().find(|known| known.device == device)
    }
}
