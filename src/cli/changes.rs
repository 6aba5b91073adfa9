//! Changes of a program, as options.

use crate::simulation::changes::Change;
use clap::Args;

/// Changes to the program, applied to its recorded requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Changes to the program")]
pub struct ChangeArgs {
    /// Checkpoint the calls to a function; may be repeated
    ///
    /// SITE is the name that `memviz checkpoint` shows, or a part of it. With :every=N, only the first call and every N-th call after
    /// it are checkpointed.
    #[arg(long, value_name = "SITE[:every=N]", value_parser = Change::checkpoint)]
    checkpoint: Vec<Change>,
    /// Use another optimizer: adamw, adam8bit, adafactor, sgd or momentum
    #[arg(long, value_name = "NAME", value_parser = Change::optimizer)]
    optimizer: Option<Change>,
    /// Shard optimizer state across N ranks (ZeRO-1)
    ///
    /// memviz predicts the memory of the rank with the largest shard. With :keep-gradients, the optimizer of each rank frees only the
    /// gradients of its own shard.
    #[arg(long, value_name = "N", value_parser = Change::shard_optimizer)]
    shard_optimizer: Option<Change>,
    /// Shard optimizer state and gradients across N ranks (ZeRO-2)
    #[arg(long, value_name = "N", value_parser = Change::shard_gradients)]
    shard_gradients: Option<Change>,
    /// Also shard parameters across N ranks (ZeRO-3, FSDP)
    ///
    /// Shards parameters, gradients and optimizer state; the layer in use is gathered.
    #[arg(long, value_name = "N", value_parser = Change::shard_parameters)]
    shard_parameters: Option<Change>,
    /// Offload the optimizer or activations to the CPU; may be repeated
    ///
    /// WHAT is optimizer (its state and its step), or activations (the tensors that forward saves for backward).
    #[arg(long, value_name = "WHAT", value_parser = Change::offload)]
    offload: Vec<Change>,
    /// Compute logits and loss in K chunks, each checkpointed
    #[arg(long, value_name = "K", value_parser = Change::chunk_loss)]
    chunk_loss: Option<Change>,
    /// Run K forward and backward passes per optimizer step
    ///
    /// Each pass uses a batch of the recorded size, so a step has K times as many samples; in fit, each pass uses 1/K of the batch.
    #[arg(long, value_name = "K", value_parser = Change::accumulate)]
    accumulate: Option<Change>,
    /// Run only the forward passes, in eval mode and without gradients
    #[arg(long)]
    inference: bool,
}

impl ChangeArgs {
    /// All changes that were typed, in the order in which they take effect.
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
