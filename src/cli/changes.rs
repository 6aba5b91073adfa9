//! Changes of a program, as options.

use crate::play::changes::Change;
use clap::Args;

/// Changes of the program, played on its requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Changes of the program")]
pub struct ChangeArgs {
    /// Checkpoint the calls of a function, named as `memviz checkpoint` names it, or by a part of that name; with
    /// :every=N, the first call and every N-th one after it; may be repeated
    #[arg(long, value_name = "SITE[:every=N]", value_parser = Change::checkpoint)]
    checkpoint: Vec<Change>,
    /// Use another optimizer: adamw, adam8bit, adafactor, sgd or momentum
    #[arg(long, value_name = "NAME", value_parser = Change::optimizer)]
    optimizer: Option<Change>,
    /// Shard optimizer state over N ranks (ZeRO-1), seen from the rank with the most; with :keep-gradients, its
    /// optimizer frees only its own gradients
    #[arg(long, value_name = "N", value_parser = Change::shard_optimizer)]
    shard_optimizer: Option<Change>,
    /// Shard optimizer state and gradients over N ranks (ZeRO-2)
    #[arg(long, value_name = "N", value_parser = Change::shard_gradients)]
    shard_gradients: Option<Change>,
    /// Shard parameters, gradients and optimizer state over N ranks (ZeRO-3, FSDP); the layer in use is gathered
    #[arg(long, value_name = "N", value_parser = Change::shard_parameters)]
    shard_parameters: Option<Change>,
    /// Move to the CPU: optimizer (its state and steps), or activations (what forward saves for backward); may be repeated
    #[arg(long, value_name = "WHAT", value_parser = Change::offload)]
    offload: Vec<Change>,
    /// Compute logits and loss in K pieces of the sequence, each checkpointed
    #[arg(long, value_name = "K", value_parser = Change::chunk_loss)]
    chunk_loss: Option<Change>,
    /// Run K forward and backward passes per optimizer step, with batches as recorded (K times as many samples per
    /// step) or, in fit, with batches K times smaller
    #[arg(long, value_name = "K", value_parser = Change::accumulate)]
    accumulate: Option<Change>,
    /// Run only the forward passes, in evaluation mode and without gradients
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
