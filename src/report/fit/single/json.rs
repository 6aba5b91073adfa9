//! Changes that make a recording fit a device, in the JSON of `memviz fit`.

use super::words;
use crate::simulation::plans::{DevicePlans, Plan, PlannedChange, Verdict};
use crate::simulation::{Difference, Generation, Trust};
use serde::Serialize;

/// Changes that make a program fit on a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitSearch {
    /// The limit in bytes: memory of the device for the allocator, or a limit on allocated bytes.
    pub goal_bytes: u64,
    /// Whether it fits unchanged; null if that is unknown, because there is no simulation and no bound decides.
    pub fits: Option<bool>,
    /// The unchanged program; null if there is no simulation.
    pub as_it_is: Option<FitPlan>,
    /// Changes that make it fit, the easiest first; empty if it fits unchanged, or if there are none.
    pub plans: Vec<FitPlan>,
    /// If there are none, the closest changes; null if a plan fits, or if none needs less than the unchanged program.
    pub nearest: Option<FitPlan>,
    /// How much the closest changes exceed the limit; null if a plan fits.
    pub missing_bytes: Option<u64>,
    /// Number of other allocator settings that were simulated alone.
    pub settings_tried: usize,
    /// Number of simulated combinations.
    pub tried: usize,
    /// Whether there are more combinations, for which the recording is too long.
    pub cut: bool,
    /// Changes that cannot be simulated with this recording.
    pub not_played: Vec<FitNotPlayed>,
    /// Whether checkpointing was not tried although it may help: the recording does not contain the backward
    /// pass for which forward passes keep memory, so the peak with recomputation is unknown.
    pub checkpoints_untried: bool,
    /// The largest difference between a simulated maximum with the recorded settings and the recorded one; null if
    /// there is no simulation.
    pub replay_difference_bytes: Option<u64>,
    /// If the recording runs out of memory, the entry up to which it is simulated; otherwise null.
    pub played_to_entry: Option<u32>,
    /// Mean CPU time of a forward pass in microseconds; null if unknown.
    pub forward_us: Option<i64>,
    /// How many tokens fit, if a KV cache grows with each; null if none does.
    pub generation: Option<FitGeneration>,
}

/// A cache that grows with every token, and how far it can grow on the device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitGeneration {
    /// Tensors of the cache; null if its growth is unknown, like everything below.
    pub tensors: Option<usize>,
    /// Bytes by which they grow together per token.
    pub bytes_per_token: Option<u64>,
    /// Tokens in the cache at the end, including the prompt.
    pub recorded_tokens: Option<u64>,
    /// Tokens in the cache that fit.
    pub fits_tokens: Option<u64>,
    /// The maximum that can fit: the same number, unless the search would take too long.
    pub at_most_tokens: Option<u64>,
    /// How far you can trust it.
    pub trust: Trust,
    /// The basis of the numbers, or why they are unknown.
    pub because: String,
}

/// Settings and changes to a program, simulated together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitPlan {
    /// Allocator settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    pub alloc_conf: String,
    /// Whether they differ from the recorded ones.
    pub other_settings: bool,
    /// Changes to the program.
    pub changes: Vec<FitChange>,
    /// The size of a device on which it always works, in bytes that the allocator can use: the smallest, as far as known;
    /// null if that was not requested.
    pub needs_bytes: Option<u64>,
    /// Whether it fits, but would not fit with one more segment than simulated.
    pub tight: bool,
    /// `max_memory_allocated()`.
    pub max_allocated_bytes: u64,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: u64,
    /// `num_alloc_retries`.
    pub alloc_retries: u64,
    /// Mean time of recomputed calls in microseconds, per forward pass; null if unknown.
    pub recompute_us: Option<i64>,
    /// How far you can trust it.
    pub trust: Trust,
    /// Why it is uncertain; empty if it is not.
    pub because: String,
    /// Assumptions, in words.
    pub assumptions: Vec<String>,
}

/// A change to a program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitChange {
    /// The change, as options of `memviz simulate` name it.
    pub change: String,
    /// The place, in words.
    pub place: String,
    /// The code to write there.
    pub code: String,
}

/// A change that cannot be simulated with a recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FitNotPlayed {
    /// The change.
    pub change: String,
    /// Why it cannot be simulated.
    pub because: String,
}

impl From<&PlannedChange> for FitChange {
    fn from(change: &PlannedChange) -> Self {
        let (place, code) = words::code(change);
        Self { change: change.change.to_string(), place, code }
    }
}

impl FitPlan {
    pub(super) fn of(device: &DevicePlans, plan: &Plan) -> Self {
        Self {
            alloc_conf: plan.alloc_conf.as_ref().unwrap_or(&device.recorded_conf).clone(),
            other_settings: plan.alloc_conf.is_some(),
            changes: plan.changes.iter().map(FitChange::from).collect(),
            needs_bytes: plan.needs,
            tight: plan.is_tight,
            max_allocated_bytes: plan.outcome.max_allocated,
            max_reserved_bytes: plan.outcome.max_reserved,
            alloc_retries: plan.outcome.retries,
            recompute_us: plan.recompute_us,
            trust: device.trust(plan),
            because: words::because(plan),
            assumptions: plan.assumptions.clone(),
        }
    }
}

impl From<&Result<Generation, &'static str>> for FitGeneration {
    fn from(generation: &Result<Generation, &'static str>) -> Self {
        let known = generation.as_ref().ok();
        let (fits, most) = known.map(|known| known.reach.bounds()).unzip();
        Self {
            tensors: known.map(|known| known.tensors),
            bytes_per_token: known.map(|known| known.bytes_per_token),
            recorded_tokens: known.map(|known| known.recorded),
            fits_tokens: fits,
            at_most_tokens: most,
            trust: if known.is_some() { Trust::Uncertain } else { Trust::Refused },
            because: generation.as_ref().err().copied().unwrap_or(words::EVEN_GROWTH).to_owned(),
        }
    }
}

/// Whether the unchanged program fits, if that is known.
fn fits(device: &DevicePlans) -> Option<bool> {
    if device.refused.is_none() {
        return Some(device.fits);
    }
    match device.need.as_ref()?.verdict(device.capacity?) {
        Verdict::Fits => Some(true),
        Verdict::CannotFit => Some(false),
        Verdict::FitsIf | Verdict::Unknown => None,
    }
}

impl From<&DevicePlans> for FitSearch {
    fn from(device: &DevicePlans) -> Self {
        let of = |plan: &Plan| FitPlan::of(device, plan);
        let nearest = device.nearest.as_ref().or(device.as_it_is.as_ref());
        let missing = nearest.filter(|_| !device.fits && device.plans.is_empty());
        let missing = missing.map(|plan| device.measure(plan).saturating_sub(device.goal.bytes()));
        Self {
            goal_bytes: device.goal.bytes(),
            fits: fits(device),
            as_it_is: device.as_it_is.as_ref().map(of),
            plans: device.plans.iter().map(of).collect(),
            nearest: device.nearest.as_ref().map(of),
            missing_bytes: missing,
            settings_tried: device.settings_tried,
            tried: device.tried,
            cut: device.is_cut,
            not_played: device
                .not_played
                .iter()
                .map(|refusal| FitNotPlayed { change: refusal.change.to_string(), because: refusal.because.clone() })
                .collect(),
            checkpoints_untried: device.checkpoints_untried,
            replay_difference_bytes: device.difference.as_ref().map(Difference::bytes),
            played_to_entry: device.unfinished.map(|unfinished| unfinished.end),
            forward_us: device.forward_us,
            generation: device.generation.as_ref().map(FitGeneration::from),
        }
    }
}
