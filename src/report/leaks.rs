//! What reports say about leaks, in words; shared by text, Markdown and JSON.

use super::notes::{self, signed};
use crate::analysis::leaks::{MIN_STEPS, Projection, Survivor};
use crate::analysis::{DeviceLeaks, LeakRow, StepSource, Verdict};
use crate::model::bytes::Bytes;

/// `1 step`, `20 steps`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The answer in a few words.
pub fn headline(device: &DeviceLeaks) -> String {
    let steps = count(device.step_count(), "step");
    let (leak, growth) = (Bytes(device.leak_bytes_per_step), Bytes(device.growth_bytes_per_step));
    let leaks = has(device, Verdict::Leak);
    match (&device.steps, device.is_judged()) {
        (Err(_), _) => "no steps found".to_owned(),
        (_, false) => format!("{steps}, too few to tell a leak"),
        _ if leaks && has(device, Verdict::Growth) => format!("leaks {leak} per step, and grows by {growth}"),
        _ if leaks => format!("leaks {leak} per step"),
        _ if has(device, Verdict::Growth) => format!("no leak in {steps}, but growth of {growth} per step"),
        _ => format!("no leak in {steps}"),
    }
}

/// Whether a device has a row with this verdict; those that were left out count by their rates.
fn has(device: &DeviceLeaks, verdict: Verdict) -> bool {
    let rate = match verdict {
        Verdict::Leak => device.leak_bytes_per_step,
        Verdict::Growth => device.growth_bytes_per_step,
        Verdict::Cache => 0,
    };
    rate > 0 || device.rows.iter().any(|row| row.verdict == verdict)
}

/// What the steps are, and which of them count; or why there are none.
pub fn steps(device: &DeviceLeaks) -> String {
    let steps = match &device.steps {
        Ok(steps) => steps,
        Err(reason) => return format!("{reason}; --steps names the annotations that are steps"),
    };
    let number = count(steps.len(), "step");
    let what = match &steps.source {
        StepSource::Annotations(name) => format!("{number}, annotated {name}"),
        StepSource::Requested(pattern) => format!("{number}, annotations that match {pattern}"),
        StepSource::Inferred(site) => format!("{number}, inferred: one ends at each allocation of {site}"),
    };
    let every = if device.stride > 1 { format!("; every {}th is looked at", device.stride) } else { String::new() };
    match (device.is_judged(), device.warm_up) {
        (false, _) => format!("{what}; a verdict takes at least {MIN_STEPS}"),
        (true, 1) => format!("{what}; the first is warm-up{every}"),
        (true, warm_up) => format!("{what}; the first {warm_up} are warm-up{every}"),
    }
}

/// Everything that must be said about one device, a line each.
pub fn limits(device: &DeviceLeaks) -> Vec<String> {
    let mut lines = notes::limits(&device.completeness, &device.baseline);
    lines.extend(notes::anomalies(&device.anomalies));
    lines
}

/// What was allocated when the first step ended and when the last one did.
pub fn course(device: &DeviceLeaks) -> Option<String> {
    let (first, last) = (device.ends.first()?, device.ends.last()?);
    let (from, to) = (signed(first.allocated_bytes), signed(last.allocated_bytes));
    (first.step < last.step)
        .then(|| format!("allocated {from} at the end of step {}, {to} at the end of step {}", first.step, last.step))
}

/// When the device is full.
pub fn projection(projection: &Projection) -> String {
    let capacity = Bytes(projection.capacity_bytes);
    let (rate, peak) = (Bytes(projection.bytes_per_step), signed(projection.peak_bytes));
    let when = match projection.steps {
        0 => "in the next step".to_owned(),
        1 => "after 1 more step".to_owned(),
        steps => format!("after {steps} more steps"),
    };
    format!("at {rate} per step, {capacity} are full {when} (the last one peaked at {peak})")
}

/// What verdicts mean, for those that are no leaks.
pub fn legend(rows: &[LeakRow]) -> Vec<&'static str> {
    let has = |verdict| rows.iter().any(|row| row.verdict == verdict);
    let growth = "growth: blocks replaced by larger ones (a KV cache, torch.cat), or freed later; not a leak";
    let cache = "cache: filled and then stopped (parameters, optimizer state, workspaces); not a leak";
    [(Verdict::Growth, growth), (Verdict::Cache, cache)]
        .into_iter()
        .filter_map(|(verdict, meaning)| has(verdict).then_some(meaning))
        .collect()
}

/// Where the oldest block is from.
pub fn survivor(survivor: &Survivor) -> String {
    let (Some(entry), Some(step)) = (survivor.entry, survivor.step) else {
        return "from before the recording".to_owned();
    };
    let time = survivor.since_start_us.map(|since| format!(", after {}", notes::duration(since)));
    format!("allocated in step {step} at entry {entry}{}", time.unwrap_or_default())
}

/// A rate of blocks: whole where it is.
pub fn blocks(rate: f64) -> String {
    if rate.fract().abs() < 0.005 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}

/// What a row does beside its rate.
pub fn behaviour(row: &LeakRow) -> String {
    match (row.verdict, row.filled_in) {
        (Verdict::Cache, Some(step)) => format!("filled by step {step}"),
        (Verdict::Growth, _) if row.blocks_per_step == 0.0 => "the same number of blocks, each larger".to_owned(),
        (Verdict::Growth, _) => format!("{} more blocks per step, freed later", blocks(row.blocks_per_step)),
        (Verdict::Leak, _) if row.blocks_per_step == 1.0 => "1 more block per step".to_owned(),
        (Verdict::Leak, _) => format!("{} more blocks per step", blocks(row.blocks_per_step)),
        (Verdict::Cache, None) => "filled".to_owned(),
    }
}
