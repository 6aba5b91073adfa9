//! Runs a program on an allocator.

use super::program::{Program, Step, StepKind};
use super::rounds::Rounds;
use crate::allocator::{
    Allocator, BlockId, Limits, Placement, PoolIndex, Request, Restored, SegmentEvent, SizeRules, Threshold,
};
use crate::facts::segments::layout::SegmentLayout;
use crate::model::{AllocatorSettings, BlockState, SegmentType};
use crate::replay::{Metric, Track};

/// The allocator and the device of a simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    pub rules: SizeRules,
    /// How much it may reserve.
    pub limits: Limits,
    /// Where the driver puts segments.
    pub placement: Placement,
    /// Whether segments are at their recorded addresses, as long as the simulation allocates the same ones.
    pub recorded_addresses: bool,
}

impl Setup {
    /// An allocator with these settings, on a device with `capacity` bytes for the allocator and `context` more bytes;
    /// an unlimited device without a `capacity`.
    pub fn new(settings: &AllocatorSettings, capacity: Option<u64>, context: u64) -> Self {
        let total = capacity.map(|capacity| capacity.saturating_add(context));
        Self {
            rules: SizeRules::device(settings),
            limits: Limits::of(settings, capacity, total),
            placement: Placement::LowestFree,
            recorded_addresses: false,
        }
    }

    /// The settings of a recording on its own device, with segments at their recorded addresses.
    pub fn as_recorded(track: Track<'_>, program: &Program) -> Self {
        let mut setup = Self { recorded_addresses: true, ..Self::new(&recorded_settings(track), None, 0) };
        if program.releases.retries > 0 || !program.refusals.is_empty() {
            // A request that the driver refused would have exceeded the maximum of reserved memory, so that maximum
            // serves as the limit.
            let reserved = track.history.maxima[Metric::Reserved as usize].bytes;
            setup.limits.capacity = Threshold::new(u64::try_from(reserved).unwrap_or(0));
        }
        setup
    }
}

/// The settings of a recording. PyTorch records them from 2.3 on; in earlier recordings, mapped memory shows that
/// segments are expandable.
pub(crate) fn recorded_settings(track: Track<'_>) -> AllocatorSettings {
    let mut settings = track.snapshot.settings.clone();
    if !settings.recorded && track.history.segments.iter().any(|span| span.expandable) {
        settings.expandable_segments = true;
        "expandable_segments:True".clone_into(&mut settings.alloc_conf);
    }
    settings
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The entry of the request that failed and ended the simulation; `None` if all requests were served.
    pub fails_at: Option<u32>,
    pub max_allocated: u64,
    /// The most bytes in blocks that were not free.
    pub max_active: u64,
    /// The most bytes that callers had requested.
    pub max_requested: u64,
    pub max_reserved: u64,
    /// The maximum of reserved bytes that are not in use.
    pub max_inactive: u64,
    pub retries: u64,
    pub device_allocs: u64,
    pub device_frees: u64,
    /// Requests that failed in the recording: entry, and whether they succeed here.
    pub refusals: Vec<(u32, bool)>,
}

impl Outcome {
    /// The first entry whose request fails, including requests that failed in the recording.
    pub fn failure(&self) -> Option<u32> {
        let refused = self.refusals.iter().find(|(_, served)| !served).map(|&(entry, _)| entry);
        refused.or(self.fails_at)
    }
}

/// Receives the events of a simulation.
pub(super) trait Observer {
    /// Whether it needs every event, so that only rounds without events may be skipped.
    const LISTENS: bool = true;
    /// The allocator requested a segment from the driver or released one, for the step at `entry`.
    fn segment(&mut self, entry: u32, event: SegmentEvent);
    /// Whether it knows enough, so that the simulation ends.
    fn is_done(&self) -> bool {
        false
    }
}

impl Observer for () {
    const LISTENS: bool = false;

    fn segment(&mut self, _: u32, _: SegmentEvent) {}
}

/// The state of a simulation at some step, from which it can continue.
#[derive(Clone, Debug)]
pub(super) struct Player {
    pub allocator: Allocator,
    pub done: usize,
    pub outcome: Outcome,
    /// Pools of the allocator by the program's number of them: small and large.
    pub(super) pools: Vec<[PoolIndex; 2]>,
    /// The block of each allocation that was made.
    pub(super) blocks: Vec<Option<BlockId>>,
    /// Requests so far whose address is known.
    addressed: usize,
    /// Steps applied: fewer than `done` if iterations of a loop were skipped.
    pub applied: u64,
    pub(super) rounds: Rounds,
}

impl Player {
    /// The state before the first step.
    pub fn new(program: &Program, setup: &Setup) -> Self {
        let descends = matches!(setup.placement, Placement::Descending | Placement::Arenas);
        let base = if descends { 0 } else { program.lowest_address() };
        let mut allocator = Allocator::new(setup.rules.clone(), setup.limits, setup.placement, base);
        let mut blocks = vec![None; program.allocations];
        let layout = &program.start;
        let mut requested = program.start_requested.iter().copied().peekable();
        for segment in &layout.segments {
            let pieces = layout.pieces_of(segment);
            let pool = allocator.pool(segment.stream.unwrap_or(0), segment.pool, segment.segment_type);
            let &SegmentLayout { addr, size, expandable, .. } = segment;
            let tiles = pieces.iter().map(|piece| {
                let held = piece.state != BlockState::Inactive;
                let asked = requested.next_if(|_| held).map_or(0, |(_, requested)| requested);
                (piece.size, asked, piece.state)
            });
            let restored = Restored { pool, addr, size, expandable };
            allocator.restore(&restored, tiles, |number, block| {
                if let Some(slot) = pieces[number].allocation.and_then(|index| blocks.get_mut(index)) {
                    *slot = Some(block);
                }
            });
        }
        let kinds = [SegmentType::Small, SegmentType::Large];
        let pools = program.pools.iter();
        let pools = pools.map(|&(stream, private)| kinds.map(|kind| allocator.pool(stream, private, kind))).collect();
        for &private in &program.plain_pools {
            allocator.keep_plain(private);
        }
        let mut rounds = Rounds::of(program);
        for (allocation, block) in (0u32..).zip(&blocks) {
            if let Some(block) = block {
                rounds.own(block.row(), allocation);
            }
        }
        let outcome = Outcome::default();
        let mut player = Self { allocator, done: 0, outcome, pools, blocks, addressed: 0, applied: 0, rounds };
        player.measure();
        player
    }

    /// Simulates to the end, or to a request that fails.
    pub fn run(&mut self, program: &Program, setup: &Setup, observer: &mut impl Observer) {
        self.run_to(program.len(), program, setup, observer);
    }

    /// Simulates until this many steps are done, or to a request that fails.
    pub fn run_to<O: Observer>(&mut self, end: usize, program: &Program, setup: &Setup, observer: &mut O) {
        let steps = program.steps.as_slice();
        while self.done < end && self.outcome.fails_at.is_none() {
            if self.rounds.begin_at(self.done) {
                // With recorded segment addresses, rounds repeat only as long as no segment is created.
                self.skip_rounds(program, end, O::LISTENS || setup.recorded_addresses);
                continue;
            }
            let step = steps[self.done];
            self.done += 1;
            self.applied += 1;
            self.apply(program, setup, &step);
            if self.allocator.has_events() {
                for event in self.allocator.drain_events() {
                    observer.segment(step.entry, event);
                }
                if observer.is_done() {
                    break;
                }
            }
            let stats = self.allocator.stats();
            self.outcome.max_inactive = self.outcome.max_inactive.max(stats.reserved - stats.active);
        }
        let stats = self.allocator.stats();
        self.outcome.max_reserved = stats.reserved_peak;
        self.outcome.retries = stats.retries;
        self.outcome.device_allocs = stats.device_allocs;
        self.outcome.device_frees = stats.device_frees;
    }

    #[inline]
    fn apply(&mut self, program: &Program, setup: &Setup, step: &Step) {
        match step.kind {
            StepKind::Alloc | StepKind::Refused => self.request(program, setup, step),
            StepKind::Free | StepKind::CompleteFree => {
                if let Some(block) = self.blocks.get_mut(step.allocation as usize).and_then(Option::take) {
                    self.allocator.free(block);
                }
            }
            StepKind::RequestFree => {
                if let Some(&Some(block)) = self.blocks.get(step.allocation as usize) {
                    self.allocator.request_free(block);
                }
            }
            StepKind::EmptyCache => self.allocator.empty_cache(),
            StepKind::ReleasePool => {
                if let Some(private) = program.pools[step.pool as usize].1 {
                    self.allocator.release_pool(private);
                }
            }
        }
    }

    fn request(&mut self, program: &Program, setup: &Setup, step: &Step) {
        // A refused request is recorded with its rounded size.
        let was_refused = step.kind == StepKind::Refused;
        let bytes = if was_refused { step.bytes } else { setup.rules.round(step.bytes) };
        let [small, large] = self.pools[step.pool as usize];
        let pool = if setup.rules.is_large(bytes) { large } else { small };
        let address = if setup.recorded_addresses { self.address_of(program, step.entry) } else { None };
        let is_capturing = program.pools[step.pool as usize].1.is_some();
        let request = Request { pool, bytes, requested: step.bytes, is_capturing, address };
        let served = self.allocator.alloc(request);
        if was_refused {
            self.outcome.refusals.push((step.entry, served.is_some()));
            if let Some(block) = served {
                self.measure();
                self.allocator.free(block);
            }
            return;
        }
        let Some(block) = served else {
            self.outcome.fails_at = Some(step.entry);
            return;
        };
        self.measure();
        self.rounds.own(block.row(), step.allocation);
        if let Some(slot) = self.blocks.get_mut(step.allocation as usize) {
            *slot = Some(block);
        }
    }

    /// The address at which the driver placed the memory for the request at an entry.
    fn address_of(&mut self, program: &Program, entry: u32) -> Option<u64> {
        while let Some(&(at, addr)) = program.addresses.get(self.addressed) {
            if at >= entry {
                return (at == entry).then_some(addr);
            }
            self.addressed += 1;
        }
        None
    }

    fn counter(&self, metric: Metric) -> (u64, u64) {
        let (stats, outcome) = (self.allocator.stats(), &self.outcome);
        match metric {
            Metric::Allocated => (stats.allocated, outcome.max_allocated),
            Metric::Active => (stats.active, outcome.max_active),
            Metric::Requested => (stats.requested, outcome.max_requested),
            Metric::Reserved => (stats.reserved, stats.reserved_peak),
        }
    }

    /// Updates the maxima from the counters, which are highest right after a request.
    #[inline]
    fn measure(&mut self) {
        let stats = self.allocator.stats();
        let outcome = &mut self.outcome;
        outcome.max_allocated = outcome.max_allocated.max(stats.allocated);
        outcome.max_active = outcome.max_active.max(stats.active);
        outcome.max_requested = outcome.max_requested.max(stats.requested);
    }
}

pub fn simulate(program: &Program, setup: &Setup) -> Outcome {
    let mut player = Player::new(program, setup);
    player.run(program, setup, &mut ());
    player.outcome
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Highest {
    /// The step that reaches it, as an index into [`Program::steps`]; `None` before the first.
    pub step: Option<usize>,
    /// The blocks that are allocated then: allocation and bytes.
    pub blocks: Vec<(usize, u64)>,
}

/// Simulates a program until it has allocated this many bytes, its maximum.
pub(crate) fn blocks_at_peak(program: &Program, setup: &Setup, most: u64) -> Highest {
    let mut player = Player::new(program, setup);
    // Blocks that another stream may still use are no longer allocated.
    let mut is_pending = vec![false; program.allocations];
    let mut reached = None;
    for (place, step) in program.steps.iter().enumerate() {
        if player.outcome.max_allocated >= most {
            break;
        }
        reached = Some(place);
        player.apply(program, setup, step);
        if let Some(is_pending) = is_pending.get_mut(step.allocation as usize) {
            *is_pending = step.kind == StepKind::RequestFree;
        }
    }
    let held = player.blocks.iter().zip(is_pending).enumerate().filter(|(_, (_, is_pending))| !is_pending);
    let blocks = held.filter_map(|(index, (block, _))| Some((index, player.allocator.size((*block)?)))).collect();
    Highest { step: reached, blocks }
}

/// Simulates a program and calls `visit` with the bytes allocated before the first step, and then with each step and
/// the bytes after it.
pub(crate) fn allocated_over_time(program: &Program, setup: &Setup, mut visit: impl FnMut(Option<&Step>, u64)) {
    over_time(program, setup, Metric::Allocated, |step, after, _| visit(step, after));
}

/// The same for any counter, and with the most bytes since the previous step. Returns the entry of the request that
/// ended the program, if one did.
pub(crate) fn over_time(
    program: &Program,
    setup: &Setup,
    metric: Metric,
    mut visit: impl FnMut(Option<&Step>, u64, u64),
) -> Option<u32> {
    let mut player = Player::new(program, setup);
    let (start, mut most) = player.counter(metric);
    visit(None, start, start);
    for step in program.steps.iter() {
        player.apply(program, setup, step);
        if player.outcome.fails_at.is_some() {
            break;
        }
        let (after, peak) = player.counter(metric);
        // A request that failed in the recording is served here for a moment, so it is visible only in the maximum.
        visit(Some(step), after, if peak > most { peak } else { after });
        most = peak;
    }
    player.outcome.fails_at
}

/// Simulates a program from its start through the request that failed at an entry; returns the result and the bytes
/// reserved then.
pub(crate) fn simulate_to_refusal(program: &Program, setup: &Setup, entry: u32) -> (Outcome, u64) {
    let mut player = Player::new(program, setup);
    player.run_to(program.steps_to_refusal(entry), program, setup, &mut ());
    (player.outcome, player.allocator.stats().reserved)
}
