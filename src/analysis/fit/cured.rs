//! Plans for a device, and the known mistakes of the program: curing one costs less than any plan.

use crate::analysis::advice::{Advice, Plays, Saving, Together, advice_together};
use crate::error::Result;
use crate::facts::device::Devices;
use crate::play::plans::{DevicePlans, Goal, PlanOptions, PlanReport};

/// What makes a program fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitPlans {
    /// Settings and changes, for each device.
    pub plans: PlanReport,
    /// Cures of known mistakes, for the same devices: none where the program fits unchanged.
    pub cures: Vec<Vec<FitCure>>,
    /// What several of the first cures do at once, for the same devices.
    pub together: Vec<Option<FitTogether>>,
}

/// Cures that are tried first.
pub const FIRST: usize = 3;

/// Several cures at once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitTogether {
    /// Which cures, and what they save.
    pub cures: Together,
    /// Whether the program fits with them; `None` where that is not known.
    pub fits: Option<bool>,
}

/// The cure of a known mistake.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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
        let (cures, together) = plans.devices.iter().map(|plans| cures(recording, plans)).unzip();
        Ok(Self { plans, cures, together })
    }

    /// Plans without cures: other commands show the mistakes of the program.
    pub fn without_cures(plans: PlanReport) -> Self {
        let (cures, together) = plans.devices.iter().map(|_| (Vec::new(), None)).unzip();
        Self { plans, cures, together }
    }
}

fn cures(recording: &Devices<'_>, plans: &DevicePlans) -> (Vec<FitCure>, Option<FitTogether>) {
    let device = recording.all().iter().find(|device| device.id() == plans.device);
    let Some(device) = device.filter(|_| plans.refused.is_none() && !plans.fits) else { return (Vec::new(), None) };
    let (advice, together) = advice_together(device, Plays::Needs, FIRST);
    let cure = |advice: Advice| FitCure { fits: fits(&advice.saving, plans), advice };
    let cures: Vec<FitCure> = advice.into_iter().map(cure).collect();
    let together = together.map(|cures| FitTogether { fits: fits(&cures.saving, plans), cures });
    (cures, together)
}

/// What the failed step would need with the cure is unknown if the recording runs out of memory.
fn fits(saving: &Saving, plans: &DevicePlans) -> Option<bool> {
    let Saving::Played { allocated, needs, .. } = saving else { return None };
    let is_whole = plans.unfinished.is_none() && plans.failed.is_none();
    match plans.goal {
        Goal::Device(bytes) => needs.filter(|_| is_whole).map(|needs| needs <= bytes),
        Goal::Allocated(bytes) => is_whole.then_some(allocated.after <= bytes),
    }
}
