//! The lines to change for a plan.

use super::words::settings;
use crate::report::common::code_change;
use crate::report::common::words::ordinal;
use crate::report::simulate::words as simulate;
use crate::simulation::changes::{Change, CodeChange, Optimizer, chunked_loss};
use crate::simulation::plans::{Plan, PlannedChange};

/// A change to the code: where, and the new code.
pub fn code(change: &PlannedChange) -> (String, String) {
    match (&change.change, &change.code) {
        (Change::Checkpoint { site, every }, code) => checkpointed(site, *every, code.as_ref()),
        (Change::Optimizer(optimizer), _) => {
            let made = match optimizer {
                Optimizer::AdamW => "torch.optim.AdamW(model.parameters(), ...)",
                Optimizer::Adam8bit => {
                    "bitsandbytes.optim.AdamW8bit(model.parameters(), ...)  # Adam8bit for torch.optim.Adam"
                }
                Optimizer::Adafactor => "torch.optim.Adafactor(model.parameters(), ...)",
                Optimizer::Sgd => "torch.optim.SGD(model.parameters(), ...)",
                Optimizer::Momentum => "torch.optim.SGD(model.parameters(), ..., momentum=0.9)",
            };
            ("where the optimizer is created".to_owned(), format!("optimizer = {made}"))
        }
        (Change::OffloadOptimizer, _) => (
            "after the line that creates the optimizer".to_owned(),
            "optimizer = torchao.optim.CPUOffloadOptimizer(model.parameters(), type(optimizer), ...)".to_owned(),
        ),
        (Change::ShardOptimizer { ranks, .. }, _) => (
            format!("after the line that creates the optimizer, on {ranks} ranks under DistributedDataParallel"),
            "optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), type(optimizer), ...)"
                .to_owned(),
        ),
        (Change::ShardParameters { ranks }, _) => (
            format!("where the model is built, on {ranks} ranks, for each layer and then the model"),
            "torch.distributed.fsdp.fully_shard(module)".to_owned(),
        ),
        (Change::ShardGradients { ranks }, _) => (
            format!("in DeepSpeed's configuration, on {ranks} ranks"),
            "{\"zero_optimization\": {\"stage\": 2}}".to_owned(),
        ),
        (Change::OffloadActivations, _) => (
            "around forward".to_owned(),
            "with torch.autograd.graph.save_on_cpu(pin_memory=True): loss = model(batch)".to_owned(),
        ),
        (Change::ChunkLoss { pieces }, _) => {
            ("replace the code that computes logits and loss".to_owned(), chunked_loss(*pieces).join("\n"))
        }
        (Change::Accumulate { passes }, _) => (
            format!("in the loop, with batches 1/{passes} the size, and optimizer.step() after every {passes} batches"),
            format!("(loss / {passes}).backward()"),
        ),
        (Change::Inference, _) => {
            ("around the whole program".to_owned(), "with torch.no_grad(): model(batch)".to_owned())
        }
    }
}

/// The code that checkpoints some of the calls of a function.
fn checkpointed(site: &str, every: usize, code: Option<&CodeChange>) -> (String, String) {
    // A module's forward can be wrapped from outside, regardless of the caller.
    let is_wrapped = matches!(code, Some(CodeChange::Wrap { .. } | CodeChange::WrapForward(_)));
    // `gradient_checkpointing_enable` would checkpoint the layers, whichever function this is.
    if site.ends_with(" forward") && !(every == 1 && is_wrapped) {
        let which = match every {
            1 => format!("each module whose forward is {site}"),
            every => format!("every {} module whose forward is {site}, starting with the first", ordinal(every)),
        };
        return (
            format!("run this once after the model is built, on {which}"),
            "module.forward = functools.partial(torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False)"
                .to_owned(),
        );
    }
    let calls = match every {
        1 => format!("each call to {site}"),
        every => format!("every {} call to {site}, starting with the first", ordinal(every)),
    };
    let (place, line) = match code {
        Some(code) if every == 1 => code_change::change(code),
        Some(CodeChange::Wrap { caller: Some(caller), others }) => code_change::wrap(Some((caller, others)), &calls),
        _ => code_change::wrap(None, &calls),
    };
    (place, line.to_owned())
}

/// The settings of a plan and the line to export for them; `None` if the settings stay the same.
pub fn export(plan: &Plan) -> Option<(String, String)> {
    let conf = plan.alloc_conf.as_deref()?;
    Some((format!("for {}, before the program starts:", settings(conf)), simulate::export(conf)))
}
