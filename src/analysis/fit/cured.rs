//! Combines plans for a device with cures of known mistakes: a cure costs less than any plan.

use crate::analysis::advice::{Advice, Plays, Saving, Together, advice_together};
use crate::error::Result;
use crate::facts::device::Devices;
use crate::play::changes::Change;
use crate::play::plans::{DevicePlans, Goal, PlanOptions, PlanReport};

/// Changes that make a program fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitPlans {
    /// Settings and changes, for each device.
    pub plans: PlanReport,
    /// Cures of known mistakes, for the same devices; none if the program fits unchanged.
    pub cures: Vec<Vec<FitCure>>,
    /// Several of the first cures combined, for the same devices.
    pub together: Vec<Option<FitTogether>>,
    /// These cures combined with the changes of the closest plan, for the same devices: only if neither the cures nor
    /// any plan is enough.
    pub with_plan: Vec<Option<FitTogether>>,
}

/// Number of cures that are tried first.
pub const FIRST: usize = 3;

/// Several cures combined.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitTogether {
    /// The cures, and their saving.
    pub cures: Together,
    /// Whether the program fits with them; `None` if unknown.
    pub fits: Option<bool>,
}

/// The cure of a known mistake.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitCure {
    /// The mistake and its cure, as other commands give it.
    pub advice: Advice,
    /// Whether the program fits with this cure alone; `None` if unknown.
    pub fits: Option<bool>,
}

impl FitPlans {
    /// Plans for a recording, and the mistakes to cure first.
    ///
    /// # Errors
    /// Like [`PlanReport::of`].
    pub fn of(recording: &Devices<'_>, options: &PlanOptions) -> Result<Self> {
        let plans = PlanReport::of(recording, options)?;
        let (cures, both): (Vec<_>, Vec<_>) = plans.devices.iter().map(|plans| cures(recording, plans)).unzip();
        let (together, with_plan) = both.into_iter().map(|[together, with_plan]| (together, with_plan)).unzip();
        Ok(Self { plans, cures, together, with_plan })
    }

    /// Plans without cures: other commands show the mistakes of the program.
    pub fn without_cures(plans: PlanReport) -> Self {
        let devices = plans.devices.len();
        Self { plans, cures: vec![Vec::new(); devices], together: vec![None; devices], with_plan: vec![None; devices] }
    }
}

fn cures(recording: &Devices<'_>, plans: &DevicePlans) -> (Vec<FitCure>, [Option<FitTogether>; 2]) {
    let device = recording.all().iter().find(|device| device.id() == plans.device);
    // A program without a plan also has its mistakes: what their cures save in the recording is known.
    let Some(device) = device.filter(|_| !plans.fits) else {
        return (Vec::new(), [None, None]);
    };
    let nearest = plans.nearest.as_ref().filter(|_| plans.plans.is_empty() && is_whole(plans));
    let changes: Vec<Change> =
        nearest.map_or_else(Vec::new, |plan| plan.changes.iter().map(|it| it.change.clone()).collect());
    let (advice, mut both) = advice_together(device, Plays::Needs, FIRST, &changes);
    if plans.refused.is_some() {
        both[1] = None;
    }
    let cure = |mut advice: Advice| {
        // What would have followed the failure may need more.
        if let (Some(_), Saving::Played { needs, .. }) = (plans.refused, &mut advice.saving) {
            *needs = None;
        }
        FitCure { fits: fits(&advice.saving, plans), advice }
    };
    let cures: Vec<FitCure> = advice.into_iter().map(cure).collect();
    let [together, with_plan] =
        both.map(|cures| cures.map(|cures| FitTogether { fits: fits(&cures.saving, plans), cures }));
    let is_enough =
        cures.iter().map(|cure| cure.fits).chain(together.iter().map(|it| it.fits)).any(|it| it == Some(true));
    // With other settings, the plan alone may need just as little.
    let is_less = |both: &FitTogether| match (&both.cures.saving, nearest) {
        (Saving::Played { allocated, needs, .. }, Some(nearest)) => {
            let least = plans.measure(nearest);
            match plans.goal {
                Goal::Device(_) => needs.is_some_and(|needs| needs < least),
                Goal::Allocated(_) => allocated.after < least,
            }
        }
        _ => false,
    };
    (cures, [together, with_plan.filter(|both| !is_enough && is_less(both))])
}

/// Whether the recording contains everything that must fit.
fn is_whole(plans: &DevicePlans) -> bool {
    plans.refused.is_none() && plans.unfinished.is_none() && plans.failed.is_none()
}

/// If the recording runs out of memory, it is unknown what the failed step would need with the cure.
fn fits(saving: &Saving, plans: &DevicePlans) -> Option<bool> {
    let Saving::Played { allocated, needs, .. } = saving else { return None };
    let is_whole = is_whole(plans);
    match plans.goal {
        Goal::Device(bytes) => needs.filter(|_| is_whole).map(|needs| needs <= bytes),
        Goal::Allocated(bytes) => is_whole.then_some(allocated.after <= bytes),
    }
}
