//! What a program that ran out of memory needs, in words and in JSON.

use crate::model::bytes::Bytes;
use crate::simulation::plans::{Above, Condition, Need, Rest, STATES, Verdict};
use serde::Serialize;

/// What a program that ran out of memory needs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitNeed {
    /// Bounds of the bytes that it needs for the allocator: lower and upper; the latter is null if nothing bounds it from above.
    pub need_bytes: (u64, Option<u64>),
    /// Whether it fits the device: `fits`, `fits_if`, `cannot_fit` or `unknown`.
    pub verdict: &'static str,
    /// The reasons for both bounds, in words.
    pub because: String,
}

impl FitNeed {
    pub fn of(need: &Need, capacity: u64) -> Self {
        let verdict = match need.verdict(capacity) {
            Verdict::Fits => "fits",
            Verdict::FitsIf => "fits_if",
            Verdict::CannotFit => "cannot_fit",
            Verdict::Unknown => "unknown",
        };
        Self { need_bytes: (need.low, need.high), verdict, because: because(need) }
    }
}

/// The range of the need: `at least 7.62 GiB of 7.56 GiB, at most 8.40 GiB`.
pub(crate) fn range(need: &Need, capacity: u64) -> String {
    let there = Bytes(capacity);
    // What a device does not have is more telling than what was in use.
    let least = if need.low > need.live && need.low == capacity.saturating_add(1) {
        format!("more than {there}")
    } else {
        format!("at least {} of {there}", Bytes(need.low))
    };
    match need.high {
        None => least,
        Some(high) => format!("{least}, at most {}", Bytes(high)),
    }
}

/// Whether the program fits a device on which the allocator can use this many bytes, in a sentence without a full stop.
pub(crate) fn verdict(need: &Need, capacity: u64) -> String {
    let needs = range(need, capacity);
    match need.verdict(capacity) {
        Verdict::CannotFit => format!("does not fit: needs {needs}"),
        Verdict::Fits => format!("fits: needs {needs}"),
        Verdict::FitsIf => format!("fits if {}: needs {needs}", conditions(need)),
        Verdict::Unknown if need.high.is_some() => format!("may fit: needs {needs}"),
        Verdict::Unknown => {
            format!("unknown whether it fits: needs {needs}; the recording does not bound what follows")
        }
    }
}

/// What the upper bound assumes: `the optimizer keeps no more than 2 states per parameter, as AdamW does`.
pub(crate) fn conditions(need: &Need) -> String {
    let condition = |condition: &Condition| match condition {
        Condition::States => format!("the optimizer keeps no more than {STATES} states per parameter, as AdamW does"),
        Condition::LossIsLast => "the forward pass ends with this loss".to_owned(),
        Condition::InputsVary => "no later step has larger inputs".to_owned(),
        Condition::Untrained(bytes) => {
            format!("no other step trains the {} of parameters that have no gradients", Bytes(*bytes))
        }
    };
    need.conditions().iter().map(condition).collect::<Vec<_>>().join(" and ")
}

/// The reasons for both bounds.
pub(crate) fn because(need: &Need) -> String {
    let mut least = format!("{} was in use at once, or would have been with the request that failed", Bytes(need.live));
    if let Some(finished) = need.finished {
        least += &format!(", and {} will be if it goes on like what finished", Bytes(finished));
    }
    let most = match need.above {
        Above::Step(step) if step.is_resized => format!(
            "at most what the last complete step needs with the sizes of the failed one ({} of its {} requests are known; others grow \
             at most as much as those)",
            step.requests, step.requests
        ),
        Above::Step(step) => format!(
            "at most what the last complete step needs, which the failed one repeats ({} of its {} requests match){}",
            step.equal,
            step.requests,
            match step.untrained {
                0 => String::new(),
                bytes => format!("; {} of parameters have no gradients in it", Bytes(bytes)),
            }
        ),
        Above::Recording(failed) if failed.is_resized => format!(
            "at most what the run that finished needs with the sizes of the one that failed ({} requests are known; others grow at most \
             as much as those)",
            failed.requests
        ),
        Above::Recording(failed) => {
            format!("at most what the run that finished needs ({} of {} requests match)", failed.equal, failed.requests)
        }
        Above::Rest(rest) => rest_of(rest),
        Above::Nothing(because) => because.to_owned(),
    };
    format!("{least}; {most}")
}

/// What can follow once backward has begun.
fn rest_of(rest: Rest) -> String {
    let Rest { request, gradients, temporaries, workspaces, states, optimizer, freed, .. } = rest;
    let listed = |parts: &[(u64, &str)]| {
        let parts = parts.iter().filter(|(bytes, _)| *bytes > 0);
        parts.map(|(bytes, what)| format!("{} for {what}", Bytes(*bytes))).collect::<Vec<_>>().join(", ")
    };
    let backward = listed(&[
        (request, "the request"),
        (gradients, "gradients of parameters"),
        (temporaries, "backward of the largest part of the model"),
        (workspaces, "workspaces"),
        (states, "optimizer states"),
    ]);
    let freed = if freed > 0 { format!(", after {} was freed", Bytes(freed)) } else { String::new() };
    let last = if rest.is_last_of_forward { "if the forward pass ends with this loss, " } else { "" };
    let assumed = if rest.is_optimizer_assumed {
        format!(
            " (no complete optimizer step was recorded: {STATES} states per parameter and as many temporaries are assumed)"
        )
    } else {
        String::new()
    };
    format!(
        "{last}at most {backward} can be added to what was reserved, and {} for the optimizer{freed}{assumed}, each plus a tenth for \
         placement",
        Bytes(optimizer)
    )
}
