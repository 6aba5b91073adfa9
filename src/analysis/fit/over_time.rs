//! Predicts memory over time at a number that was not recorded.

use super::{Aligned, DeviceFit, FitInput, FitOptions};
use crate::analysis::advice::OverTime;
use crate::error::Result;
use crate::model::DeviceId;
use crate::replay::Metric;
use crate::simulation::{self, recorded_settings};

/// A counter of a program at a number, at the instants of the recording that defines the order of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedOverTime {
    /// The number of that recording.
    pub of: u64,
    /// The device in that recording.
    pub device: DeviceId,
    /// The counter.
    pub curve: OverTime,
}

impl PredictedOverTime {
    /// A counter of a device at a number, up to the request that ends the program, if one fails; without the changes in the
    /// options. `None` if no prediction is possible, and for the counters and recordings for which
    /// [`WhatIf::over_time`](crate::analysis::advice::WhatIf::over_time) has none.
    ///
    /// # Errors
    /// Like [`FitReport::of`](super::FitReport::of).
    pub fn of(
        inputs: &[FitInput<'_>],
        (device, metric, value): (DeviceId, Metric, u64),
        options: &FitOptions,
    ) -> Result<Option<Self>> {
        let inputs = super::sorted("number", inputs)?;
        let wanted = inputs[inputs.len() - 1].devices.wanted(&[device])?;
        let Some(&device) = wanted.first().filter(|_| value > 0) else { return Ok(None) };
        let recorded = recorded_settings(device.track);
        let settings = options.settings.as_ref().unwrap_or(&recorded);
        let mut fit = DeviceFit::nothing(device, options);
        let Ok(aligned) = fit.aligned(device, &inputs, settings, options) else { return Ok(None) };
        let context = options.context.unwrap_or(simulation::DEFAULT_CONTEXT);
        let setup = fit.predictor(&aligned, (settings, context), options).setup();
        let Aligned { devices, scaling, .. } = &aligned;
        let scaled = scaling.at(value, &setup.rules);
        let (program, _) = scaled.whole();
        let is_known = match metric {
            Metric::Allocated => true,
            Metric::Active | Metric::Requested => false,
            Metric::Reserved => program.without_cache().is_none(),
        };
        let device = devices[scaled.template];
        Ok(is_known.then(|| Self {
            of: scaling.runs()[scaled.template].value,
            device: device.id(),
            curve: OverTime::of(&program, &setup, metric, device.history().entries(), |step| step.entry + 1),
        }))
    }
}
