//! What reports say about leaks, in words; shared by text, Markdown and JSON.

use crate::analysis::leaks::growth::{Rate, Verdict};
use crate::analysis::leaks::{DeviceLeaks, LeakRow};
use crate::analysis::leaks::{MIN_STEPS, Oldest, Projection};
use crate::facts::grouping::GroupBy;
use crate::facts::training::steps::NoSteps;
use crate::model::bytes::Bytes;
use crate::report::common::notes::{self, signed};
use crate::report::common::training;
use crate::report::common::words::count;

/// The answer in a few words.
pub fn headline(device: &DeviceLeaks) -> String {
    let steps = count(device.step_count(), "step");
    let (leak, growth) = (rate(&device.leaking), rate(&device.growing));
    let leaks = has(device, Verdict::Leak);
    // Memory that accumulates because of a known mistake is a leak, whether or not there are steps to measure it.
    let piles_up = device.cures.iter().find(|cure| cure.kind.piles_up());
    let place =
        piles_up.and_then(|cure| cure.line.as_ref()).map_or(String::new(), |line| format!(" at {}", line.label));
    let no_rate = |why: &str| match piles_up {
        None => format!("cannot detect leaks: {why}"),
        Some(_) => format!("memory accumulates{place}; the rate per step is unknown: {why}"),
    };
    let freed = if frees_some(device) { ", some of which is freed later" } else { "" };
    match (&device.steps, device.is_judged()) {
        (Err(NoSteps::NoHistory), _) => no_rate("no history was recorded"),
        (Err(NoSteps::Unknown), _) => no_rate("no steps found"),
        (_, false) => no_rate("too few steps"),
        _ if !device.tells_leaks() && has(device, Verdict::Growth) => {
            format!("growth of {growth} per iteration of a loop; cannot tell whether it is a leak")
        }
        _ if !device.tells_leaks() => no_rate("no steps found"),
        _ if leaks && has(device, Verdict::Growth) => format!("leaks {leak} per step and grows by {growth}"),
        _ if leaks => format!("leaks {leak} per step"),
        _ if has(device, Verdict::Growth) && !is_higher(device) => {
            format!("no leak in {steps}; growth of {growth} per step{freed}, although allocated memory does not rise")
        }
        _ if has(device, Verdict::Growth) => format!("no leak in {steps}, but growth of {growth} per step{freed}"),
        // Whatever accumulates is freed before a step ends.
        _ if piles_up.is_some() => format!("no leak across {steps}, but memory accumulates within steps{place}"),
        _ => format!("no leak in {steps}"),
    }
}

/// Whether some of the memory that grows is freed later. Blocks that are replaced by larger ones do not become more.
fn frees_some(device: &DeviceLeaks) -> bool {
    device.rows.iter().any(|row| row.verdict == Verdict::Growth && blocks(row.rate.blocks) != blocks(0.0))
}

/// Whether more is allocated at the end of the last step than at the end of the first, as [`course`] shows.
fn is_higher(device: &DeviceLeaks) -> bool {
    let (first, last) = (device.ends.first(), device.ends.last());
    first.zip(last).is_none_or(|(first, last)| last.allocated_bytes > first.allocated_bytes)
}

/// The requested bytes, and the bytes of the blocks if they differ by more than a hundredth.
pub fn rate(rate: &Rate) -> String {
    let requested = Bytes(rate.bytes);
    let (asked, got) = (i128::from(rate.bytes), i128::from(rate.allocated_bytes));
    if (got - asked).abs() * 100 > asked {
        format!("{requested} requested ({} allocated)", signed(rate.allocated_bytes))
    } else {
        requested.to_string()
    }
}

/// Whether a device has a row with this verdict; for rows that were left out, their rates count.
fn has(device: &DeviceLeaks, verdict: Verdict) -> bool {
    let rate = match verdict {
        Verdict::Leak => device.leaking,
        Verdict::Growth => device.growing,
        Verdict::Cache | Verdict::Renewed => Rate::default(),
    };
    rate.bytes > 0 || device.rows.iter().any(|row| row.verdict == verdict)
}

/// What the steps are, and which of them count; or why there are none, if [`limits`] does not state it.
pub fn steps(device: &DeviceLeaks) -> Option<String> {
    let steps = match &device.steps {
        Ok(steps) => steps,
        Err(NoSteps::NoHistory) => return None,
        Err(NoSteps::Unknown) => return Some(training::NO_STEPS.to_owned()),
    };
    let what = training::steps(steps);
    let every = if device.stride > 1 { format!("; sampled every {} steps", device.stride) } else { String::new() };
    if !steps.are_steps() {
        return Some(format!("{what}{every}; {}", training::NO_STEPS));
    }
    Some(match (device.is_judged(), device.warm_up) {
        (false, _) => format!("{what}{}; record {MIN_STEPS} or more steps", levels(device)),
        (true, 1) => format!("{what}; the first is a warm-up step{every}"),
        (true, warm_up) => format!("{what}; the first {warm_up} are warm-up steps{every}"),
    })
}

/// The memory at the ends of steps, if there are too few of them for a verdict.
fn levels(device: &DeviceLeaks) -> String {
    let (Some(first), Some(last)) = (device.ends.first(), device.ends.last()) else { return String::new() };
    let (from, to) = (first.allocated_bytes, last.allocated_bytes);
    match device.ends.len() {
        0 | 1 => String::new(),
        _ if device.ends.iter().all(|end| end.allocated_bytes == from) => {
            format!("; {} is allocated at the end of each", signed(from))
        }
        _ => format!("; {} is allocated at the end of the first, {} at the end of the last", signed(from), signed(to)),
    }
}

pub fn limits(device: &DeviceLeaks) -> Vec<String> {
    let mut lines = notes::limits(&device.completeness, &device.baseline);
    lines.extend(notes::anomalies(&device.anomalies));
    lines
}

/// What the curve of allocated memory at the ends of steps shows, if any of it grows.
pub fn course(device: &DeviceLeaks) -> Option<String> {
    let grows = has(device, Verdict::Leak) || has(device, Verdict::Growth);
    let (first, last) = (device.ends.first().filter(|_| grows)?, device.ends.last()?);
    let (from, to) = (signed(first.allocated_bytes), signed(last.allocated_bytes));
    let [start, end] = [first.step, last.step].map(|step| name(device, step));
    (first.step < last.step).then(|| format!("allocated at the end of {start}: {from}; at the end of {end}: {to}"))
}

/// What a step is called.
fn name(device: &DeviceLeaks, step: usize) -> String {
    notes::safe(&device.steps.as_ref().map_or_else(|_| format!("step {step}"), |steps| steps.name(step)))
}

/// When the device is full, or why that is unknown.
pub fn full(device: &DeviceLeaks) -> Option<String> {
    if let Some(known) = &device.projection {
        return Some(projection(known, !has(device, Verdict::Leak) && frees_some(device)));
    }
    let capacity = Bytes(device.capacity?);
    let why = match (&device.steps, device.is_judged() && device.tells_leaks()) {
        (Err(_), _) => "no steps found",
        (_, false) => "too few steps",
        _ => return Some(format!("nothing grows from step to step, so the device ({capacity}) does not fill up")),
    };
    Some(format!("memviz cannot predict when the device ({capacity}) will be full: {why}"))
}

fn projection(projection: &Projection, frees_some: bool) -> String {
    let capacity = Bytes(projection.capacity_bytes);
    let (rate, peak) = (signed(projection.allocated_bytes_per_step), signed(projection.peak_bytes));
    let when = match projection.steps {
        0 => "in the next step".to_owned(),
        1 => "after 1 more step".to_owned(),
        steps => format!("after {steps} more steps"),
    };
    let is_full = if frees_some { "would be full" } else { "is full" };
    let unless = if frees_some { " if nothing were freed" } else { "" };
    format!(
        "at {rate} allocated per step, the device ({capacity}) {is_full} {when}{unless} (the last step peaked at {peak})"
    )
}

/// A verdict in a word. In PyTorch, the cache is the free memory of the allocator.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Cache => "kept",
        other => other.name(),
    }
}

/// What the bytes of rows are, without and with the column for live bytes; `None` if there is nothing to compare them with.
pub fn requested(rows: &[LeakRow]) -> (Option<&'static str>, &'static str) {
    // The rates of steps are compared with totals, which are allocated bytes.
    let is_rounded = |row: &LeakRow| i128::from(row.rate.bytes) != i128::from(row.rate.allocated_bytes);
    if rows.iter().any(is_rounded) {
        (
            Some("per step: bytes that the program requested; the allocator rounds them up"),
            "per step, live: bytes that the program requested; the allocator rounds them up",
        )
    } else {
        // Other answers show the allocated bytes of the same blocks.
        (None, "live: bytes that the program requested; the allocator rounds them up")
    }
}

/// Whether the steps are iterations of a loop that calls no model.
fn is_loop(device: &DeviceLeaks) -> bool {
    device.steps.as_ref().is_ok_and(|steps| !steps.are_steps())
}

/// The meaning of the words in these rows.
pub fn legend(device: &DeviceLeaks, rows: &[LeakRow]) -> Vec<&'static str> {
    let has = |verdict| rows.iter().any(|row| row.verdict == verdict);
    let growth = "growth: blocks are replaced by larger ones (KV cache, torch.cat, longer inputs), or some of them are freed later";
    let kept = if is_loop(device) {
        "kept: live at the end of the last iteration, but not growing; blocks that this iteration allocated are left out"
    } else {
        "kept: live at the end of the last step, but not growing (parameters, gradients, optimizer state, workspaces)"
    };
    let renewed =
        "renewed: live at the end of each step, and replaced in the next one (gradients, or what a variable keeps)";
    let verdicts = [(Verdict::Growth, growth), (Verdict::Cache, kept), (Verdict::Renewed, renewed)];
    let verdicts = verdicts.into_iter().filter_map(|(verdict, meaning)| has(verdict).then_some(meaning));
    verdicts.chain(rows.iter().any(|row| row.inferred).then_some(notes::inferred(GroupBy::Site))).collect()
}

/// The origin of the oldest block.
pub fn oldest(device: &DeviceLeaks, oldest: &Oldest) -> String {
    let (Some(entry), Some(step)) = (oldest.entry, oldest.step) else {
        return "from before the recording".to_owned();
    };
    let time = oldest.since_start_us.map(|since| format!(", after {}", notes::duration(since)));
    format!("allocated in {} at entry {entry}{}", name(device, step), time.unwrap_or_default())
}

pub fn blocks(rate: f64) -> String {
    if rate.fract().abs() < 0.005 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}

pub fn behavior(device: &DeviceLeaks, row: &LeakRow) -> String {
    let rate = rate(&row.rate);
    let number = blocks(row.rate.blocks);
    let noun = if number == "1" { "block" } else { "blocks" };
    match (row.verdict, row.filled_in_step) {
        (Verdict::Leak, _) => format!("leak of {number} {noun}, {rate} per step"),
        (Verdict::Growth, _) if number == "0" => {
            format!("growth of {rate} per step: the same number of blocks, each larger than the one it replaces")
        }
        (Verdict::Growth, _) => {
            format!("growth of {number} {noun}, {rate}, per step; some of the blocks are freed later")
        }
        (Verdict::Cache, Some(step)) => format!("kept; allocated by the end of {}", name(device, step)),
        (Verdict::Cache | Verdict::Renewed, _) => verdict(row.verdict).to_owned(),
    }
}
