//! What other settings would do for a recording, for answers that have a line for it.

use super::{Run, Trust};
use crate::facts::device::Device;
use crate::model::{AllocatorSettings, HOST_DEVICE};
use crate::play::candidates::advisable;
use crate::play::player::{Outcome, play, recorded_settings};
use crate::play::testbed::{PLAYS_TO_PREPARE, Testbed, program};
use crate::replay::Metric;
use rayon::prelude::*;

/// Settings that save less than one part in so many of what is reserved, or fewer bytes, are not worth a word.
const NOTABLE_PART: u64 = 50;
const NOTABLE_BYTES: u64 = 64 << 20;

/// Whether it is worth a word that so much is reserved instead of what was recorded.
pub(super) fn is_notable(recorded: u64, reserved: u64) -> bool {
    let saved = recorded.saturating_sub(reserved);
    saved >= NOTABLE_BYTES && saved > recorded / NOTABLE_PART
}

/// A device's program and the settings that help most often, as many as about `steps` steps allow. `None` where the program
/// cannot be played, or not within so many steps, or not as it was recorded.
pub(super) fn prepare(device: &Device<'_>, steps: u64) -> Option<(Testbed, Vec<AllocatorSettings>)> {
    if device.id() <= HOST_DEVICE {
        return None;
    }
    let program = program(device).ok()?;
    let plays = steps / (program.len() as u64 + 1);
    let mut others = advisable(&recorded_settings(device.track));
    others.truncate(usize::try_from(plays.checked_sub(PLAYS_TO_PREPARE + 1)?).unwrap_or(usize::MAX));
    if others.is_empty() || program.is_empty() {
        return None;
    }
    let testbed = Testbed::new(device.track, program, None, None);
    testbed.difference.is_none().then_some((testbed, others))
}

/// Settings that do better than the recorded ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetterSettings {
    /// As `PYTORCH_CUDA_ALLOC_CONF` takes them; empty for the defaults.
    pub alloc_conf: String,
    /// `max_memory_reserved()` under them, in bytes; the most of it where that depends on where the driver puts segments.
    pub max_reserved: u64,
    /// `num_alloc_retries` under them: each stalls the program.
    pub retries: u64,
    /// How far to trust that.
    pub trust: Trust,
}

/// What other settings would do for one device of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsAdvice {
    /// `max_memory_reserved()` as recorded, in bytes.
    pub recorded_reserved: u64,
    /// Requests that were refused when they were recorded. Where there are any, only settings that serve them all on the
    /// recorded device are better ones.
    pub refused: usize,
    /// Number of settings played beside the recorded ones.
    pub tried: usize,
    /// The best of them: of those that serve everything the one with the fewest retries, and then the one that reserves
    /// least. `None` where none is notably better.
    pub better: Option<BetterSettings>,
}

impl SettingsAdvice {
    /// Plays the settings that help most often, in about `steps` steps (a million takes about a tenth of a second).
    /// `None` where nothing can be said: the recording cannot be played, or not within so many steps, or not as it was
    /// recorded, or something that is not recorded refused its requests.
    pub fn of(device: &Device<'_>, steps: u64) -> Option<Self> {
        let (testbed, others) = prepare(device, steps)?;
        let refused = testbed.program.refusals.len();
        let fails = |outcome: &Outcome| outcome.failure().is_some();
        if refused > 0 && !fails(&play(&testbed.program, &testbed.setup(&testbed.settings))) {
            return None;
        }
        let runs: Vec<Run> = others.par_iter().map(|settings| testbed.run(settings, false, 0)).collect();
        let recorded_reserved = device.history().maxima[Metric::Reserved as usize].bytes;
        let recorded_reserved = u64::try_from(recorded_reserved).ok()?;
        let better = runs.iter().filter_map(|run| {
            let outcome = run.outcome.as_ref().filter(|outcome| !fails(outcome))?;
            let max_reserved = run.reserved_range.map_or(outcome.max_reserved, |(_, most)| most);
            let (alloc_conf, retries, trust) = (run.alloc_conf.clone(), outcome.retries, run.trust);
            (refused > 0 || is_notable(recorded_reserved, max_reserved)).then_some(BetterSettings {
                alloc_conf,
                max_reserved,
                retries,
                trust,
            })
        });
        let better = better.min_by_key(|better| (better.retries, better.max_reserved));
        Some(Self { recorded_reserved, refused, tried: runs.len(), better })
    }
}
