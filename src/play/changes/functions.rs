//! Functions that are checkpointed or could be, and what to change about them.

/// A function that the recorded run checkpoints already.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpointed {
    /// The function.
    pub label: String,
    /// How often a forward pass calls it under `torch.utils.checkpoint`.
    pub calls: usize,
    /// How often it calls it without.
    pub other_calls: usize,
}

/// What the calls of a function hold at an instant and would not hold if they were checkpointed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldByCalls {
    /// The function, by its file, first line and name.
    pub label: String,
    /// How often a forward pass calls it: the most there are in one.
    pub calls: usize,
    /// Bytes held.
    pub bytes: u64,
    /// Mean time that its calls take in a forward pass, in microseconds, where the file has times.
    pub recompute_us: Option<i64>,
    /// What to change to checkpoint them.
    pub change: CodeChange,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodeChange {
    /// Wrap the call in `torch.utils.checkpoint.checkpoint`; the line that calls, where the recording has it.
    Wrap(Option<String>),
    /// The line that calls is one of an installed package: wrap `forward` of the modules instead.
    WrapForward(String),
    /// The model is one of transformers: `gradient_checkpointing_enable`.
    Transformers,
}
