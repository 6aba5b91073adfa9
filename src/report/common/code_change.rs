//! How to checkpoint a function, and what its time means: shared by the answers that propose it.

use crate::play::changes::CodeChange;

/// The source of times.
pub const TIMES: &str = "recorded CPU time: kernel launches on the host, not time on the GPU";

/// A change to the code: where, and the new code.
pub fn change(change: &CodeChange) -> (String, &'static str) {
    const WRAP: &str = "torch.utils.checkpoint.checkpoint(block, ..., use_reentrant=False)";
    match change {
        CodeChange::Wrap(Some(caller)) => {
            (format!("at {caller}, replace block(...) with this call; arguments and results stay the same"), WRAP)
        }
        CodeChange::WrapForward(caller) => (
            format!(
                "{caller} calls it and is installed code: replace the forward method of each module once, after creating the model"
            ),
            "block.forward = functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)",
        ),
        CodeChange::Wrap(None) => (
            "where it is called, replace block(...) with this call; arguments and results stay the same".to_owned(),
            WRAP,
        ),
        CodeChange::Transformers => (
            "once, after the model is built".to_owned(),
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})",
        ),
    }
}
