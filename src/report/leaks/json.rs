//! The JSON of `memviz leaks`.

use super::words;
use crate::analysis::leaks::growth::{Rate, Verdict};
use crate::analysis::leaks::{self, Projection};
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow};
use crate::facts::grouping::GroupBy;
use crate::facts::training::steps::{NoSteps, StepSource, Steps};
use crate::report::Source;
use crate::report::common::cures::AdviceRow;
use crate::report::common::json::Head;
use serde::Serialize;

/// `memviz leaks`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaksDevice {
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
    pub projection: Option<ProjectionSteps>,
    /// Groups that leak, then groups that grow, then caches. Groups that do not grow are left out.
    pub leaks: Vec<Leak>,
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

/// When the device is full, if growth continues.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProjectionSteps {
    /// Bytes that the program can use.
    pub capacity_bytes: u64,
    /// The maximum of allocated bytes within the last step.
    pub peak_bytes: i64,
    /// Bytes of blocks that everything that leaks or grows adds per step.
    pub allocated_bytes_per_step: i64,
    /// Number of further steps that fit.
    pub steps: u64,
}

/// One group that grows, or has grown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Leak {
    /// The group.
    pub label: String,
    /// Whether the label is inferred.
    pub inferred: bool,
    /// Growth per step.
    #[serde(flatten)]
    pub rate: Rate,
    /// Requested bytes that are live at the end of the last step.
    pub live_bytes: u64,
    /// Blocks live at the end of the last step.
    pub live_blocks: u64,
    /// The behavior of the group.
    pub verdict: Verdict,
    /// The last step, counted from 1, in which a cache reached a new maximum; null if the group still grows.
    pub filled_in_step: Option<usize>,
    /// The oldest block of `stack` that is live at the end of the last step; null if there is none.
    pub oldest: Option<Oldest>,
    /// The stack with the most bytes, innermost frame first.
    pub stack: Vec<String>,
}

/// The oldest live block; all null for a block from before the recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Oldest {
    /// Its alloc entry, counted within the device's trace.
    pub entry: Option<u32>,
    /// The step, counted from 1, that allocated it.
    pub step: Option<usize>,
    /// The time since the first entry of the recording; null if the file has no times.
    pub since_start_us: Option<i64>,
}

impl From<&leaks::Oldest> for Oldest {
    fn from(oldest: &leaks::Oldest) -> Self {
        Self { entry: oldest.entry, step: oldest.step, since_start_us: oldest.since_start_us }
    }
}

impl From<&Projection> for ProjectionSteps {
    fn from(projection: &Projection) -> Self {
        Self {
            capacity_bytes: projection.capacity_bytes,
            peak_bytes: projection.peak_bytes,
            allocated_bytes_per_step: projection.allocated_bytes_per_step,
            steps: projection.steps,
        }
    }
}

impl From<&LeakRow> for Leak {
    fn from(row: &LeakRow) -> Self {
        Self {
            label: row.label.clone(),
            inferred: row.inferred,
            rate: row.rate,
            live_bytes: row.live_bytes,
            live_blocks: row.live_blocks,
            verdict: row.verdict,
            filled_in_step: row.filled_in,
            oldest: row.oldest.as_ref().map(Oldest::from),
            stack: row.stack.clone(),
        }
    }
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

impl From<&DeviceLeaks> for LeaksDevice {
    fn from(device: &DeviceLeaks) -> Self {
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
            projection: device.projection.as_ref().map(ProjectionSteps::from),
            leaks: device.rows.iter().map(Leak::from).collect(),
            left_out: device.left_out,
            advice: device.cures.iter().map(AdviceRow::from).collect(),
        }
    }
}

/// The whole answer of `memviz leaks`.
pub fn leaks<'a>(source: Source<'a>, report: &LeakReport) -> Head<'a, LeaksDevice> {
    Head::of::<LeakReport>(source, None, report.devices.iter().map(LeaksDevice::from).collect())
}
