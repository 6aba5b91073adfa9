//! Plans for a device, and beside them the mistakes of the program that are known: to cure one costs less than any plan.

use crate::analysis::advice::{Advice, Plays, Saving, advice};
use crate::error::Result;
use crate::facts::device::Devices;
use crate::play::plans::{DevicePlans, Goal, PlanOptions, PlanReport};

/// What makes a program fit.
#[derive(Clone, Debug)]
pub struct FitPlans {
    /// Settings and changes, for each device.
    pub plans: PlanReport,
    /// Cures of known mistakes, for the same devices: none where the program fits as it is.
    pub cures: Vec<Vec<FitCure>>,
}

/// The cure of a known mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct FitCure {
    /// The mistake and its cure, as other commands give it.
    pub advice: Advice,
    /// Whether the program fits with this cure alone; `None` where that is not known.
    pub fits: Option<bool>,
}

impl FitPlans {
    /// Plans for a recording, and what to cure first.
    ///
    /// # Errors
    /// As [`PlanReport::of`].
    pub fn of(recording: &Devices<'_>, options: &PlanOptions) -> Result<Self> {
        let plans = PlanReport::of(recording, options)?;
        let cures = plans.devices.iter().map(|plans| cures(recording, plans)).collect();
        Ok(Self { plans, cures })
    }

    /// Plans whose program is looked at elsewhere.
    pub fn without_cures(plans: PlanReport) -> Self {
        let cures = plans.devices.iter().map(|_| Vec::new()).collect();
        Self { plans, cures }
    }
}

fn cures(recording: &Devices<'_>, plans: &DevicePlans) -> Vec<FitCure> {
    let device = recording.all().iter().find(|device| device.id() == plans.device);
    let Some(device) = device.filter(|_| plans.refused.is_none() && !plans.fits) else { return Vec::new() };
    let cure = |advice: Advice| FitCure { fits: fits(&advice.saving, plans), advice };
    advice(device, Plays::Needs).into_iter().map(cure).collect()
}

/// Of a recording that ran out of memory nobody knows what the failed step would need with the cure.
fn fits(saving: &Saving, plans: &DevicePlans) -> Option<bool> {
    let Saving::Played { allocated, needs, .. } = saving else { return None };
    let is_whole = plans.unfinished.is_none() && plans.failed.is_none();
    match plans.goal {
        Goal::Device(bytes) => needs.filter(|_| is_whole).map(|needs| needs <= bytes),
        Goal::Allocated(bytes) => is_whole.then_some(allocated.after <= bytes),
    }
}
