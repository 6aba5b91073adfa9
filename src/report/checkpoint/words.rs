//! What reports say about checkpointing, in words; shared by text, Markdown, JSON and the picture.

use crate::analysis::checkpoint::DeviceCheckpoint;
use crate::analysis::checkpoint::{Candidate, EveryNth, NoCandidates};
use crate::facts::grouping::attribution::Row;
use crate::facts::training::Phase;
use crate::model::Format;
use crate::model::bytes::Bytes;
use crate::report::common::code_change::TIMES;
use crate::report::common::notes::{self, duration, signed};
use crate::report::common::words::{count, ordinal};
use crate::report::fit::single::words as plan;
use crate::report::percent;
use crate::simulation::changes::{Checkpointed, CodeChange};

/// The label of the row for the recomputed call.
pub const RERUN: &str = "(the recomputed call)";
/// The label of the row for workspaces that the engine's thread needs to recompute calls.
pub const WORKSPACES: &str = "(workspaces of the autograd thread)";
/// The note for rows of several candidates.
pub const ALTERNATIVES: &str = "alternatives: their savings cannot be added together";
/// A remedy that saves at least this share of the peak is worth a sentence.
const MUCH_PERCENT: f64 = 5.0;

/// The answer in a few words.
pub fn headline(device: &DeviceCheckpoint) -> String {
    if device.peak_bytes == 0 {
        return format!("{}: nothing was allocated", notes::device_name(device.device));
    }
    let peak = if is_peak(device) { "peak " } else { "" };
    format!("{}: {peak}allocated {}", notes::device_name(device.device), signed(device.peak_bytes))
}

/// Whether the instant is known to be the peak. If the kept history starts at its maximum, or nothing was recorded, it is an
/// ordinary state.
fn is_peak(device: &DeviceCheckpoint) -> bool {
    !device.completeness.no_entries && (device.peak.instant > 0 || !device.completeness.has_baseline)
}

/// Where the recorded peak is.
pub fn place(device: &DeviceCheckpoint) -> String {
    let place = notes::position(&device.peak, device.entries, &device.completeness);
    match device.phase {
        _ if device.completeness.no_entries => place,
        Phase::Other => format!("{place}; no phase recognized"),
        phase => format!("{place}; {} phase", phase.name()),
    }
}

/// The place in a training step: `in the backward phase`.
fn in_phase(phase: Phase) -> String {
    match phase {
        Phase::Other => "in no recognized phase".to_owned(),
        phase => format!("in the {} phase", phase.name()),
    }
}

/// Notes about the figures of one device, one line each.
pub fn limits(device: &DeviceCheckpoint) -> Vec<String> {
    let mut lines = notes::limits(&device.completeness, &device.baseline);
    lines.extend(notes::anomalies(&device.anomalies));
    if device.untried > 0 {
        let functions = count(device.untried as u64, "more function");
        let their = if device.untried == 1 { "its" } else { "their" };
        lines.push(format!("{functions} not tried; {their} calls hold less of the peak"));
    }
    lines
}

/// Which calls to checkpoint so that the peak stays below a limit, if one is given, one line each.
pub fn within(device: &DeviceCheckpoint) -> Vec<String> {
    device.fit.as_ref().map_or_else(Vec::new, plan::below)
}

/// The activations at the peak; `None` if it is unknown what backward would have freed.
pub fn activations(device: &DeviceCheckpoint) -> Option<u64> {
    (device.none != Some(NoCandidates::Unfinished)).then_some(device.activation_bytes)
}

/// Properties of the recording: activations, forward passes, and what is already checkpointed.
pub fn facts(device: &DeviceCheckpoint) -> Vec<String> {
    if device.passes == 0 {
        return Vec::new();
    }
    let mut facts = Vec::new();
    if let Some(held) = activations(device).filter(|&held| held > 0) {
        let of_peak = |bytes: u64| percent(bytes, u64::try_from(device.peak_bytes).unwrap_or(0));
        let what = if device.without_backward {
            "kept for a backward pass that the recording does not contain"
        } else {
            "is freed in the backward pass"
        };
        let (bytes, share, kept) = (Bytes(held), of_peak(held), Bytes(device.kept_bytes));
        let whole = if is_peak(device) { "the peak" } else { "allocated memory" };
        // If this differs from the activations category, both are stated, since other answers show the category.
        facts.push(if device.kept_bytes == 0 || kept.to_string() == bytes.to_string() {
            format!("{bytes} of {whole} ({share:.1}%) was allocated in the forward pass and {what}")
        } else {
            let all = of_peak(device.kept_bytes);
            format!(
                "{kept} of {whole} ({all:.1}%) is activations; {bytes} ({share:.1}%) was allocated in the forward pass and {what}"
            )
        });
    }
    // Nothing is predicted from these passes, and the entries of each device show other times of them.
    if matches!(device.none, Some(NoCandidates::NoLines | NoCandidates::NoStacks)) {
        return facts;
    }
    let mut counted: Vec<&str> = Vec::new();
    // Others keep nothing for a backward pass, or are followed by one.
    if device.without_backward {
        counted.push(
            "only passes that keep memory for a backward pass that the recording does not contain are counted; those with no \
             entries in between count as one",
        );
    }
    if device.joins_passes {
        counted.push("forward work before the same backward pass counts as one pass");
    }
    if device.has_other_passes {
        counted.push("passes after the last backward pass are not counted");
    }
    let counted = if counted.is_empty() { String::new() } else { format!("; {}", counted.join(", and ")) };
    facts.push(match (device.passes, device.forward_us) {
        (1, Some(time)) => format!("1 forward pass of {} ({TIMES}){counted}", duration(time)),
        (1, None) => format!("1 forward pass{counted}"),
        (passes, Some(time)) => {
            format!("{passes} forward passes, {} each on average ({TIMES}){counted}", duration(time))
        }
        (passes, None) => format!("{passes} forward passes{counted}"),
    });
    facts.extend(device.checkpointed.iter().map(checkpointed));
    if device.compiled_bytes * 2 > device.activation_bytes && device.activation_bytes > 0 {
        facts.push(compiled(device));
    }
    facts
}

/// What to do about activations of compiled code.
fn compiled(device: &DeviceCheckpoint) -> String {
    format!(
        "compiled code allocates {} of activations: with torch._functorch.config.activation_memory_budget below 1, AOTAutograd \
         keeps less for backward and recomputes the rest; apply torch.utils.checkpoint before compiling",
        Bytes(device.compiled_bytes)
    )
}

fn checkpointed(function: &Checkpointed) -> String {
    let (calls, all) = (function.calls, function.calls + function.other_calls);
    let which = match (calls, function.other_calls) {
        (1, 0) => "its only call".to_owned(),
        (_, 0) => format!("all {calls} calls"),
        _ => format!("{calls} of {all} calls"),
    };
    format!("{} is already checkpointed in {which} per forward pass", function.label)
}

/// Why there are no candidates.
pub fn reason(device: &DeviceCheckpoint, format: Format) -> Option<String> {
    let reason = match device.none? {
        NoCandidates::NoHistory => "the effect of checkpointing cannot be predicted without a history".to_owned(),
        NoCandidates::NoStacks => {
            let remedy = match format {
                Format::CudaSnapshot => "_record_memory_history records them by default",
                Format::ProfilerTrace => "torch.profiler records them with with_stack=True",
                // Refused before this point.
                Format::DeviceMemoryProfile => "a profile of one instant has none",
                Format::MemoryTimeline => "a memory timeline has none; a torch.profiler trace has them if it was recorded with with_stack=True",
            };
            format!("there are no Python stacks, so forward functions are unknown: {remedy}")
        }
        NoCandidates::NoLines => {
            "a profiler trace records the line where each function starts, but not the line it is executing, so one call of \
             a function cannot be distinguished from the next; a torch.cuda.memory snapshot records both"
                .to_owned()
        }
        NoCandidates::NoForward => {
            "the recording has no forward pass of a module, so activation checkpointing has nothing to change".to_owned()
        }
        NoCandidates::NoTrainingStep if device.compiled_bytes > 0 => compiled(device),
        NoCandidates::NoTrainingStep if device.kept_bytes > 0 => format!(
            "no backward pass follows a forward pass in the recording, so how much of the {} of activations it would \
             free is unknown",
            Bytes(device.kept_bytes)
        ),
        NoCandidates::NoTrainingStep if device.kept_at_end_bytes > 0 => format!(
            "no backward pass follows a forward pass in the recording; the {} of activations kept for one at the end are \
             not live at the peak, so activation checkpointing would not lower it",
            Bytes(device.kept_at_end_bytes)
        ),
        NoCandidates::NoTrainingStep => {
            "no backward pass follows a forward pass in the recording, and forward passes keep no memory for backward (as under \
             torch.no_grad()), so activation checkpointing would free nothing"
                .to_owned()
        }
        NoCandidates::Unfinished => {
            "the training step at the peak is incomplete in the recording, so what its backward pass would have freed is \
             unknown; record a complete step, with a smaller batch if necessary"
                .to_owned()
        }
        NoCandidates::NoBackward => {
            "the peak is in a forward pass that no backward pass follows, where checkpointing changes nothing"
                .to_owned()
        }
        NoCandidates::PeakInOptimizer => in_optimizer(device),
        NoCandidates::NothingRepeats => {
            let another = if device.checkpointed.is_empty() { "" } else { "other " };
            format!("the recording shows no {another}function that a forward pass calls more than once, so memviz tried none")
        }
        NoCandidates::LaterUnfinished => {
            "a later training step, which needs at least about as much memory, is incomplete in the recording, so what \
             checkpointing would free in it is unknown; record that step completely, with a smaller batch if necessary"
                .to_owned()
        }
        NoCandidates::NothingSaves => {
            let another = if device.checkpointed.is_empty() { "" } else { "other " };
            let place = match device.phase {
                Phase::Other => String::new(),
                phase => format!(" {}", in_phase(phase)),
            };
            format!(
                "none of the {another}functions that memviz tried would lower the peak{place} if it were checkpointed; memviz tries \
                 functions that a forward pass calls more than once"
            )
        }
    };
    Some(reason)
}

/// Why checkpointing does not lower a peak in the optimizer, and the memory at it.
fn in_optimizer(device: &DeviceCheckpoint) -> String {
    let mut reason =
        "the peak is in the optimizer step, after the backward pass has freed what the forward pass kept: checkpointing does \
                      not lower it"
            .to_owned();
    let Some(peak) = &device.optimizer else { return reason };
    if let Some(elsewhere) = peak.elsewhere_bytes {
        reason.push_str(&format!(" (the forward and backward passes reach {})", signed(elsewhere)));
    }
    let parts = [
        (peak.kept_bytes, "that the optimizer allocated and keeps"),
        (peak.temporary_bytes, "of temporary memory in its step"),
        (peak.backward_bytes, "allocated in the backward pass (gradients)"),
        (peak.other_bytes, "of other memory"),
    ];
    let parts = parts.into_iter().filter(|&(bytes, _)| bytes > 0);
    let parts: Vec<String> = parts.map(|(bytes, what)| format!("{} {what}", Bytes(bytes))).collect();
    reason.push_str(&format!(". At the peak: {}.", parts.join(", ")));
    let is_much = |bytes: u64| percent(bytes, u64::try_from(device.peak_bytes).unwrap_or(0)) >= MUCH_PERCENT;
    if is_much(peak.temporary_bytes) && peak.foreach {
        reason.push_str(" With foreach=False or fused=True the optimizer allocates much less temporary memory.");
    }
    if is_much(peak.kept_bytes) {
        reason.push_str(" An optimizer with less state, or state sharded across ranks, would need less memory.");
    }
    if let Some(held) = &peak.forward_function {
        let (calls, bytes) = (count(held.calls as u64, "call"), Bytes(held.bytes));
        let caller = match &held.change {
            CodeChange::Wrap { caller: Some(caller), .. } | CodeChange::WrapForward(caller) => {
                format!(" from {caller}")
            }
            _ => String::new(),
        };
        reason.push_str(&format!(
            " Of the memory that the forward pass keeps for the backward pass, {} holds the most: {bytes} in {calls}{caller}. \
             Checkpointing it lowers the peak only once the optimizer needs less.",
            held.label
        ));
    }
    reason
}

/// The effect of a candidate: `predicted peak 2.71 GiB, 1.43 GiB (34.6%) less`.
pub fn effect(device: &DeviceCheckpoint, candidate: &Candidate) -> String {
    let (new, saved) = (signed(candidate.predicted_peak_bytes), signed(candidate.saved_bytes));
    format!("predicted peak {new}, {saved} ({:.1}%) less", saved_percent(device, candidate.saved_bytes))
}

/// A saving in percent of the recorded peak.
pub fn saved_percent(device: &DeviceCheckpoint, saved: i64) -> f64 {
    if device.peak_bytes == 0 { 0.0 } else { saved as f64 * 100.0 / device.peak_bytes as f64 }
}

/// The memory that its calls hold.
pub fn held(candidate: &Candidate) -> String {
    let calls = count(candidate.calls as u64, "call");
    let (keep, hold) = if candidate.calls == 1 { ("keeps", "it holds") } else { ("keep", "they hold") };
    format!(
        "{calls} in a forward pass {keep} memory for backward; at the recorded peak {hold} {} that checkpointing frees",
        Bytes(candidate.activation_bytes)
    )
}

/// Why checkpointing fewer calls saves more, if it does.
pub fn uneven(candidate: &Candidate) -> Option<&'static str> {
    let peaks: Vec<i64> = plan(candidate).into_iter().map(|(_, plan)| plan.predicted_peak_bytes).collect();
    (!peaks.is_sorted())
        .then_some("every Nth: the first call, and every Nth after it; calls keep different amounts of memory")
}

/// Why a candidate saves more than its calls hold, if one does.
pub fn beyond(candidates: &[Candidate]) -> Option<&'static str> {
    let saves_more = |it: &Candidate| {
        let saved = u64::try_from(it.saved_bytes).unwrap_or(0);
        saved > it.activation_bytes && Bytes(saved).to_string() != Bytes(it.activation_bytes).to_string()
    };
    candidates.iter().any(saves_more).then_some(
        "checkpointing a function may save more than its calls hold, because the allocator then places other blocks \
         differently and loses less to rounding",
    )
}

/// The cost of recomputing its calls.
pub fn cost(device: &DeviceCheckpoint, candidate: &Candidate) -> Option<String> {
    let time = candidate.recompute_us?;
    let share = share_of_forward(device, candidate).map(|share| format!(", {:.1}% of the forward pass", share * 100.0));
    let runs = if device.without_backward { "a backward pass would recompute" } else { "backward recomputes" };
    let calls = if candidate.calls == 1 { "the call" } else { "the calls" };
    Some(format!("{runs} {calls}: {} for each forward pass{}", duration(time), share.unwrap_or_default()))
}

/// The recomputed part of a forward pass, from 0 to 1.
pub fn share_of_forward(device: &DeviceCheckpoint, candidate: &Candidate) -> Option<f64> {
    let (part, whole) = (candidate.recompute_us?, device.forward_us.filter(|&time| time > 0)?);
    Some(part as f64 / whole as f64)
}

/// Where the new peak is.
pub fn new_peak(device: &DeviceCheckpoint, candidate: &Candidate) -> String {
    let limit = &candidate.limit;
    let place = notes::position(&limit.moment, device.entries, &device.completeness);
    let phase = in_phase(limit.phase);
    let when = if limit.rerun { ", while a call is recomputed" } else { "" };
    let unknown = if device.without_backward {
        "; the missing backward pass is not included: it needs gradients, and the memory of a recomputed call"
    } else if limit.is_unfinished {
        "; the training step there is incomplete in the recording, so what checkpointing would free in it is unknown"
    } else {
        ""
    };
    format!("the new peak is {phase}{when} ({place}){unknown}")
}

/// The memory at the new peak, with its own row for the recomputed call.
pub fn limit_rows(candidate: &Candidate) -> Vec<Row> {
    let limit = &candidate.limit;
    let row = |label: &str, bytes| Row { label: label.to_owned(), bytes, ..Row::default() };
    let rerun = limit.rerun.then(|| row(RERUN, limit.rerun_bytes));
    let workspaces = (limit.workspace_bytes > 0).then(|| row(WORKSPACES, limit.workspace_bytes));
    rerun.into_iter().chain(limit.rows.iter().cloned()).chain(workspaces).collect()
}

/// Candidates that `--top` left out.
pub fn more(left_out: usize) -> String {
    format!("{}; --top shows them", count(left_out as u64, "more candidate"))
}

/// The distinct lines of a plan: which calls, and the smallest savings among the plans that the line represents.
pub fn plan(candidate: &Candidate) -> Vec<(String, EveryNth)> {
    let same = |a: &EveryNth, b: &EveryNth| signed(a.predicted_peak_bytes) == signed(b.predicted_peak_bytes);
    candidate
        .plan
        .chunk_by(same)
        .filter_map(|plans| {
            let (first, last) = (plans.first()?, plans.last()?);
            let which = match (first.every, last.every) {
                (1, 1) => "all".to_owned(),
                (1, 2) => "all, or every 2nd".to_owned(),
                (1, last) => format!("all, or every 2nd to {}", ordinal(last)),
                (first, last) if first == last => format!("every {}", ordinal(first)),
                (first, last) if first + 1 == last => format!("every {} or {}", ordinal(first), ordinal(last)),
                (first, last) => format!("every {} to {}", ordinal(first), ordinal(last)),
            };
            let least = plans.iter().max_by_key(|plan| plan.predicted_peak_bytes)?;
            Some((which, *least))
        })
        .collect()
}
