//! The JSON of `memviz leaks`.

use super::words;
use crate::analysis::leaks::growth::Rate;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow, Projection};
use crate::facts::grouping::GroupBy;
use crate::facts::training::steps::{NoSteps, StepSource, Steps};
use crate::report::Source;
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::{Head, keys};
use serde::Serialize;

keys! { schema
    /// `memviz leaks`, one device.
    pub struct LeaksDevice<'a>(device: &'a DeviceLeaks) {
        let (source, name) = step_source(&device.steps);
        /// Device, -1 for pinned host memory.
        pub device: i32 = device.device,
        /// Whether this device's history is complete.
        pub complete_history: bool = device.completeness.is_complete(),
        /// What is missing, in words.
        pub notes: Vec<String> = words::limits(device),
        /// Number of steps found.
        pub steps: usize = device.step_count(),
        /// How they were found; null if they were not.
        pub step_source: Option<StepSourceName> = source,
        /// Name of the annotations, expression, or line by which steps are counted; null if unknown.
        pub step_name: Option<String> = name,
        /// Leading steps that are not used for rates.
        pub warm_up_steps: usize = device.warm_up,
        /// Whether there were enough steps for verdicts. If not, `leaks` is empty and means nothing.
        pub judged: bool = device.is_judged(),
        /// Whether a leak would be found: there are enough steps, and they are steps of training or inference. If not, an
        /// empty `leaks` means nothing.
        pub leaks_known: bool = device.tells_leaks(),
        /// What rows represent.
        pub by: GroupBy = device.by,
        /// Total rates of all leaks.
        pub leaking: Rate = device.leaking,
        /// Total rates of all growth.
        pub growing: Rate = device.growing,
        /// When the device is full; null if nothing leaks or grows, or if the capacity is unknown.
        pub projection: Option<Projection> = device.projection,
        /// Groups that leak, then groups that grow, then caches. Groups that do not grow are left out.
        pub leaks: &'a [LeakRow] = &device.rows,
        /// Rows that `--top` left out.
        pub left_out: usize = device.left_out,
        /// Changes to the program, the largest saving first.
        pub advice: Vec<AdviceRow> = device.cures.iter().map(AdviceRow::of).collect(),
    }
}

/// How steps were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepSourceName {
    /// From annotations that look like steps.
    Annotations,
    /// From the annotations that `--steps` selects.
    Requested,
    /// From the iterations of the program's loop.
    Inferred,
}

/// How steps were found, and the name of their marks.
pub(crate) fn step_source(steps: &Result<Steps, NoSteps>) -> (Option<StepSourceName>, Option<String>) {
    match steps.as_ref().map(|steps| &steps.source) {
        Ok(StepSource::Annotations(name)) => (Some(StepSourceName::Annotations), Some(name.clone())),
        Ok(StepSource::Requested(pattern)) => (Some(StepSourceName::Requested), Some(pattern.clone())),
        Ok(StepSource::Inferred { site, .. }) => (Some(StepSourceName::Inferred), site.clone()),
        Err(_) => (None, None),
    }
}

pub fn leaks<'a>(source: Source<'a>, report: &'a LeakReport) -> Head<'a, LeaksDevice<'a>> {
    Head::of::<LeakReport>(source, None, report.devices.iter().map(LeaksDevice::of).collect())
}
