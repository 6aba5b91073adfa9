//! Simulates the requests of a recording up to a failed one under other allocator settings.

use crate::allocator::{Placement, SizeRules};
use crate::model::AllocatorSettings;
use crate::replay::Track;
use crate::simulation::{
    DEFAULT_CONTEXT, PLACEMENTS, Program, Setup, advisable, compare, recorded_settings, relevant, simulate_to_refusal,
};
use std::cell::OnceCell;

/// Number of steps simulated to find settings for one failed request: the answer must appear at once.
const STEPS: usize = 2_000_000;

/// How a recording ends when its requests are simulated with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The entry whose request fails; `None` if all are served, including the one that failed.
    pub fails_at: Option<u32>,
    /// Bytes reserved at the end, or at the failure.
    pub reserved: u64,
    /// Bytes that the device has for the process.
    pub capacity: u64,
}

/// The program of a device, read when it is first simulated.
pub(super) struct Simulate<'a> {
    track: Track<'a>,
    program: OnceCell<Option<Program>>,
    is_reproduced: OnceCell<bool>,
}

impl<'a> Simulate<'a> {
    pub fn of(track: Track<'a>) -> Self {
        Self { track, program: OnceCell::new(), is_reproduced: OnceCell::new() }
    }

    fn program(&self) -> Option<&Program> {
        self.program.get_or_init(|| Program::of(self.track)).as_ref()
    }

    /// Whether replay matches the recording exactly.
    fn is_reproduced(&self) -> bool {
        let difference = |program| compare(self.track, program, &Setup::as_recorded(self.track, program)).1;
        *self.is_reproduced.get_or_init(|| self.program().is_some_and(|program| difference(program).is_none()))
    }

    /// Simulates the requests before an `oom` entry, and the one that failed there, on a device with `capacity` bytes
    /// for the process.
    pub fn replay(&self, settings: &AllocatorSettings, oom: u32, capacity: u64) -> Option<Replayed> {
        self.replay_at(Placement::LowestFree, settings, oom, capacity)
    }

    fn replay_at(
        &self,
        placement: Placement,
        settings: &AllocatorSettings,
        oom: u32,
        capacity: u64,
    ) -> Option<Replayed> {
        let setup = Setup { placement, ..Setup::new(settings, Some(capacity), DEFAULT_CONTEXT) };
        let (outcome, reserved) = simulate_to_refusal(self.program()?, &setup, oom);
        let is_served = outcome.refusals.last() == Some(&(oom, true));
        let fails_at = outcome.fails_at.or((!is_served).then_some(oom));
        Some(Replayed { fails_at, reserved, capacity })
    }

    /// Whether results for other settings can be trusted: replay with the recorded settings matches the recording, and fails
    /// where it failed, so the settings make the difference.
    pub fn may_trust(&self, oom: u32, capacity: u64) -> bool {
        let recorded = self.replay(&recorded_settings(self.track), oom, capacity);
        self.is_reproduced() && recorded.is_some_and(|replayed| replayed.fails_at == Some(oom))
    }

    /// How many other settings can be simulated in [`STEPS`], and the first of them that serves the request, the simplest
    /// settings first. Those with `expandable_segments` may be left out.
    pub fn best(&self, oom: u32, capacity: u64, only_plain: bool) -> (usize, Option<(String, Replayed)>) {
        let Some(program) = self.program() else { return (0, None) };
        let steps = program.steps_to_refusal(oom);
        // With any settings, the bytes in use must fit.
        if program.live_bytes_to(steps, &SizeRules::default()) > capacity {
            return (0, None);
        }
        let mut others = advisable(&recorded_settings(self.track));
        others.retain(|settings| !(only_plain && settings.expandable_segments));
        others.truncate(STEPS / (steps + 1));
        let served = others.iter().find_map(|settings| {
            let serves = |replayed: &Replayed| replayed.fails_at.is_none();
            let replayed = self.replay(settings, oom, capacity).filter(serves)?;
            let serves_at = |&at: &Placement| self.replay_at(at, settings, oom, capacity).is_some_and(|it| serves(&it));
            // Placements of segments are not tried here, since the answer should be quick.
            let is_safe = relevant(&PLACEMENTS, settings)[1..].iter().all(serves_at);
            is_safe.then(|| (settings.alloc_conf.clone(), replayed))
        });
        (others.len(), served.filter(|_| self.may_trust(oom, capacity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::model::Action;

    fn recording(name: &str) -> Recording {
        let path = format!("fixtures/snapshots/{name}/snapshot.pickle.gz");
        Recording::open(path.as_ref(), &crate::input::ReadOptions::default()).unwrap()
    }

    /// PyTorch ran one program with regular and with expandable segments. Its requests, recorded with regular segments and
    /// replayed with expandable ones, end in the same failure, with the same reserved bytes, as PyTorch's own run.
    #[test]
    fn a_replay_ends_as_in_pytorch() {
        let [plain, expandable] = ["oom", "oom_expandable"].map(recording);
        let tracks = [&plain, &expandable].map(|recording| Track::new(&recording.snapshot, &recording.histories[0]));
        let [(entry, reserved, free), (_, really_reserved, really_free)] = tracks.map(|track| {
            let entry = track.actions().iter().position(|&action| action == Action::Oom).unwrap() as u32;
            let device_free = track.entry(entry).unwrap().addr;
            (entry, track.counters_at(entry + 1).reserved as u64, device_free)
        });
        let capacity = reserved + free;
        assert_eq!(capacity, really_reserved + really_free);
        let settings = AllocatorSettings { expandable_segments: true, ..plain.snapshot.settings.clone() };
        let replayed = Simulate::of(tracks[0]).replay(&settings, entry, capacity);
        assert_eq!(replayed, Some(Replayed { fails_at: Some(entry), reserved: really_reserved, capacity }));
    }
}
