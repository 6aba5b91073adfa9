//! Pinned host memory: a model of PyTorch's `CachingHostAllocator`.
//!
//! A request is rounded up to a power of two; its block is cached until the process ends, and serves later requests of that
//! power. Above `pinned_max_cached_size_mb`, requests are not rounded, and blocks are not cached. Recordings contain blocks,
//! not requests: of a rounded block, it is only known that more than half of it was requested. So for settings that do not
//! round, the result is a range, whose ends are simulated.

use super::capacity::Capacities;
use super::program::{Program, StepKind};
use super::recorded::Difference;
use super::simulator::NOT_REPRODUCED;
use super::{Run, Trust};
use crate::model::{Action, AllocatorSettings, BlockState};
use crate::parallel;
use crate::replay::{Metric, Track};
use crate::simulation::player::Outcome;
use std::collections::BTreeMap;

/// `pinned_max_cached_size_mb` worth trying, in MiB.
const WORTH_TRYING: [u64; 3] = [16, 64, 256];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    least: u64,
    most: u64,
}

impl Wanted {
    /// The possible request sizes for a block, given the recorded settings.
    fn of(block: u64, recorded: &AllocatorSettings) -> Self {
        let may_be_rounded = recorded.pinned_max_cached_size.is_none_or(|limit| block / 2 < limit);
        let least = if block.is_power_of_two() && may_be_rounded { block / 2 + 1 } else { block };
        Self { least, most: block }
    }
}

/// Which end of the unknown range is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Least,
    Most,
}

#[derive(Clone, Debug)]
struct Pinned {
    /// Larger blocks are not cached, and larger requests not rounded.
    limit: u64,
    end: End,
    kept: BTreeMap<u64, u64>,
    reserved: u64,
    in_use: u64,
    outcome: Outcome,
}

impl Pinned {
    fn new(settings: &AllocatorSettings, end: End) -> Self {
        let limit = settings.pinned_max_cached_size.unwrap_or(u64::MAX);
        Self { limit, end, kept: BTreeMap::new(), reserved: 0, in_use: 0, outcome: Outcome::default() }
    }

    /// Serves a request: bytes of its block.
    fn alloc(&mut self, wanted: Wanted) -> u64 {
        let size = self.block(wanted);
        if let Some(kept) = self.kept.get_mut(&size).filter(|kept| **kept > 0) {
            *kept -= 1;
        } else {
            self.outcome.device_allocs += 1;
            self.reserved = self.reserved.saturating_add(size);
        }
        self.in_use = self.in_use.saturating_add(size);
        self.measure();
        size
    }

    /// Bytes of the block for a request: the minimum or maximum of its possible sizes.
    fn block(&self, wanted: Wanted) -> u64 {
        match self.end {
            End::Least if wanted.most > self.limit => wanted.least.max(self.limit.saturating_add(1)),
            End::Most if wanted.least > self.limit => wanted.most,
            End::Least | End::Most => wanted.most.checked_next_power_of_two().unwrap_or(wanted.most),
        }
    }

    fn free(&mut self, size: u64) {
        self.in_use = self.in_use.saturating_sub(size);
        if size <= self.limit {
            *self.kept.entry(size).or_default() += 1;
        } else {
            self.give_back(size, 1);
        }
        self.measure();
    }

    fn give_back(&mut self, size: u64, blocks: u64) {
        self.reserved = self.reserved.saturating_sub(size.saturating_mul(blocks));
        self.outcome.device_frees += blocks;
    }

    fn empty_cache(&mut self) {
        for (size, blocks) in std::mem::take(&mut self.kept) {
            self.give_back(size, blocks);
        }
    }

    fn measure(&mut self) {
        let outcome = &mut self.outcome;
        outcome.max_reserved = outcome.max_reserved.max(self.reserved);
        outcome.max_allocated = outcome.max_allocated.max(self.in_use);
        outcome.max_inactive = outcome.max_inactive.max(self.reserved.saturating_sub(self.in_use));
    }
}

/// Simulates a recorded program of pinned host memory under other settings.
fn simulate(program: &Program, recorded: &AllocatorSettings, settings: &AllocatorSettings, end: End) -> Outcome {
    let mut pinned = Pinned::new(settings, end);
    let mut blocks: Vec<Option<u64>> = vec![None; program.allocations];
    for segment in &program.start.segments {
        for piece in program.start.pieces_of(segment) {
            let size = pinned.alloc(Wanted::of(piece.size, recorded));
            match piece.allocation.and_then(|index| blocks.get_mut(index)) {
                Some(block) if piece.state != BlockState::Inactive => *block = Some(size),
                _ => pinned.free(size),
            }
        }
    }
    pinned.outcome.device_allocs = 0;
    // If blocks are released as soon as they are free, the program did not call `empty_cache`.
    let is_emptied = recorded.pinned_max_cached_size.is_none();
    for step in program.steps.iter() {
        match step.kind {
            StepKind::Alloc => {
                let size = pinned.alloc(Wanted::of(step.bytes, recorded));
                if let Some(block) = blocks.get_mut(step.allocation as usize) {
                    *block = Some(size);
                }
            }
            StepKind::Free | StepKind::CompleteFree => {
                if let Some(size) = blocks.get_mut(step.allocation as usize).and_then(Option::take) {
                    pinned.free(size);
                }
            }
            StepKind::EmptyCache if is_emptied => pinned.empty_cache(),
            StepKind::EmptyCache | StepKind::Refused | StepKind::RequestFree | StepKind::ReleasePool => {}
        }
    }
    pinned.outcome
}

/// Why settings cannot be simulated.
fn refusal(settings: &AllocatorSettings) -> Option<&'static str> {
    let limit = settings.pinned_max_cached_size.unwrap_or(u64::MAX);
    settings.pinned_max_round_threshold.is_some_and(|threshold| threshold < limit).then_some(
        "pinned_max_round_threshold_mb keeps blocks of any size: which block serves a request depends on the requested size, but recordings contain only the sizes of blocks",
    )
}

pub(crate) fn candidates() -> Vec<AllocatorSettings> {
    let settings = |mib: u64| AllocatorSettings {
        alloc_conf: format!("pinned_max_cached_size_mb:{mib}"),
        pinned_max_cached_size: Some(mib << 20),
        ..AllocatorSettings::default()
    };
    WORTH_TRYING.map(settings).to_vec()
}

/// Simulations with the recorded settings and with others, and the difference between the former and the recording.
pub(crate) fn runs(
    track: Track<'_>,
    program: &Program,
    others: &[&AllocatorSettings],
    lacks: &str,
) -> (Vec<Run>, Difference) {
    let recorded = &track.snapshot.settings;
    let difference = difference(track, &simulate(program, recorded, recorded, End::Most));
    let run = |settings: &AllocatorSettings, is_recorded: bool| {
        let mut run = Run::refused(settings, is_recorded, refusal(settings).or(refusal(recorded)).unwrap_or_default());
        // Only releases that know these settings record pinned host memory.
        run.warnings.clear();
        if !run.because.is_empty() {
            return run;
        }
        let [least, most] = [End::Least, End::Most].map(|end| simulate(program, recorded, settings, end));
        run.reserved_range =
            (!is_recorded && least.max_reserved < most.max_reserved).then_some((least.max_reserved, most.max_reserved));
        let reserved = Some(most.max_reserved);
        run.capacities = Capacities { first: reserved, safe: reserved, enough: reserved, holes: Vec::new() };
        run.because = if !lacks.is_empty() {
            lacks.to_owned()
        } else if !difference.is_none() {
            NOT_REPRODUCED.to_owned()
        } else if run.reserved_range.is_some() {
            "recordings contain the blocks of pinned host memory, not the requests, so reserved memory is a range"
                .to_owned()
        } else {
            String::new()
        };
        run.trust = if run.because.is_empty() { Trust::Exact } else { Trust::Predicted };
        run.outcome = Some(most);
        run
    };
    let simulated: Vec<Run> = parallel::map(others, |settings| run(settings, false));
    (std::iter::once(run(recorded, true)).chain(simulated).collect(), difference)
}

/// The difference between a simulation with the recorded settings and the recording: in calls, in bytes in use and in
/// reserved bytes.
fn difference(track: Track<'_>, simulated: &Outcome) -> Difference {
    let maxima = &track.history.maxima;
    let less = |metric: Metric, simulated: u64| (simulated as i64).wrapping_sub(maxima[metric as usize].bytes);
    let mut difference = Difference::default();
    difference.maxima[Metric::Active as usize] = less(Metric::Active, simulated.max_allocated);
    difference.maxima[Metric::Reserved as usize] = less(Metric::Reserved, simulated.max_reserved);
    let count = |wanted: Action| track.actions().iter().filter(|&&action| action == wanted).count() as u64;
    difference.device_allocs = (simulated.device_allocs, count(Action::SegmentAlloc));
    difference.device_frees = (simulated.device_frees, count(Action::SegmentFree));
    difference
}

/// The known part of the maximum of bytes in use: more than half of each block that was rounded.
pub(crate) fn live_bytes(track: Track<'_>, program: &Program) -> u64 {
    let recorded = &track.snapshot.settings;
    let exact = AllocatorSettings { pinned_max_cached_size: Some(0), ..recorded.clone() };
    simulate(program, recorded, &exact, End::Least).max_allocated
}
