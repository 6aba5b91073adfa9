//! Why a recording may say nothing about checkpointing.

use serde::Serialize;

/// Why nothing can be said about checkpointing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoCandidates {
    /// The recording has no entries of this device.
    NoHistory,
    /// Stacks were not recorded, or were recorded without Python frames.
    NoStacks,
    /// A profiler trace: its frames have the line at which a function starts, not the current line, so calls cannot be
    /// distinguished.
    NoLines,
    /// The kept history has neither a forward nor a backward pass.
    NoForward,
    /// No forward is followed by a backward, and none keeps what one would need.
    NoTrainingStep,
    /// The pass that contains the peak runs out of memory, or the file was cut off in it: what its backward would have freed
    /// is unknown.
    Unfinished,
    /// The peak is in a forward pass that no backward follows.
    NoBackward,
    /// The peak is in the optimizer's step, when everything that forward keeps for backward has been freed.
    PeakInOptimizer,
    /// No function is called more than once in a forward pass, so none was tried.
    NothingRepeats,
    /// A later pass that runs out of memory needs at least about as much as the peak. What its backward would have freed is unknown.
    LaterUnfinished,
    /// No function that is called more than once in a forward pass would lower the peak.
    NothingSaves,
}
