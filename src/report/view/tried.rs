//! What a device would need with some cures, other settings, or another size.

use super::json;
use crate::analysis::advice::{Attempt, Lowered, Saving, WhatIf};
use crate::error::Result;
use crate::facts::device::Device;
use crate::facts::gpu::Gpu;
use crate::replay::{Instant, Metric};
use crate::report::common::notes;
use crate::simulation::changes::{Editor, Optimizer};
use crate::simulation::{Outcome, Run, Trust};
use serde::Serialize;

#[derive(Serialize)]
struct Tried {
    allocated: Option<Peaks>,
    reserved: Option<Peaks>,
    reserved_range: Option<(u64, u64)>,
    capacity_bytes: Option<u64>,
    /// The instant after the first entry whose request fails.
    fails: Option<Instant>,
    retries: Option<u64>,
    trust: Trust,
    reserved_trust: Trust,
    /// Why the figures are not trusted further.
    because: String,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Peaks {
    before: u64,
    after: u64,
}

impl From<&Lowered> for Peaks {
    fn from(&Lowered { before, after }: &Lowered) -> Self {
        Self { before, after }
    }
}

/// The peaks with the tried changes; `null` if fixes alone save too little, or are not simulated.
pub fn tried(device: &Device<'_>, cures: &WhatIf<'_, '_>, attempt: &Attempt) -> Result<String> {
    if !attempt.has_device() {
        return Ok(json(&cures.saving(&attempt.fixes)?.as_ref().and_then(Tried::of_cures)));
    }
    let run = cures.run(attempt)?;
    Ok(json(&Tried::of(&run, cures.usable(attempt)?, device)))
}

impl Tried {
    fn of_cures(saving: &Saving) -> Option<Self> {
        let Saving::Simulated { allocated, reserved, trust, reserved_trust, because, .. } = saving else { return None };
        Some(Self {
            allocated: Some(allocated.into()),
            reserved: Some(reserved.into()),
            reserved_range: None,
            capacity_bytes: None,
            fails: None,
            retries: None,
            trust: *trust,
            reserved_trust: *reserved_trust,
            because: because.clone(),
            warnings: Vec::new(),
        })
    }

    fn of(run: &Run, capacity_bytes: Option<u64>, device: &Device<'_>) -> Self {
        let outcome = run.outcome.as_ref();
        let peaks = |metric: Metric, after: fn(&Outcome) -> u64| {
            let before = device.history().maxima[metric as usize].bytes.max(0).unsigned_abs();
            outcome.map(|outcome| Peaks { before, after: after(outcome) })
        };
        Self {
            allocated: peaks(Metric::Allocated, |outcome| outcome.max_allocated),
            reserved: peaks(Metric::Reserved, |outcome| outcome.max_reserved),
            reserved_range: run.reserved_range,
            capacity_bytes,
            fails: outcome.and_then(Outcome::failure).map(|entry| entry + 1),
            retries: outcome.map(|outcome| outcome.retries),
            trust: run.trust,
            reserved_trust: run.trust,
            because: run.because.clone(),
            warnings: run.warnings.iter().map(|&warning| notes::settings_warning(warning)).collect(),
        }
    }
}

#[derive(Serialize)]
struct Known {
    name: &'static str,
    memory_bytes: u64,
}

/// The GPUs that are known by name, starting with those that recordings most likely come from.
pub fn gpus() -> String {
    json(&Gpu::known().iter().map(|gpu| Known { name: gpu.name, memory_bytes: gpu.memory }).collect::<Vec<_>>())
}

/// What changes of a program can name.
#[derive(Serialize)]
struct Choices<'a> {
    calls: Vec<&'a str>,
    optimizers: [&'static str; Optimizer::ALL.len()],
}

/// The functions that can be checkpointed, and the other optimizers.
pub fn choices(device: &Device<'_>) -> String {
    json(&Choices { calls: Editor::new(device).sites(), optimizers: Optimizer::ALL.map(Optimizer::name) })
}
