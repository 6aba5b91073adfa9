//! The output of `memviz fit` for one recording: changes that make it fit a device.

mod code;
pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod words;

#[cfg(feature = "plot")]
pub use picture::draw;

use self::json::FitPlan;
use super::json::{Fit, FitCureRow, FitDevice, FitScaling, FitTogetherRow};
use crate::analysis::advice::Saving;
use crate::analysis::fit::{FitFix, FitPlans, FitTogether};
use crate::report::common::document::Document;
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::InputHead;
use crate::report::common::need::FitNeed;
use crate::report::common::no_commands;
use crate::report::{Answer, Rows, Source};
use crate::simulation::Trust;
use crate::simulation::plans::DevicePlans;
use crate::wire::SCHEMA_VERSION;
use std::io::{self, Write};

impl Answer for FitPlans {
    const COMMAND: &'static str = "fit";
    /// The recordings, as they were named.
    type About<'a> = &'a [Source<'a>];
    type Json = Fit<'static>;

    fn document(&self, sources: &[Source<'_>]) -> Document {
        document::document(sources, self)
    }

    fn json(&self, sources: &[Source<'_>], out: &mut dyn Write) -> io::Result<()> {
        no_commands::write(&answer(sources, self), out)
    }
}

impl Rows for FitPlans {
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(&self.plans, out)
    }
}

/// The answer about one device.
fn device(
    device: &DevicePlans,
    cures: &[FitFix],
    several: Option<&FitTogether>,
    with_plan: Option<&FitTogether>,
) -> FitDevice {
    let needs = |saving: &Saving| match saving {
        Saving::Simulated { needs, .. } => *needs,
        Saving::NotSimulated { .. } => None,
    };
    let cure = |cure: &FitFix| FitCureRow {
        advice: AdviceRow::of(&cure.advice),
        needs_bytes: needs(&cure.advice.saving),
        fits: cure.fits,
    };
    let together = |together: &FitTogether| {
        let (allocated, trust) = match &together.fixes.saving {
            Saving::Simulated { allocated, trust, .. } => (Some(allocated.by()), *trust),
            Saving::NotSimulated { .. } => (None, Trust::Refused),
        };
        FitTogetherRow {
            cures: together.fixes.places.clone(),
            changes: (together.plan.iter().flat_map(|plan| &plan.changes))
                .map(|change| change.change.to_string())
                .collect(),
            plan: together.plan.as_ref().map(|plan| FitPlan::of(device, plan)),
            saves_allocated_bytes: allocated,
            needs_bytes: needs(&together.fixes.saving),
            fits: together.fits,
            trust,
        }
    };
    FitDevice {
        device: device.device,
        refused: device.refused.clone(),
        notes: words::limits(device),
        alloc_conf: device.recorded_conf.clone(),
        changes: Vec::new(),
        assumptions: Vec::new(),
        capacity_bytes: device.capacity,
        context_bytes: device.context.map(|context| context.bytes),
        scaling: FitScaling::none(),
        peak: None,
        cures: cures.iter().map(cure).collect(),
        cures_together: several.map(together),
        cures_with_plan: with_plan.map(together),
        search: device.refused.is_none().then(|| device.into()),
        need: device.need.as_ref().zip(device.capacity).map(|(need, capacity)| FitNeed::of(need, capacity)),
    }
}

/// The whole answer of `memviz fit` about plans.
fn answer<'a>(sources: &[Source<'a>], report: &FitPlans) -> Fit<'a> {
    Fit {
        schema_version: SCHEMA_VERSION,
        command: "fit",
        inputs: sources.iter().map(|&source| InputHead::of(source)).collect(),
        devices: (report.plans.devices.iter().zip(&report.fixes))
            .zip(report.together.iter().zip(&report.with_plan))
            .map(|((plans, cures), (several, with_plan))| device(plans, cures, several.as_ref(), with_plan.as_ref()))
            .collect(),
    }
}
