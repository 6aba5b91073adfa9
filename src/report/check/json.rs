//! The JSON of `memviz check`: an object for each input.

use super::words::{CheckedInput, doubt};
use crate::analysis::check::{Amount, Basis, Check, CheckKind, CheckVerdict, CheckedDevice, Culprit};
use crate::report::common::json::{InputHead, keys};
use crate::report::peak::json::MeasuredDevice;
use crate::wire::SCHEMA_VERSION;
use serde::Serialize;

/// `memviz check`, one input.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckAnswer<'a> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: InputHead<'a>,
    /// Whether every budget is known to be met.
    pub passed: bool,
    /// `passed`, `failed`, or `unknown` if a budget could not be judged.
    pub verdict: &'static str,
    /// Every budget on every device.
    pub checks: Vec<CheckRow<'a>>,
    /// The measured values of each device, with any limits.
    pub devices: Vec<MeasuredDevice<'a>>,
}

/// An input that could not be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreadInput<'a> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The file.
    pub input: UnreadHead<'a>,
    /// Always false.
    pub passed: bool,
    /// Always `unknown`.
    pub verdict: &'static str,
    /// Why it could not be read.
    pub error: &'a str,
    /// Always empty.
    pub checks: [(); 0],
    /// Always empty.
    pub devices: [(); 0],
}

/// A file that could not be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreadHead<'a> {
    /// As the user named it.
    pub path: &'a str,
}

/// The result for one input.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CheckOutcome<'a> {
    /// It was judged.
    Answer(Box<CheckAnswer<'a>>),
    /// It could not be read.
    Unread(UnreadInput<'a>),
}

keys! { schema
    /// One budget on one device.
    pub struct CheckRow<'a>(check: &'a Check) {
        let bytes = |amount: Option<Amount>| match amount {
            Some(Amount::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        let share = |amount: Option<Amount>| match amount {
            Some(Amount::Share(share)) => Some(share),
            _ => None,
        };
        let (measured, bound) = check.measured();
        /// What is limited: `max-peak`, `max-reserved`, `max-fragmentation`, `max-leak`, `max-site`, `max-residue`, `baseline-peak`
        /// or `baseline-reserved`.
        pub name: &'static str = check.kind.name(),
        /// The entry of `memviz.toml` that limits it; null for flags.
        pub budget: Option<&'a str> = check.budget.as_deref(),
        /// The expression of `max-site`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pattern: Option<&'a str> = match &check.kind {
            CheckKind::MaxSite(pattern) => Some(pattern),
            _ => None,
        },
        /// The instants of `max-residue`, as `A..B`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub between: Option<&'a str> = match &check.kind {
            CheckKind::MaxResidue(between) => Some(between),
            _ => None,
        },
        /// The device; null if the recording has none.
        pub device: Option<i32> = check.device,
        /// The limit, or the value of the baseline if the verdict is `shown`. Null if the baseline does not have it, and for
        /// `max-fragmentation`.
        pub limit_bytes: Option<u64> = bytes(check.limit),
        /// The measured value: exact, or a bound as in `bound`. Null if unknown, and for `max-fragmentation`.
        pub measured_bytes: Option<u64> = bytes(measured),
        /// The limit of `max-fragmentation`, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit_share: Option<f64> = share(check.limit),
        /// The inactive share measured, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub measured_share: Option<f64> = share(measured),
        /// `lower` or `upper` if the measured value is only a bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bound: Option<&'static str> = bound,
        /// The limit minus the measured value; null if it is not judged, and for `max-fragmentation`.
        pub headroom_bytes: Option<i128> = check.headroom_bytes(),
        /// Whether the limit is known to be met.
        pub passed: bool = check.verdict == CheckVerdict::Passed,
        /// `passed`, `failed`, `unknown`, or `shown` for a comparison that is not judged.
        pub verdict: &'static str = check.verdict.name(),
        /// Why it is not known exactly.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String> = check.doubt.as_ref().map(doubt),
        /// Number of recorded sites at the peak that the expression of `max-site` matches, or 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub matching_sites: Option<usize> = check.matching_sites,
        /// The meaning of the bytes of `sites`: `held`, `grown`, `reserved`, `pinned`, `leaked` or `born`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, schemars(with = "Option<String>"))]
        pub basis: Option<Basis> = (check.verdict == CheckVerdict::Failed || !check.culprits.sites.is_empty())
            .then_some(check.culprits.basis),
        /// The sites that caused an exceeded limit or growth, the largest first.
        #[serde(skip_serializing_if = "<[Culprit]>::is_empty")]
        pub sites: &'a [Culprit] = &check.culprits.sites,
    }
}

pub fn check(input: &CheckedInput) -> CheckOutcome<'_> {
    match &input.answer {
        Ok((head, report)) => CheckOutcome::Answer(Box::new(CheckAnswer {
            schema_version: SCHEMA_VERSION,
            command: "check",
            input: head.clone(),
            passed: report.verdict() == CheckVerdict::Passed,
            verdict: report.verdict().name(),
            checks: report.checks.iter().map(CheckRow::of).collect(),
            devices: report.devices.iter().map(MeasuredDevice::from).collect(),
        })),
        Err(error) => CheckOutcome::Unread(UnreadInput {
            schema_version: SCHEMA_VERSION,
            command: "check",
            input: UnreadHead { path: &input.path },
            passed: false,
            verdict: CheckVerdict::Unknown.name(),
            error,
            checks: [],
            devices: [],
        }),
    }
}

impl<'a> From<&'a CheckedDevice> for MeasuredDevice<'a> {
    fn from(device: &'a CheckedDevice) -> Self {
        Self::new(&device.peak, &device.allocated, &device.reserved)
    }
}
