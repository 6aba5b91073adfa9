//! Combines plans for a device with fixes of known mistakes: a fix costs less than any plan.

use crate::analysis::advice::{Advice, Changes, Lowered, Rescue, Saving, Simulate, Together, advice_together, changes};
use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::simulation::Trust;
use crate::simulation::plans::{Bench, DevicePlans, Goal, Plan, PlanOptions, PlanReport};

/// Changes that make a program fit.
#[derive(Clone, Debug)]
pub struct FitPlans {
    /// Settings and changes, for each device.
    pub plans: PlanReport,
    /// Fixes of known mistakes, for the same devices; none if the program fits unchanged.
    pub fixes: Vec<Vec<FitFix>>,
    /// What lets the failed request succeed, for the same devices, if there is no plan for the program.
    pub rescues: Vec<Option<Rescue>>,
    /// Several of the first fixes combined, for the same devices.
    pub together: Vec<Option<FitTogether>>,
    /// These fixes combined with a plan, for the same devices: the easiest one that is enough with them, if it is easier
    /// than all plans without them; or the closest one, if no plan is enough. `None` if the fixes alone are enough.
    pub with_plan: Vec<Option<FitTogether>>,
}

/// Number of fixes that are tried first.
pub const FIRST: usize = 3;

/// Several fixes combined.
#[derive(Clone, Debug, PartialEq)]
pub struct FitTogether {
    /// The fixes, and their saving, with the plan if there is one.
    pub fixes: Together,
    /// Settings and changes in addition to the fixes. Its figures are those of the program with the fixes.
    pub plan: Option<Plan>,
    /// Whether the program fits with them; `None` if unknown.
    pub fits: Option<bool>,
}

/// The fix of a known mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct FitFix {
    /// The mistake and its fix, as other commands give it.
    pub advice: Advice,
    /// Whether the program fits with this fix alone; `None` if unknown.
    pub fits: Option<bool>,
}

/// The fixes of one device.
#[derive(Default)]
struct Fixed {
    fixes: Vec<FitFix>,
    rescue: Option<Rescue>,
    together: Option<FitTogether>,
    with_plan: Option<FitTogether>,
}

impl FitPlans {
    /// Plans for a recording, and the mistakes to fix first.
    pub fn of(recording: &Devices<'_>, options: &PlanOptions) -> Result<Self> {
        let devices = ask_each(&PlanReport::wanted(recording, options)?, |device| {
            let (plans, bench) = DevicePlans::with_bench(device, options)?;
            let fixed = match &plans.need {
                Some(_) if plans.refused.is_some() && options.capacity.is_none() => Fixed::after_failure(device),
                _ => Fixed::of(device, &plans, bench.as_ref()),
            };
            Ok((plans, fixed))
        })?;
        let mut report = Self::without_fixes(PlanReport::default());
        for (plans, fixed) in devices.0 {
            report.plans.devices.push(plans);
            report.fixes.push(fixed.fixes);
            report.rescues.push(fixed.rescue);
            report.together.push(fixed.together);
            report.with_plan.push(fixed.with_plan);
        }
        Ok(report)
    }

    /// Plans without fixes: other commands show the mistakes of the program.
    pub fn without_fixes(plans: PlanReport) -> Self {
        let devices = plans.devices.len();
        Self {
            plans,
            fixes: vec![Vec::new(); devices],
            rescues: vec![None; devices],
            together: vec![None; devices],
            with_plan: vec![None; devices],
        }
    }

    /// For programs that ran out of memory, only the best plan.
    #[must_use]
    pub fn in_brief(mut self) -> Self {
        for device in self.plans.devices.iter_mut().filter(|device| device.need.is_some()) {
            device.left_out = device.plans.len().saturating_sub(1);
            device.plans.truncate(1);
        }
        self
    }
}

impl Fixed {
    /// Fixes for a program without a plan, because what would have followed its failure is not known in full.
    fn after_failure(device: &Device<'_>) -> Self {
        let Changes { advice, rescue } = changes(device, Simulate::Needs);
        let fixes = advice.into_iter().map(|advice| FitFix { fits: None, advice }).collect();
        Self { fixes, rescue, ..Self::default() }
    }

    fn of(device: &Device<'_>, plans: &DevicePlans, bench: Option<&Bench<'_, '_>>) -> Self {
        if plans.fits {
            return Self::default();
        }
        // A program without a plan also has its mistakes: what their fixes save in the recording is known.
        let (advice, together, first) = advice_together(device, Simulate::Needs, FIRST);
        let fix = |mut advice: Advice| {
            // What would have followed the failure may need more.
            if let (Some(_), Saving::Simulated { needs, .. }) = (&plans.refused, &mut advice.saving) {
                *needs = None;
            }
            FitFix { fits: fits(&advice.saving, plans), advice }
        };
        let fixes: Vec<FitFix> = advice.into_iter().map(fix).collect();
        let together = together.map(|fixes| FitTogether { fits: fits(&fixes.saving, plans), fixes, plan: None });
        let is_enough = fixes.iter().map(|it| it.fits).chain([together.as_ref().and_then(|it| it.fits)]);
        let is_enough = is_enough.into_iter().any(|it| it == Some(true));
        let with_plan = bench.zip(first).filter(|_| !is_enough && is_whole(plans)).and_then(|(bench, first)| {
            let (plan, fits) = bench.with_lives(plans, &first.lives)?;
            let bounds: Vec<String> = first.places.iter().filter_map(|&place| bound(place, &fixes[place])).collect();
            let saving = saving(plans, &plan, first.lives.at_least, &bounds)?;
            let fixes = Together { places: first.places, saving };
            Some(FitTogether { fixes, plan: Some(plan), fits: Some(fits) })
        });
        Self { fixes, rescue: None, together, with_plan }
    }
}

/// The saving of a plan for the program with fixes, some of which may save more than simulated.
fn saving(plans: &DevicePlans, plan: &Plan, at_least: bool, bounds: &[String]) -> Option<Saving> {
    let before = &plans.as_it_is.as_ref()?.outcome;
    let trust = if bounds.is_empty() { plans.trust(plan) } else { Trust::Uncertain };
    let after = &plan.outcome;
    Some(Saving::Simulated {
        allocated: Lowered { before: before.max_allocated, after: after.max_allocated },
        reserved: Lowered { before: before.max_reserved, after: after.max_reserved },
        needs: Some(plans.measure(plan)),
        trust,
        reserved_trust: trust,
        because: [&plan.doubts, bounds].concat().join("; "),
        at_least: at_least || !bounds.is_empty(),
    })
}

/// What to say of a fix whose saving is a lower bound: then the program may need less with the fix and a plan, too.
fn bound(place: usize, fix: &FitFix) -> Option<String> {
    let is_bound = matches!(fix.advice.saving, Saving::Simulated { trust: Trust::Uncertain, at_least: true, .. });
    is_bound.then(|| format!("the saving of change {} is a lower bound", place + 1))
}

/// Whether the recording contains everything that must fit.
fn is_whole(plans: &DevicePlans) -> bool {
    plans.refused.is_none() && plans.unfinished.is_none() && plans.failed.is_none()
}

/// If the recording runs out of memory, it is unknown what the failed step would need with the fix.
fn fits(saving: &Saving, plans: &DevicePlans) -> Option<bool> {
    let Saving::Simulated { allocated, needs, .. } = saving else { return None };
    let is_whole = is_whole(plans);
    match plans.goal {
        Goal::Device(bytes) => needs.filter(|_| is_whole).map(|needs| needs <= bytes),
        Goal::Allocated(bytes) => is_whole.then_some(allocated.after <= bytes),
    }
}
