//! What other settings would hold reserved at one instant of a recording.

use super::placement::possible_placements;
use crate::facts::device::Device;
use crate::model::AllocatorSettings;
use crate::play::Trust;
use crate::play::better_settings::{is_notable, prepare};
use crate::play::player::{Player, Setup};
use crate::play::testbed::Testbed;
use crate::replay::Instant;
use rayon::prelude::*;

/// Steps played for one instant: the answer is to be there at once.
const STEPS: u64 = 6_000_000;

/// What is reserved under some settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedThen {
    /// The settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them; empty for the defaults.
    pub alloc_conf: String,
    /// Bytes reserved at the instant; the most of it where that depends on where the driver puts segments.
    pub reserved: u64,
    /// How far to trust that.
    pub trust: Trust,
}

/// What other settings would hold reserved at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsThen {
    /// Number of settings played beside the recorded ones.
    pub tried: usize,
    /// The plainest of those that reserve least then, or hardly more; `None` where none reserves notably less.
    pub better: Option<ReservedThen>,
}

impl SettingsThen {
    /// Plays the requests before an instant under the settings that help most often. `None` where nothing can be said: the
    /// recording cannot be played, or is too long, or its own settings do not come to what is `reserved` then.
    pub fn of(device: &Device<'_>, instant: Instant, reserved: u64) -> Option<Self> {
        let (testbed, others) = prepare(device, STEPS)?;
        let as_recorded = Setup::as_recorded(device.track, &testbed.program);
        if testbed.reserved_at(instant, &as_recorded) != Some(reserved) {
            return None;
        }
        let trust = if testbed.lacks.is_empty() { Trust::Exact } else { Trust::Predicted };
        let played = |settings: &AllocatorSettings| {
            let (most, is_one) = testbed.most_reserved_at(instant, settings)?;
            let trust = if is_one { trust } else { Trust::Predicted };
            is_notable(reserved, most).then(|| ReservedThen {
                alloc_conf: settings.alloc_conf.clone(),
                reserved: most,
                trust,
            })
        };
        let better: Vec<Option<ReservedThen>> = others.par_iter().map(played).collect();
        let least = better.iter().flatten().map(|better| better.reserved).min().unwrap_or(0);
        // Of those that do about equally well the plainest, which come first.
        let better = better.into_iter().flatten().find(|better| !is_notable(better.reserved, least));
        Some(Self { tried: others.len(), better })
    }
}

impl Testbed {
    /// Bytes reserved after the steps before an instant; `None` where a request is refused before.
    fn reserved_at(&self, instant: Instant, setup: &Setup) -> Option<u64> {
        let steps = self.program.steps.iter().rposition(|step| step.entry < instant).map_or(0, |last| last + 1);
        let mut player = Player::new(&self.program, setup);
        player.run_to(steps, &self.program, setup, &mut ());
        player.outcome.fails_at.is_none().then(|| player.allocator.stats().reserved)
    }

    /// As [`Testbed::reserved_at`], the most of it wherever the driver puts segments, and whether that makes no
    /// difference.
    fn most_reserved_at(&self, instant: Instant, settings: &AllocatorSettings) -> Option<(u64, bool)> {
        let setup = self.setup(settings);
        let here = self.reserved_at(instant, &setup)?;
        let others = possible_placements(self.placement, settings)[1..].iter();
        let others: Option<Vec<u64>> =
            others.map(|&placement| self.reserved_at(instant, &Setup { placement, ..setup.clone() })).collect();
        let others = others?;
        let most = others.iter().copied().fold(here, u64::max);
        Some((most, others.iter().all(|&other| other == here)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::input::ReadOptions;

    /// Nothing was given back in either run, so what PyTorch reserved at its most it reserved in the end.
    #[test]
    fn what_is_reserved_at_an_instant_is_what_pytorch_reserves() {
        let path = "fixtures/whatif/c_minigpt/snapshot.pickle.gz";
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
        let devices = recording.devices();
        let device = &devices.all()[0];
        let truth: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string("fixtures/whatif/c_minigpt/capacity.json").unwrap()).unwrap();
        let reserved = |name: &str| truth[name]["at_80gib"]["max_reserved"].as_u64().unwrap();
        let (end, recorded) = (device.history().entries(), reserved("default"));
        let better = SettingsThen::of(device, end, recorded).unwrap().better.unwrap();
        assert_eq!(better.alloc_conf, "expandable_segments:True");
        assert_eq!((better.reserved, better.trust), (reserved("expandable"), Trust::Exact));
        assert_eq!(SettingsThen::of(device, end, recorded + 512), None, "not what was recorded");
    }
}
