//! What makes a recording fit a device, in the JSON of `memviz fit`.

use super::words;
use crate::play::plans::{DevicePlans, Plan, PlannedChange};
use crate::play::{Difference, Generation, Trust};
use serde::Serialize;

/// What makes a program fit a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FitSearch {
    /// Bytes that it may need: what the device has for the allocator; or that may be allocated at once.
    pub goal_bytes: u64,
    /// Whether it fits unchanged.
    pub fits: bool,
    /// The unchanged program; null where nothing is played.
    pub as_it_is: Option<FitPlan>,
    /// What makes it fit, the least trouble first; empty where it fits unchanged, or nothing does.
    pub plans: Vec<FitPlan>,
    /// Where nothing does, what comes nearest; null where something does, and where nothing needs less than it does as it is.
    pub nearest: Option<FitPlan>,
    /// Where nothing does, by how much the nearest is too much; null where something fits.
    pub missing_bytes: Option<u64>,
    /// Other allocator settings that were played alone.
    pub settings_tried: usize,
    /// Combinations that were played.
    pub tried: usize,
    /// Whether there are more, for which the recording is too long.
    pub cut: bool,
    /// Changes that the recording does not allow to play.
    pub not_played: Vec<FitNotPlayed>,
    /// The largest difference between a maximum of the recorded settings, played, and the recorded one; null where nothing is
    /// played.
    pub replay_difference_bytes: Option<u64>,
    /// Where the recording runs out of memory, the entry up to which it is played; else null.
    pub played_to_entry: Option<u32>,
    /// Mean time of a forward pass in microseconds, as the CPU took it; null where that is not known.
    pub forward_us: Option<i64>,
    /// How many tokens fit, where a cache of keys and values grows with each; null where none does.
    pub generation: Option<FitGeneration>,
}

/// A cache that grows with every token, and how far it can grow on the device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FitGeneration {
    /// Tensors of the cache; null where it is not known how it grows, as all that follows.
    pub tensors: Option<usize>,
    /// Bytes by which they grow together with a token.
    pub bytes_per_token: Option<u64>,
    /// Tokens in the cache at the end, the prompt's included.
    pub recorded_tokens: Option<u64>,
    /// Tokens in the cache that fit.
    pub fits_tokens: Option<u64>,
    /// No more can fit: as many, unless it would take too long to find out.
    pub at_most_tokens: Option<u64>,
    /// How far to trust it.
    pub trust: Trust,
    /// What it rests on, or why it is not known.
    pub because: String,
}

/// Settings and changes of a program, played as a whole.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FitPlan {
    /// Allocator settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    pub alloc_conf: String,
    /// Whether they are other than the recorded ones.
    pub other_settings: bool,
    /// Changes of the program.
    pub changes: Vec<FitChange>,
    /// A device on which it always works, in bytes that the allocator can use: the smallest, as far as known; null where that
    /// was not asked.
    pub needs_bytes: Option<u64>,
    /// Whether it fits, but would not with one segment more than is played.
    pub tight: bool,
    /// `max_memory_allocated()`.
    pub max_allocated_bytes: u64,
    /// `max_memory_reserved()`.
    pub max_reserved_bytes: u64,
    /// `num_alloc_retries`.
    pub alloc_retries: u64,
    /// Mean time in microseconds that calls take when they run again, for each forward pass; null where that is not known.
    pub recompute_us: Option<i64>,
    /// How far to trust it.
    pub trust: Trust,
    /// Why it is uncertain; empty where it is not.
    pub because: String,
    /// What is assumed, in words.
    pub assumptions: Vec<String>,
}

/// A change of a program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FitChange {
    /// What is changed, as options of `memviz simulate` name it.
    pub change: String,
    /// Where, in words.
    pub place: String,
    /// What to write there.
    pub code: String,
}

/// A change that a recording does not allow to play.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FitNotPlayed {
    /// What would be changed.
    pub change: String,
    /// Why it is not played.
    pub because: String,
}

impl From<&PlannedChange> for FitChange {
    fn from(change: &PlannedChange) -> Self {
        let (place, code) = words::code(change);
        Self { change: change.change.to_string(), place, code }
    }
}

impl FitPlan {
    fn of(device: &DevicePlans, plan: &Plan) -> Self {
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

impl From<&DevicePlans> for FitSearch {
    fn from(device: &DevicePlans) -> Self {
        let of = |plan: &Plan| FitPlan::of(device, plan);
        let nearest = device.nearest.as_ref().or(device.as_it_is.as_ref());
        let missing = nearest.filter(|_| !device.fits && device.plans.is_empty());
        let missing = missing.map(|plan| device.measure(plan).saturating_sub(device.goal.bytes()));
        Self {
            goal_bytes: device.goal.bytes(),
            fits: device.fits,
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
            replay_difference_bytes: device.difference.as_ref().map(Difference::bytes),
            played_to_entry: device.unfinished.map(|unfinished| unfinished.end),
            forward_us: device.forward_us,
            generation: device.generation.as_ref().map(FitGeneration::from),
        }
    }
}
