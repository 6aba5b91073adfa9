//! Functions that are or could be checkpointed, and the changes of code.

/// A function that the recorded program already checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    pub label: String,
    /// How often a forward pass calls it under `torch.utils.checkpoint`.
    pub calls: usize,
    /// How often a forward pass calls it without checkpointing.
    pub other_calls: usize,
}

/// The memory that the calls of a function hold at an instant and that checkpointing would free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldByCalls {
    /// The function, by its file, first line and name.
    pub label: String,
    /// The maximum number of its calls in a forward pass that keep something for backward.
    pub calls: usize,
    pub bytes: u64,
    /// Mean time of its calls in a forward pass, in microseconds, if the file has times.
    pub recompute_us: Option<i64>,
    pub change: CodeChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeChange {
    /// Wrap the call in `torch.utils.checkpoint.checkpoint`.
    Wrap { caller: Option<String>, others: Vec<String> },
    /// The calling line is in an installed package: wrap `forward` of the modules instead.
    WrapForward(String),
    /// The model is a transformers model: `gradient_checkpointing_enable`.
    Transformers,
}

/// The lines of Python that compute logits and loss in so many chunks of tokens.
///
/// If the recomputation of a chunk stops early, it does so inside `cross_entropy`, which then fails in PyTorch 2.11 while memory
/// history is recorded. PyTorch has `set_checkpoint_early_stop` since 2.1.
pub fn chunked_loss(pieces: u32) -> Vec<String> {
    vec![
        "def chunk_loss(h, t): return F.cross_entropy(head(h).float(), t, reduction=\"sum\")".to_owned(),
        format!("chunks = zip(hidden.flatten(0, 1).chunk({pieces}), targets.flatten().chunk({pieces}))"),
        "with torch.utils.checkpoint.set_checkpoint_early_stop(False):  # early stopping fails while memory is being recorded"
            .to_owned(),
        "    loss = sum(torch.utils.checkpoint.checkpoint(chunk_loss, h, t, use_reentrant=False) for h, t in chunks) / targets.numel()"
            .to_owned(),
    ]
}
