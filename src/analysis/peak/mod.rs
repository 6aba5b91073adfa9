//! The peak of each device, or any other instant, with its memory by group.

pub mod comparison;
mod device_peak;
pub mod each;

pub use device_peak::{DevicePeak, PeakOptions};

use crate::error::Result;
use crate::facts::device::{Devices, ask_each};
use crate::facts::time::when::When;
use comparison::Comparison;

#[derive(Clone, Debug, Default)]
pub struct PeakReport {
    pub devices: Vec<DevicePeak>,
    /// The comparison of CUDA devices, each at its own peak; `None` if they hardly differ.
    pub comparison: Option<Comparison>,
    pub skipped: Vec<String>,
}

impl PeakReport {
    /// Finds each device's peak and attributes it.
    ///
    /// # Errors
    /// If a device does not exist, no device has the requested instant, or the counter or the recording cannot be grouped as
    /// requested.
    pub fn of(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        options.by.require_told(recording)?;
        Self::of_any_grouping(recording, options)
    }

    /// The same for a recording that may not show the groups, since the user did not request them: the recording that
    /// it is compared with may show them.
    pub(crate) fn of_any_grouping(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        options.by.require(options.metric)?;
        let wanted = recording.wanted(&options.devices)?;
        let (mut devices, skipped) = ask_each(&wanted, |device| DevicePeak::of(device, options))?;
        let at_peak = matches!(options.at, None | Some(When::Peak));
        let comparison = if at_peak { Comparison::of(&devices) } else { None };
        if let Some(top) = options.top {
            for device in &mut devices {
                device.attribution.keep_top(top);
            }
        }
        Ok(Self { devices, comparison, skipped })
    }
}
