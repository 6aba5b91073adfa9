//! The JSON of `memviz fit`.

use super::words;
use crate::analysis::fit::FitReport;
use crate::analysis::fit::{Check, DeviceFit, Largest, Measured, Prediction};
use crate::facts::grouping::attribution::Attribution;
use crate::report::Source;
use crate::report::common::fixes::AdviceRow;
use crate::report::common::json::InputHead;
use crate::report::common::need::FitNeed;
use crate::report::fit::single::json::{FitPlan, FitSearch};
use crate::simulation::{Outcome, Trust};
use crate::wire::SCHEMA_VERSION;
use serde::Serialize;

/// The whole answer of `memviz fit`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fit<'a> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The files, in the order in which they were named.
    pub inputs: Vec<InputHead<'a>>,
    /// The answer, device by device.
    pub devices: Vec<FitDevice>,
}

/// `memviz fit`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitDevice {
    /// Device.
    pub device: i32,
    /// Why there is no prediction; null if there is one.
    pub refused: Option<String>,
    /// Notes, in words.
    pub notes: Vec<String>,
    /// The simulated settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    pub alloc_conf: String,
    /// Changes to the program, such as `accumulate:4` or `optimizer:sgd`: they apply to predictions, not to recorded
    /// runs.
    pub changes: Vec<String>,
    /// Their assumptions, one sentence each.
    pub assumptions: Vec<String>,
    /// Bytes that the allocator can use; null if no device was named.
    pub capacity_bytes: Option<u64>,
    /// Further bytes of the device that CUDA itself uses; null if no device was named.
    pub context_bytes: Option<u64>,
    /// Memory at other numbers.
    pub scaling: FitScaling,
    /// The memory at the peak, by site, at the requested number or the largest that fits; null if there is neither.
    pub peak: Option<FitPeak>,
    /// Cures of known mistakes in the program of a single recording that does not fit unchanged.
    pub cures: Vec<FitCureRow>,
    /// Several of the first cures combined; null if fewer than two of them were simulated.
    pub cures_together: Option<FitTogetherRow>,
    /// The first cures combined with a plan: the easiest one that is enough with them, if it is easier than all plans
    /// without them; or the closest one, if no plan is enough. Null if cures alone are enough, or if there is no such
    /// plan.
    pub cures_with_plan: Option<FitTogetherRow>,
    /// Changes that make a single recording fit the device; null if there are several recordings, or no simulation.
    pub search: Option<FitSearch>,
    /// What the program needs if a request failed; otherwise null.
    pub need: Option<FitNeed>,
}

/// The cure of a known mistake.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitCureRow {
    /// The mistake and its cure.
    pub advice: AdviceRow,
    /// The size of a device on which the program always works with the fix, in bytes that the allocator can use; null if
    /// nothing was simulated.
    pub needs_bytes: Option<u64>,
    /// Whether the program fits with this cure alone; null if unknown.
    pub fits: Option<bool>,
}

/// Several cures at once.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitTogetherRow {
    /// The cures, numbered from 0.
    pub cures: Vec<usize>,
    /// Further changes, as `memviz simulate` takes them.
    pub changes: Vec<String>,
    /// These changes with their settings and their code; the figures are those of the program with the cures. Null for
    /// cures alone.
    pub plan: Option<FitPlan>,
    /// Their saving at the peak of allocated bytes.
    pub saves_allocated_bytes: Option<u64>,
    /// As for a single cure.
    pub needs_bytes: Option<u64>,
    /// Whether the program fits with them; null if unknown.
    pub fits: Option<bool>,
    /// How far you can trust the bytes.
    pub trust: Trust,
}

/// Runs at other numbers.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitScaling {
    /// The name of the number; empty if there is one recording, like everything below.
    pub parameter: String,
    /// The recorded numbers.
    pub points: Vec<u64>,
    /// The recorded figures at these numbers.
    pub recorded: Vec<FitPoint>,
    /// How well each recording matches the next.
    pub matching: Vec<FitMatching>,
    /// Tokens in a growing cache up to which the requests are served; null if none were requested.
    pub tokens: Option<u64>,
    /// The largest number that fits; null if no device was named, none fits, or all do.
    pub largest: Option<u64>,
    /// The smallest number above it that was found not to fit; null if there is none.
    pub fails: Option<u64>,
    /// With three recordings, the last one predicted from the others; null if there are two.
    pub check: Option<FitCheck>,
    /// Recorded and predicted numbers, ascending.
    pub predictions: Vec<FitPrediction>,
}

/// A recorded run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitPoint {
    /// Its number.
    pub value: u64,
    /// `max_memory_allocated()`.
    pub max_allocated_bytes: i64,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: i64,
}

/// Two recordings, compared.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(clippy::struct_field_names, reason = "they are keys")]
pub struct FitMatching {
    /// Requests in both.
    pub matched_requests: u64,
    /// Requests only in the first.
    pub only_first_requests: u64,
    /// Requests only in the second.
    pub only_second_requests: u64,
}

/// A recorded run, predicted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitCheck {
    /// Its number.
    pub value: u64,
    /// Predicted minus recorded `max_memory_allocated()`.
    pub allocated_difference_bytes: i64,
    /// Predicted minus recorded `max_memory_reserved()`.
    pub reserved_difference_bytes: i64,
}

/// A run at a number.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitPrediction {
    /// The number.
    pub value: u64,
    /// Whether it was recorded.
    pub recorded: bool,
    /// Whether every request is served.
    pub finishes: bool,
    /// The first entry whose request is refused, in the recording whose order of requests is simulated; null if it finishes.
    pub fails_at_entry: Option<u32>,
    /// `max_memory_allocated()`; if the program does not finish, up to that entry, like the figures below.
    pub max_allocated_bytes: u64,
    /// Its minimum and maximum, if it depends on an unknown; otherwise null.
    pub max_allocated_bytes_range: Option<[u64; 2]>,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: u64,
    /// Its minimum and maximum, if it depends on the driver's placement of segments; otherwise null.
    pub max_reserved_bytes_range: Option<[u64; 2]>,
    /// `num_alloc_retries`.
    pub alloc_retries: u64,
    /// Requests that are in only one recording, or whose sizes follow no rule.
    pub unmatched_requests: u64,
    /// The maximum of their bytes that are live at once.
    pub unmatched_bytes: u64,
    /// How far you can trust it.
    pub trust: Trust,
    /// Whether it is doubtful for other reasons than its distance from the recorded numbers.
    pub uncertain: bool,
    /// Why it is not exact; empty if it is.
    pub because: String,
}

/// The memory at the peak, by site.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitPeak {
    /// The number.
    pub value: u64,
    /// The sites.
    pub attribution: Attribution,
}

impl From<&Measured> for FitPoint {
    fn from(point: &Measured) -> Self {
        Self { value: point.value, max_allocated_bytes: point.max_allocated, max_reserved_bytes: point.max_reserved }
    }
}

impl From<&Check> for FitCheck {
    fn from(check: &Check) -> Self {
        let Check { predicted, measured } = check;
        let outcome = &predicted.outcome;
        Self {
            value: measured.value,
            allocated_difference_bytes: (outcome.max_allocated as i64).wrapping_sub(measured.max_allocated),
            reserved_difference_bytes: (outcome.max_reserved as i64).wrapping_sub(measured.max_reserved),
        }
    }
}

impl FitPrediction {
    fn of(parameter: &str, device: &DeviceFit, prediction: &Prediction) -> Self {
        let outcome = &prediction.outcome;
        Self {
            value: prediction.value,
            recorded: prediction.is_recorded,
            finishes: prediction.fits(),
            fails_at_entry: Outcome::failure(outcome),
            max_allocated_bytes: outcome.max_allocated,
            max_allocated_bytes_range: prediction.allocated_range.map(|(least, most)| [least, most]),
            max_reserved_bytes: outcome.max_reserved,
            max_reserved_bytes_range: prediction.reserved_range.map(|(least, most)| [least, most]),
            alloc_retries: outcome.retries,
            unmatched_requests: prediction.unmatched,
            unmatched_bytes: prediction.unmatched_bytes,
            trust: prediction.trust,
            uncertain: words::trust(device, prediction) == "uncertain",
            because: words::because(parameter, device, prediction),
        }
    }
}

impl FitScaling {
    /// The value for a single recording.
    pub(crate) fn none() -> Self {
        Self {
            parameter: String::new(),
            points: Vec::new(),
            recorded: Vec::new(),
            matching: Vec::new(),
            tokens: None,
            largest: None,
            fails: None,
            check: None,
            predictions: Vec::new(),
        }
    }
}

impl FitDevice {
    fn of(parameter: &str, device: &DeviceFit) -> Self {
        let fails = match device.largest {
            Some(Largest::UpTo { fails, .. } | Largest::None { fails }) => Some(fails),
            Some(Largest::Unlimited { .. }) | None => None,
        };
        let matching = device.matching.iter().map(|matching| FitMatching {
            matched_requests: matching.matched,
            only_first_requests: matching.alone.0,
            only_second_requests: matching.alone.1,
        });
        Self {
            device: device.device,
            refused: device.refused.as_ref().map(|refusal| words::refused(parameter, refusal)),
            notes: words::limits(parameter, device),
            alloc_conf: device.alloc_conf.clone(),
            changes: device.changes.clone(),
            assumptions: device.assumptions.clone(),
            capacity_bytes: device.capacity,
            context_bytes: device.context.map(|context| context.bytes),
            scaling: FitScaling {
                parameter: parameter.to_owned(),
                points: device.points.iter().map(|point| point.value).collect(),
                recorded: device.points.iter().map(FitPoint::from).collect(),
                matching: matching.collect(),
                tokens: device.tokens,
                largest: device.largest.and_then(Largest::value),
                fails,
                check: device.check.as_ref().map(FitCheck::from),
                predictions: device.predictions.iter().map(|it| FitPrediction::of(parameter, device, it)).collect(),
            },
            peak: device
                .peak
                .as_ref()
                .map(|(value, attribution)| FitPeak { value: *value, attribution: attribution.clone() }),
            cures: Vec::new(),
            cures_together: None,
            cures_with_plan: None,
            search: None,
            need: None,
        }
    }
}

/// The whole answer of `memviz fit`.
pub fn fit<'a>(sources: &[Source<'a>], report: &FitReport) -> Fit<'a> {
    Fit {
        schema_version: SCHEMA_VERSION,
        command: "fit",
        inputs: sources.iter().map(|&source| InputHead::of(source)).collect(),
        devices: report.devices.iter().map(|device| FitDevice::of(&report.parameter, device)).collect(),
    }
}
