//! The JSON of `memviz leaks`.

use super::words;
use crate::analysis::leaks::growth::Rate;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow, Projection};
use crate::facts::grouping::GroupBy;
use crate::facts::training::steps::{NoSteps, StepSource, Steps};
use crate::report::Source;
use crate::report::common::cures::AdviceRow;
use crate::report::common::json::Head;
use serde::Serialize;

/// `memviz leaks`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaksDevice<'a> {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Number of steps found.
    pub steps: usize,
    /// How they were found; null if they were not.
    pub step_source: Option<StepSourceName>,
    /// Name of the annotations, expression, or line by which steps are counted; null if unknown.
    pub step_name: Option<String>,
    /// Leading steps that are not used for rates.
    pub warm_up_steps: usize,
    /// Whether there were enough steps for verdicts. If not, `leaks` is empty and means nothing.
    pub judged: bool,
    /// Whether a leak would be found: there are enough steps, and they are steps of training or inference. If not, an
    /// empty `leaks` means nothing.
    pub leaks_known: bool,
    /// What rows represent.
    pub by: GroupBy,
    /// Total rates of all leaks.
    pub leaking: Rate,
    /// Total rates of all growth.
    pub growing: Rate,
    /// When the device is full; null if nothing leaks or grows, or if the capacity is unknown.
    pub projection: Option<Projection>,
    /// Groups that leak, then groups that grow, then caches. Groups that do not grow are left out.
    pub leaks: &'a [LeakRow],
    /// Rows that `--top` left out.
    pub left_out: usize,
    /// Changes to the program, the largest saving first.
    pub advice: Vec<AdviceRow>,
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

impl<'a> From<&'a DeviceLeaks> for LeaksDevice<'a> {
    fn from(device: &'a DeviceLeaks) -> Self {
        let (source, name) = step_source(&device.steps);
        Self {
            device: device.device,
            complete_history: device.completeness.is_complete(),
            notes: words::limits(device),
            steps: device.step_count(),
            step_source: source,
            step_name: name,
            warm_up_steps: device.warm_up,
            judged: device.is_judged(),
            leaks_known: device.tells_leaks(),
            by: device.by,
            leaking: device.leaking,
            growing: device.growing,
            projection: device.projection,
            leaks: &device.rows,
            left_out: device.left_out,
            advice: device.cures.iter().map(AdviceRow::from).collect(),
        }
    }
}

/// The whole answer of `memviz leaks`.
pub fn leaks<'a>(source: Source<'a>, report: &'a LeakReport) -> Head<'a, LeaksDevice<'a>> {
    Head::of::<LeakReport>(source, None, report.devices.iter().map(LeaksDevice::from).collect())
}
