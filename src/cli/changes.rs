//! Changes of a program, as options.

use crate::play::changes::Edit;
use clap::Args;

/// Changes of the program, played on its requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Changes of the program")]
pub struct ChangeArgs {
    /// Checkpoint the calls of a function, named as `memviz checkpoint` does, or by a part of that; with :every=N the first call
    /// and every N-th after it; may be repeated
    #[arg(long, value_name = "SITE[:every=N]", value_parser = Edit::checkpoint)]
    checkpoint: Vec<Edit>,
    /// Another optimizer: adamw, adam8bit, adafactor, sgd or momentum
    #[arg(long, value_name = "NAME", value_parser = Edit::optimizer)]
    optimizer: Option<Edit>,
    /// States of the optimizer divided between N ranks (ZeRO-1), on the one with most; with :keep-gradients its optimizer drops
    /// its own gradients alone
    #[arg(long, value_name = "N", value_parser = Edit::shard_optimizer)]
    shard_optimizer: Option<Edit>,
    /// States and gradients divided between N ranks (ZeRO-2)
    #[arg(long, value_name = "N", value_parser = Edit::shard_gradients)]
    shard_gradients: Option<Edit>,
    /// Parameters, gradients and states divided between N ranks (ZeRO-3, FSDP), gathered for the layer in use
    #[arg(long, value_name = "N", value_parser = Edit::shard_parameters)]
    shard_parameters: Option<Edit>,
    /// On the CPU: optimizer (its states and steps), or activations (what forward keeps for backward); may be repeated
    #[arg(long, value_name = "WHAT", value_parser = Edit::offload)]
    offload: Vec<Edit>,
    /// Logits and loss in K pieces of the sequence, each checkpointed
    #[arg(long, value_name = "K", value_parser = Edit::chunk_loss)]
    chunk_loss: Option<Edit>,
    /// K forward and backward passes for each step of the optimizer: of batches as recorded, which make K times as much of
    /// them in all, or with fit of batches that are K times smaller
    #[arg(long, value_name = "K", value_parser = Edit::accumulate)]
    accumulate: Option<Edit>,
    /// Forward passes alone, in evaluation mode and without gradients
    #[arg(long)]
    inference: bool,
}

impl ChangeArgs {
    /// All that were typed, in the order in which they take effect.
    pub fn edits(&self) -> Vec<Edit> {
        let single = [
            &self.optimizer,
            &self.shard_optimizer,
            &self.shard_gradients,
            &self.shard_parameters,
            &self.chunk_loss,
            &self.accumulate,
        ];
        let mut edits: Vec<Edit> = single.into_iter().flatten().cloned().collect();
        edits.extend(self.checkpoint.iter().chain(&self.offload).cloned());
        edits.extend(self.inference.then_some(Edit::Inference));
        edits.sort();
        edits.dedup();
        edits
    }
}
