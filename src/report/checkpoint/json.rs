//! The JSON of `memviz checkpoint`.

use super::words;
use crate::analysis::checkpoint::{Candidate, EveryNth, NoCandidates, OptimizerPeak, RemainingPeak};
use crate::analysis::checkpoint::{CheckpointReport, DeviceCheckpoint};
use crate::facts::time::moment::Moment;
use crate::facts::training::Phase;
use crate::report::Source;
use crate::report::common::code_change;
use crate::report::common::json::Head;
use crate::report::common::rescue::OomFit;
use crate::report::fit::single::json::FitSearch;
use crate::simulation::changes::{Checkpointed, CodeChange, HeldByCalls};
use serde::Serialize;

/// `memviz checkpoint`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckpointDevice<'a> {
    /// Device, -1 for pinned host memory.
    pub device: i32,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Whether this device's history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// The recorded peak.
    pub peak_allocated_bytes: i64,
    /// Its instant.
    pub peak: PhasedInstant<'a>,
    /// Bytes at the peak that forward allocated and backward will free; null if the recording ends before backward
    /// does. Without a backward pass, bytes that outlive their forward pass.
    pub activation_bytes: Option<u64>,
    /// Number of forward passes with a backward pass, or otherwise of those that keep what one would need.
    pub forward_passes: usize,
    /// Whether no backward pass follows these: the new peak is then that of forward alone.
    pub without_backward: bool,
    /// Mean time of such a pass on the CPU; null if the file has no times.
    pub forward_us: Option<i64>,
    /// Functions that the recorded program already checkpoints.
    pub checkpointed: Vec<CheckpointedFunction>,
    /// Functions worth checkpointing, the lowest new peak first. They are alternatives: their savings cannot be added
    /// together.
    pub candidates: Vec<CheckpointCandidate<'a>>,
    /// Candidates that `--top` left out.
    pub left_out: usize,
    /// The cheapest calls that keep allocated memory below the size that `--fit` names; left out without `--fit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitSearch>,
    /// The memory at the peak, if the peak is in the optimizer and no candidate would lower it; null otherwise.
    pub optimizer: Option<PeakInOptimizer<'a>>,
    /// What checkpointing does for a failed request that interrupts the step at the peak, with bounds for the whole step; null if
    /// none does, or if that is unknown.
    pub at_failure: Option<OomFit>,
    /// Why there are no candidates; null if there are some.
    pub reason: Option<NoCandidates>,
    /// The same in words.
    pub reason_text: Option<String>,
}

/// A peak in the optimizer step, by when its blocks were allocated.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeakInOptimizer<'a> {
    #[serde(flatten)]
    pub peak: &'a OptimizerPeak,
    /// The function whose calls hold the most when forward ends, to checkpoint once the optimizer needs less; null if
    /// there is none.
    pub forward_function: Option<FunctionToCheckpoint>,
}

/// A repeatedly called function, and the memory that its calls hold.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FunctionToCheckpoint {
    /// The function, by its file, first line and name.
    pub label: String,
    /// The maximum number of calls in a forward pass.
    pub calls: usize,
    /// Bytes that the calls hold and that checkpointing would free.
    pub activation_bytes: u64,
    /// The change to the code.
    pub change: Change,
}

/// An instant and its phase of the training step.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PhasedInstant<'a> {
    /// The instant.
    #[serde(flatten)]
    pub at: &'a Moment,
    /// The phase.
    pub phase: Phase,
}

/// A function that the recorded run checkpoints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckpointedFunction {
    /// The function.
    pub label: String,
    /// How often a forward pass calls it under `torch.utils.checkpoint`.
    pub calls: usize,
    /// How often a forward pass calls it without checkpointing.
    pub other_calls: usize,
}

/// A function that a forward pass calls repeatedly, and the effect of checkpointing its calls.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckpointCandidate<'a> {
    /// The function, by file, first line and name.
    pub label: &'a str,
    /// How often a forward pass calls it.
    pub calls: usize,
    /// Bytes that these calls hold at the recorded peak and that checkpointing would free.
    pub activation_bytes: u64,
    /// Mean CPU time of its calls in a forward pass, which recomputation adds; null if the file has no times.
    pub recompute_us: Option<i64>,
    /// `recompute_us / forward_us`, from 0 to 1; null if the file has no times.
    pub recompute_share: Option<f64>,
    /// The peak with every call checkpointed.
    pub predicted_peak_allocated_bytes: i64,
    /// The recorded peak minus that.
    pub saved_bytes: i64,
    /// Every call checkpointed, every second, every third and so on.
    pub plan: &'a [EveryNth],
    /// What prevents a lower peak.
    pub limit: &'a RemainingPeak,
    /// The code to write.
    pub change: Change,
}

/// A change to the code.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The line that calls the function; null if not recorded, and for transformers models.
    pub caller: Option<String>,
    /// The code to write there, for a function that is called as `block(x)`.
    pub code: &'static str,
}

/// How to checkpoint a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Wrap its call in `torch.utils.checkpoint.checkpoint`.
    Wrap,
    /// Wrap `forward` of its modules: the calling line is in an installed package.
    WrapForward,
    /// Call `gradient_checkpointing_enable` of a transformers model.
    Transformers,
}

impl From<&Checkpointed> for CheckpointedFunction {
    fn from(function: &Checkpointed) -> Self {
        Self { label: function.label.clone(), calls: function.calls, other_calls: function.other_calls }
    }
}

impl<'a> From<&'a OptimizerPeak> for PeakInOptimizer<'a> {
    fn from(peak: &'a OptimizerPeak) -> Self {
        Self { peak, forward_function: peak.forward_function.as_ref().map(FunctionToCheckpoint::from) }
    }
}

impl From<&HeldByCalls> for FunctionToCheckpoint {
    fn from(held: &HeldByCalls) -> Self {
        Self {
            label: held.label.clone(),
            calls: held.calls,
            activation_bytes: held.bytes,
            change: (&held.change).into(),
        }
    }
}

impl From<&CodeChange> for Change {
    fn from(change: &CodeChange) -> Self {
        let (kind, caller) = match change {
            CodeChange::Wrap { caller, .. } => (ChangeKind::Wrap, caller.clone()),
            CodeChange::WrapForward(caller) => (ChangeKind::WrapForward, Some(caller.clone())),
            CodeChange::Transformers => (ChangeKind::Transformers, None),
        };
        Self { kind, caller, code: code_change::change(change).1 }
    }
}

impl<'a> CheckpointCandidate<'a> {
    fn of(device: &DeviceCheckpoint, candidate: &'a Candidate) -> Self {
        Self {
            label: &candidate.label,
            calls: candidate.calls,
            activation_bytes: candidate.activation_bytes,
            recompute_us: candidate.recompute_us,
            recompute_share: words::share_of_forward(device, candidate),
            predicted_peak_allocated_bytes: candidate.predicted_peak_bytes,
            saved_bytes: candidate.saved_bytes,
            plan: &candidate.plan,
            limit: &candidate.limit,
            change: (&candidate.change).into(),
        }
    }
}

/// The whole answer of `memviz checkpoint`.
pub fn checkpoint<'a>(source: Source<'a>, report: &'a CheckpointReport) -> Head<'a, CheckpointDevice<'a>> {
    let format = source.recording.snapshot.notes.format;
    let device = |device: &'a DeviceCheckpoint| CheckpointDevice {
        device: device.device,
        baseline_bytes: device.baseline.allocated,
        complete_history: device.completeness.is_complete(),
        notes: words::limits(device),
        peak_allocated_bytes: device.peak_bytes,
        peak: PhasedInstant { at: &device.peak, phase: device.phase },
        activation_bytes: words::activations(device),
        forward_passes: device.passes,
        without_backward: device.without_backward,
        forward_us: device.forward_us,
        checkpointed: device.checkpointed.iter().map(CheckpointedFunction::from).collect(),
        candidates: device.candidates.iter().map(|candidate| CheckpointCandidate::of(device, candidate)).collect(),
        left_out: device.left_out,
        fit: device.fit.as_ref().map(FitSearch::from),
        optimizer: device.optimizer.as_ref().map(PeakInOptimizer::from),
        at_failure: device.at_failure.as_ref().map(|rescue| OomFit::of(rescue, &[])),
        reason: device.none,
        reason_text: words::reason(device, format),
    };
    Head::of::<CheckpointReport>(source, None, report.devices.iter().map(device).collect())
}
