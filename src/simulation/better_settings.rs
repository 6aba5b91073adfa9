//! How much memory other allocator settings would reserve, at the peak or at one instant: one line in several answers.

use crate::facts::device::Device;
use crate::model::{AllocatorSettings, HOST_DEVICE};
use crate::parallel;
use crate::replay::{Instant, Metric};
use crate::simulation::Trust;
use crate::simulation::candidates::{advisable, simplicity};
use crate::simulation::player::{Player, Setup, recorded_settings};
use crate::simulation::simulator::{RUNS_TO_PREPARE, Simulator, program};

/// Settings that save at most 1/N of reserved memory are not worth mentioning.
const NOTABLE_PART: u64 = 50;
/// Steps simulated for one instant: the answer must appear at once.
const STEPS_OF_AN_INSTANT: u64 = 6_000_000;

/// Whether the savings of settings are large enough to change them, for a program of any size: all commands use this rule.
pub(crate) fn is_notable_part(before: u64, after: u64) -> bool {
    before.saturating_sub(after) > before / NOTABLE_PART
}

/// The settings to recommend among several that are worth it: among those with the fewest retries, the simplest that reserve
/// the least, or hardly more. The rule of all commands; `figures` are the string, the retries, and the reserved bytes.
pub(crate) fn recommended<T>(all: impl IntoIterator<Item = T>, figures: impl Fn(&T) -> (&str, u64, u64)) -> Option<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    let retries = all.iter().map(|one| figures(one).1).min()?;
    all.retain(|one| figures(one).1 == retries);
    let least = all.iter().map(|one| figures(one).2).min()?;
    all.retain(|one| !is_notable_part(figures(one).2, least));
    all.into_iter().min_by_key(|one| (simplicity(figures(one).0), figures(one).2))
}

/// The program of a device, and the settings that help most often, as many as about `steps` steps allow. `None` if the
/// program cannot be simulated, or not within this many steps, or if replay does not match the recording.
fn prepare(device: &Device<'_>, steps: u64) -> Option<(Simulator, Vec<AllocatorSettings>)> {
    if device.id() <= HOST_DEVICE {
        return None;
    }
    let program = program(device).ok()?;
    let runs = steps / (program.len() as u64 + 1);
    let mut others = advisable(&recorded_settings(device.track));
    others.truncate(usize::try_from(runs.checked_sub(RUNS_TO_PREPARE + 1)?).unwrap_or(usize::MAX));
    if others.is_empty() || program.is_empty() {
        return None;
    }
    let simulator = Simulator::new(device.track, program, None, None);
    simulator.difference.is_none().then_some((simulator, others))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetterSettings {
    /// As `PYTORCH_CUDA_ALLOC_CONF` takes them; empty for the defaults.
    pub alloc_conf: String,
    /// Bytes reserved with these settings; the maximum if this depends on where the driver places segments.
    pub reserved: u64,
    /// `num_alloc_retries` under them: each stalls the program.
    pub retries: u64,
    pub trust: Trust,
}

/// The effect of other settings on one device of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsAdvice {
    pub recorded_reserved: u64,
    /// Number of requests that failed in the recording. If there are any, only settings that serve all of them on the
    /// recorded device count as better.
    pub refused: usize,
    pub tried: usize,
    /// Among the settings with the fewest retries, the simplest one that reserves the least, or hardly more. `None` if
    /// none is notably better.
    pub better: Option<BetterSettings>,
}

impl SettingsAdvice {
    /// The effect of other settings on `max_memory_reserved()`. Simulates the settings that help most often, in about
    /// `steps` steps (a million takes about a tenth of a second). `None` if there is no answer: the recording cannot be
    /// simulated, or not within this many steps, or replay does not match it, or something that is not recorded made
    /// its requests fail.
    pub fn of(device: &Device<'_>, steps: u64) -> Option<Self> {
        let (simulator, others) = prepare(device, steps)?;
        let refused = simulator.program.refusals.len();
        let recorded_serve_all = || simulator.reserved(Part::Whole, &simulator.setup(&simulator.settings)).is_some();
        if refused > 0 && recorded_serve_all() {
            return None;
        }
        let recorded = u64::try_from(device.history().maxima[Metric::Reserved as usize].bytes).ok()?;
        // With another placement of segments, the recorded settings may reserve as little.
        let least = simulator.least_as_recorded().map_or(recorded, |least| least.min(recorded));
        let better = simulator.best(Part::Whole, &others, |reserved| refused > 0 || is_notable_part(least, reserved));
        Some(Self { recorded_reserved: recorded, refused, tried: others.len(), better })
    }

    /// How much other settings would reserve at an instant, given the recorded bytes. Requests that failed before it may fail
    /// again. `None` if there is no answer: the recording cannot be simulated, or is too long, or replay with its own
    /// settings does not reserve the recorded bytes.
    pub fn at(device: &Device<'_>, instant: Instant, recorded: u64) -> Option<Self> {
        let (simulator, others) = prepare(device, STEPS_OF_AN_INSTANT)?;
        let part = Part::Before(instant);
        let (reserved, _) = simulator.reserved(part, &Setup::as_recorded(device.track, &simulator.program))?;
        if reserved != recorded {
            return None;
        }
        let better = simulator.best(part, &others, |reserved| is_notable_part(recorded, reserved));
        Some(Self { recorded_reserved: recorded, refused: 0, tried: others.len(), better })
    }
}

#[derive(Clone, Copy)]
enum Part {
    /// The whole program, for its maximum of reserved memory.
    Whole,
    /// The part before an instant, for the memory reserved then.
    Before(Instant),
}

impl Simulator {
    /// The best of some settings, if the difference is worth mentioning.
    fn best(
        &self,
        part: Part,
        others: &[AllocatorSettings],
        is_worth: impl Fn(u64) -> bool + Sync,
    ) -> Option<BetterSettings> {
        let simulated = |settings| self.simulated(part, settings).filter(|better| is_worth(better.reserved));
        let better: Vec<BetterSettings> = parallel::filter_map(others, simulated);
        recommended(better, |better| (&better.alloc_conf, better.retries, better.reserved))
    }

    /// The fewest bytes that the recorded settings reserve with any placement of segments, if that depends on it.
    fn least_as_recorded(&self) -> Option<u64> {
        let setup = self.setup(&self.settings);
        let others = self.placements(&self.settings).get(1..)?;
        let reserved = |&placement| self.reserved(Part::Whole, &Setup { placement, ..setup.clone() });
        others.iter().filter_map(reserved).map(|(reserved, _)| reserved).min()
    }

    /// The effect of settings, for every placement of segments by the driver; `None` if a request fails.
    fn simulated(&self, part: Part, settings: &AllocatorSettings) -> Option<BetterSettings> {
        let setup = self.setup(settings);
        let placements = self.placements(settings);
        let reserved = placements.iter().map(|&placement| self.reserved(part, &Setup { placement, ..setup.clone() }));
        let all: Option<Vec<(u64, u64)>> = reserved.collect();
        let (reserved, retries) = all?.into_iter().reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
        let is_exact = self.lacks.is_empty() && placements.len() == 1;
        let trust = if is_exact { Trust::Exact } else { Trust::Predicted };
        Some(BetterSettings { alloc_conf: settings.alloc_conf.clone(), reserved, retries, trust })
    }

    /// Bytes reserved, and retries up to that point; `None` if a request fails.
    fn reserved(&self, part: Part, setup: &Setup) -> Option<(u64, u64)> {
        let steps = match part {
            Part::Whole => self.program.len(),
            Part::Before(instant) => {
                self.program.steps.iter().rposition(|step| step.entry < instant).map_or(0, |last| last + 1)
            }
        };
        let mut player = Player::new(&self.program, setup);
        player.run_to(steps, &self.program, setup, &mut ());
        let (failure, reserved) = match part {
            Part::Whole => (player.outcome.failure(), player.outcome.max_reserved),
            Part::Before(_) => (player.outcome.fails_at, player.allocator.stats().reserved),
        };
        failure.is_none().then_some((reserved, player.outcome.retries))
    }
}
