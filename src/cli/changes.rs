//! Changes of a program, as options.

use crate::play::changes::Change;
use clap::Args;

/// Changes of the program, played on its requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Changes of the program")]
pub struct ChangeArgs {
    /// Checkpoint the calls of a function, named as `memviz checkpoint` does, or by a part of that; with :every=N the first call
    /// and every N-th after it; may be repeated
    #[arg(long, value_name = "SITE[:every=N]", value_parser = Change::checkpoint)]
    checkpoint: Vec<Change>,
    /// Another optimizer: adamw, adam8bit, adafactor, sgd or momentum
    #[arg(long, value_name = "NAME", value_parser = Change::optimizer)]
    optimizer: Option<Change>,
    /// States of the optimizer divided between N ranks (ZeRO-1), on the one with most; with :keep-gradients its optimizer drops
    /// its own gradients alone
    #[arg(long, value_name = "N", value_parser = Change::shard_optimizer)]
    shard_optimizer: Option<Change>,
    /// States and gradients divided between N ranks (ZeRO-2)
    #[arg(long, value_name = "N", value_parser = Change::shard_gradients)]
    shard_gradients: Option<Change>,
    /// Parameters, gradients and states divided between N ranks (ZeRO-3, FSDP), gathered for the layer in use
    #[arg(long, value_name = "N", value_parser = Change::shard_parameters)]
    shard_parameters: Option<Change>,
    /// On the CPU: optimizer (its states and steps), or activations (what forward keeps for backward); may be repeated
    #[arg(long, value_name = "WHAT", value_parser = Change::offload)]
    offload: Vec<Change>,
    /// Logits and loss in K pieces of the sequence, each checkpointed
    #[arg(long, value_name = "K", value_parser = Change::chunk_loss)]
    chunk_loss: Option<Change>,
    /// K forward and backward passes for each step of the optimizer: of batches as recorded, which make K times as much of
    /// them in all, or with fit of batches that are K times smaller
    #[arg(long, value_name = "K", value_parser = Change::accumulate)]
    accumulate: Option<Change>,
    /// Forward passes alone, in evaluation mode and without gradients
    #[arg(long)]
    inference: bool,
}

impl ChangeArgs {
    /// All that were typed, in the order in which they take effect.
    pub fn changes(&self) -> Vec<Change> {
        let single = [
            &self.optimizer,
            &self.shard_optimizer,
            &self.shard_gradients,
            &self.shard_parameters,
            &self.chunk_loss,
            &self.accumulate,
        ];
        let mut changes: Vec<Change> = single.into_iter().flatten().cloned().collect();
        changes.extend(self.checkpoint.iter().chain(&self.offload).cloned());
        changes.extend(self.inference.then_some(Change::Inference));
        changes.sort();
        changes.dedup();
        changes
    }
}
