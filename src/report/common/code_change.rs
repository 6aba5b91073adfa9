//! How to checkpoint a function, and what its time means: shared by the answers that propose it.

use super::words::count;
use crate::simulation::changes::CodeChange;

/// The source of times.
pub const TIMES: &str = "recorded CPU time, not time on the GPU";

pub fn change(change: &CodeChange) -> (String, &'static str) {
    match change {
        CodeChange::Wrap { caller, others } => {
            let lines = caller.as_deref().map(|caller| (caller, others.as_slice()));
            wrap(lines, if lines.is_some() && others.is_empty() { "the call" } else { "each call" })
        }
        CodeChange::WrapForward(caller) => (
            format!(
                "the call is in installed code ({caller}): replace the forward method of each such module once, after creating the model"
            ),
            "block.forward = functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)",
        ),
        CodeChange::Transformers => (
            "once, after the model is built".to_owned(),
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})",
        ),
    }
}

pub fn wrap(lines: Option<(&str, &[String])>, calls: &str) -> (String, &'static str) {
    let place = lines.map_or(String::new(), |(caller, others)| format!("{}, ", at(caller, others)));
    (
        format!("{place}replace {calls}, shown here as block(...), with this one; arguments and results stay the same"),
        "torch.utils.checkpoint.checkpoint(block, ..., use_reentrant=False)",
    )
}

/// The most lines with calls that are named.
const NAMED: usize = 8;

/// Lines with calls, in a phrase.
fn at(caller: &str, others: &[String]) -> String {
    let (named, unnamed) = others.split_at(others.len().min(NAMED));
    let last = match (named, unnamed.len() as u64) {
        ([], 0) => return format!("at {caller}"),
        ([named @ .., last], 0) => (named, last.clone()),
        (named, unnamed) => (named, count(unnamed, "other line")),
    };
    let lines = last.0.iter().fold(caller.to_owned(), |lines, line| format!("{lines}, {line}"));
    format!("at {lines} and {}", last.1)
}

/// The name of a function to checkpoint, and a line that calls it if the function is PyTorch's own.
pub fn function(label: &str, change: &CodeChange) -> String {
    let name = if label.starts_with("torch/nn/modules/container.py:") { "nn.Sequential" } else { label };
    match change {
        CodeChange::Wrap { caller: Some(caller), others } if label.starts_with("torch/") => {
            format!("{name} (called {})", at(caller, others))
        }
        _ => name.to_owned(),
    }
}
