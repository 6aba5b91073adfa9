//! The allocation requests of a recorded program.
//!
//! A trace shows what the allocator did: the requests and frees of the program, and between them what it requested from the
//! driver and released for them. Only the former are simulated; the latter follow. The start of each request must be
//! inferred: a retry waits for pending frees and releases memory before the entry of its block is written, and all of that
//! happens only because the search for a free block failed first.

use super::repetition::Repetition;
use crate::allocator::SizeRules;
use crate::facts::segments::layout::{Layout, SegmentLayout};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, BlockState, PoolId, Segment, StackId};
use crate::replay::{Instant, NEVER, SegmentSpan, Track};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub kind: StepKind,
    /// Index into [`Program::pools`], for requests.
    pub pool: u16,
    /// The allocation that the step is about, as an index into [`crate::replay::History::allocations`].
    pub allocation: u32,
    /// The entry that recorded it, counted within the trace.
    pub entry: u32,
    pub bytes: u64,
}

/// The cost of creating a pool for small and one for large blocks, in steps.
const SET_UP_OF_POOL: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Alloc,
    /// A request that failed: what the program would have done with the block is unknown.
    Refused,
    /// The free of a block that no other stream uses.
    Free,
    /// The free of a block that another stream uses.
    RequestFree,
    /// The other stream has finished using it.
    CompleteFree,
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// A private pool is no longer needed: its memory may be released.
    ReleasePool,
}

/// Memory that the allocator released in a recording, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Releases {
    /// Requests for which the allocator first released cached memory.
    pub retries: u32,
    pub empty_cache: u32,
    /// Of these, calls that may also be retries of the next request: the segments that they released have no stack, as
    /// in PyTorch 2.0.
    pub uncertain_calls: u32,
    /// Number of retries that may also be `empty_cache` right before a request: neither has a stack.
    pub uncertain: u32,
}

/// The requests and frees of a recording's program on one device, which can be simulated any number of times.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its steps in order. Programs that differ in something else share them.
    pub(crate) steps: Arc<Vec<Step>>,
    /// Stream and private pool of requests.
    pub(crate) pools: Vec<(u64, Option<PoolId>)>,
    pub(super) repetition: Option<Repetition>,
    pub(crate) start: Layout,
    /// Requested bytes of the blocks that are live then.
    pub(crate) start_requested: Vec<(usize, u64)>,
    pub(crate) allocations: usize,
    /// The address of each segment that the driver allocated for a request, by the entry of the request, in order.
    pub(crate) addresses: Vec<(u32, u64)>,
    /// Private pools whose segments do not grow in place although the setting is on.
    pub(crate) plain_pools: Vec<PoolId>,
    /// Memory that the allocator released.
    pub releases: Releases,
    /// Whether the program continued with requests after one failed.
    pub goes_on: bool,
    /// Requests that failed: entry, and the bytes that the device had for the process then.
    pub refusals: Vec<(u32, u64)>,
    /// The instant at which it ends, if it is a part of the recorded program.
    pub(crate) until: Option<Instant>,
}

impl Program {
    /// The program of one device. `None` if it has more streams and pools than any real program.
    pub fn of(track: Track<'_>) -> Option<Self> {
        Self::within(track, None)
    }

    /// The program of a device up to an instant: see [`Program::of`].
    pub(crate) fn within(track: Track<'_>, until: Option<Instant>) -> Option<Self> {
        let (snapshot, history) = (track.snapshot, track.history);
        let mut reader = Reader::new(track);
        let end = until.map_or(history.entries(), |until| until.min(history.entries()));
        let allocations = history.born_after(end);
        for (entry, recorded) in (0..end).zip(snapshot.entries.rows(history.rows.clone())) {
            reader.read(entry, &recorded)?;
        }
        reader.flush();
        let mut start = Layout::at(track, 0);
        // If no block shows the stream of a segment, the entry that releases it does.
        for segment in start.segments.iter_mut().filter(|segment| segment.stream.is_none()) {
            let owner = reader.owners.get(&segment.addr);
            (segment.stream, segment.pool) = owner.map_or((None, segment.pool), |&(stream, pool)| (Some(stream), pool));
        }
        let held = start.pieces.iter().filter_map(|piece| piece.allocation);
        let start_requested = held.map(|index| (index, history.allocations[index].requested)).collect();
        let refused = reader.steps.iter().position(|step| step.kind == StepKind::Refused);
        let goes_on = refused.is_some_and(|at| reader.steps[at..].iter().any(|step| step.kind == StepKind::Alloc));
        Some(Self {
            repetition: Repetition::of(&reader.steps, allocations),
            steps: Arc::new(reader.steps),
            pools: reader.pools,
            start,
            start_requested,
            allocations,
            addresses: reader.addresses,
            plain_pools: plain_pools(track),
            releases: reader.releases,
            goes_on,
            refusals: reader.refusals,
            until,
        })
    }

    /// The same program after a change of its steps, which may repeat differently.
    #[must_use]
    pub(crate) fn with_its_loop(self) -> Self {
        Self { repetition: Repetition::of(&self.steps, self.allocations), ..self }
    }

    /// The part before an instant, without requests that fail later.
    #[must_use]
    pub(crate) fn up_to(&self, instant: Instant) -> Self {
        let end = self.steps.iter().rposition(|step| step.entry < instant).map_or(0, |last| last + 1);
        let mut refusals = self.refusals.clone();
        refusals.retain(|&(entry, _)| entry < instant);
        Self {
            steps: Arc::new(self.steps[..end].to_vec()),
            refusals,
            goes_on: false,
            until: Some(instant),
            ..self.clone()
        }
        .with_its_loop()
    }

    /// The same program without its initial cache: segments with no block in use, which the allocator releases before a
    /// request fails. A device with less memory would not have held them. `None` if there are none.
    #[must_use]
    pub(crate) fn without_cache(&self) -> Option<Self> {
        let is_used = |segment: &&SegmentLayout| {
            self.start.pieces_of(segment).iter().any(|piece| piece.state != BlockState::Inactive)
        };
        let used: Vec<SegmentLayout> = self.start.segments.iter().filter(is_used).cloned().collect();
        (used.len() < self.start.segments.len())
            .then(|| Self { start: Layout { segments: used, ..self.start.clone() }, ..self.clone() })
    }

    /// Bytes of the segments that exist before the first step.
    pub(crate) fn reserved_at_start(&self) -> u64 {
        self.start.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.size))
    }

    /// The cost of preparing a simulation, in steps: it creates every pool and the initial segments and blocks.
    pub(super) fn set_up(&self) -> u64 {
        (1 + SET_UP_OF_POOL * self.pools.len() + self.start.pieces.len()) as u64
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Number of steps up to and including the request that was refused at an entry.
    pub(crate) fn steps_to_refusal(&self, entry: u32) -> usize {
        let is_it = |step: &Step| step.kind == StepKind::Refused && step.entry == entry;
        self.steps.iter().position(is_it).map_or(self.steps.len(), |index| index + 1)
    }

    /// The maximum of bytes that the blocks in use need, rounded but without remainders that are not split off: no
    /// placement of blocks needs less.
    pub(crate) fn live_bytes(&self, rules: &SizeRules) -> u64 {
        self.live_bytes_to(self.steps.len(), rules)
    }

    /// Like [`Program::live_bytes`], but of the first steps.
    pub(crate) fn live_bytes_to(&self, end: usize, rules: &SizeRules) -> u64 {
        let mut sizes = vec![0; self.allocations];
        let mut live = 0u64;
        for &(index, requested) in &self.start_requested {
            sizes[index] = rules.round(requested);
            live = live.saturating_add(sizes[index]);
        }
        let mut most = live;
        for step in self.steps.iter().take(end) {
            if step.kind == StepKind::Refused {
                most = most.max(live.saturating_add(step.bytes));
            }
            let Some(size) = sizes.get_mut(step.allocation as usize) else { continue };
            match step.kind {
                StepKind::Alloc => {
                    *size = rules.round(step.bytes);
                    live = live.saturating_add(*size);
                    most = most.max(live);
                }
                StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree => {
                    live = live.saturating_sub(std::mem::take(size));
                }
                StepKind::Refused | StepKind::EmptyCache | StepKind::ReleasePool => {}
            }
        }
        most
    }

    pub(super) fn lowest_address(&self) -> u64 {
        let made = self.addresses.iter().map(|&(_, addr)| addr);
        let there = self.start.segments.first().map(|segment| segment.addr);
        made.chain(there).min().unwrap_or(0)
    }
}

fn plain_pools(track: Track<'_>) -> Vec<PoolId> {
    if !track.snapshot.settings.expandable_segments {
        return Vec::new();
    }
    let plain = track.snapshot.segments_of(track.device()).iter().filter(|segment| !segment.is_expandable);
    let mut pools: Vec<PoolId> = plain.filter_map(private_pool).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

fn private_pool(segment: &Segment) -> Option<PoolId> {
    segment.pool.filter(|&pool| pool != (0, 0))
}

struct Reader<'a> {
    track: Track<'a>,
    steps: Vec<Step>,
    pools: Vec<(u64, Option<PoolId>)>,
    known_pools: HashMap<(u64, Option<PoolId>), u16, RandomState>,
    /// The pool of an earlier request, which the next one probably uses too.
    last_pool: u16,
    first_of_private: HashMap<PoolId, u16, RandomState>,
    /// Segments of private pools at the end, in address order: entries before PyTorch 2.15 do not name their pool.
    private: Vec<&'a Segment>,
    /// If there are any: the ranges that exist at the end, in address order.
    last_spans: Vec<&'a SegmentSpan>,
    addresses: Vec<(u32, u64)>,
    releases: Releases,
    refusals: Vec<(u32, u64)>,
    /// Entries since the last step that are about segments.
    segments: Vec<TraceEntry>,
    /// Pending frees that completed since the last step.
    completed: Vec<Step>,
    reserved: u64,
    released: HashSet<u16, RandomState>,
    /// Stack of the last free that was requested.
    freed_by: StackId,
    /// Stream and pool of segments that are released, by address.
    owners: HashMap<u64, (u64, Option<PoolId>), RandomState>,
}

impl<'a> Reader<'a> {
    fn new(track: Track<'a>) -> Self {
        let segments = track.snapshot.segments_of(track.device()).iter();
        let private: Vec<&Segment> = segments.filter(|segment| private_pool(segment).is_some()).collect();
        let spans = track.history.segments.iter().filter(|span| span.gone == NEVER && !private.is_empty());
        let mut last_spans: Vec<&SegmentSpan> = spans.collect();
        last_spans.sort_rows_by_key(|span| span.addr);
        Self {
            track,
            steps: Vec::with_capacity(track.history.rows.len()),
            pools: Vec::new(),
            known_pools: HashMap::default(),
            last_pool: 0,
            first_of_private: HashMap::default(),
            private,
            last_spans,
            addresses: Vec::new(),
            releases: Releases::default(),
            refusals: Vec::new(),
            segments: Vec::new(),
            completed: Vec::new(),
            reserved: u64::try_from(track.history.start.reserved).unwrap_or(0),
            released: HashSet::default(),
            freed_by: StackId::EMPTY,
            owners: HashMap::default(),
        }
    }

    fn read(&mut self, entry: u32, recorded: &TraceEntry) -> Option<()> {
        let allocation = self.track.history.links.get(entry as usize).copied().unwrap_or(u32::MAX);
        let step = Step { kind: StepKind::Free, pool: 0, allocation, entry, bytes: recorded.size };
        match recorded.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                self.reserved = self.reserved.saturating_add(recorded.size);
                self.segments.push(*recorded);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.reserved = self.reserved.saturating_sub(recorded.size);
                let context = self.track.snapshot.contexts.get(recorded.context);
                self.owners.entry(recorded.addr).or_insert((context.stream, context.pool));
                self.segments.push(*recorded);
            }
            Action::FreeRequested => {
                self.flush();
                self.freed_by = recorded.stack;
                self.steps.push(Step { kind: StepKind::RequestFree, ..step });
            }
            Action::FreeCompleted => self.complete(step, recorded.stack),
            Action::Alloc => {
                let pool = self.pool_of(recorded, allocation)?;
                self.request(Step { kind: StepKind::Alloc, pool, ..step }, recorded.stack);
            }
            Action::Oom => {
                let pool = self.pool_of(recorded, u32::MAX)?;
                self.refusals.push((entry, self.reserved.saturating_add(recorded.addr)));
                self.request(Step { kind: StepKind::Refused, pool, ..step }, recorded.stack);
            }
            Action::Snapshot | Action::Annotate => self.flush(),
            Action::Unknown => {}
        }
        Some(())
    }

    /// Completes a free: at once, or when another stream has finished with the block. In the latter case the next
    /// request completes it, with a different stack.
    fn complete(&mut self, step: Step, stack: StackId) {
        let is_pending = !self.segments.is_empty() || !self.completed.is_empty() || stack != self.freed_by;
        if let Some(last) = self
            .steps
            .last_mut()
            .filter(|last| !is_pending && last.kind == StepKind::RequestFree && last.allocation == step.allocation)
        {
            last.kind = StepKind::Free;
            return;
        }
        self.completed.push(Step { kind: StepKind::CompleteFree, ..step });
    }

    /// Adds a request. Segments that were released for it and pending frees that it waited for come before its entry,
    /// and belong to it.
    fn request(&mut self, step: Step, stack: StackId) {
        if self.segments.is_empty() && self.completed.is_empty() {
            self.steps.push(step);
            return;
        }
        let segments = std::mem::take(&mut self.segments);
        let is_release = |entry: &TraceEntry| matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
        // The stack decides. Without one, an allocation from the driver, or a refusal, ends a retry; a free block of an
        // expandable segment may do so as well, but then looks like `empty_cache`.
        let may_retry = stack != StackId::EMPTY
            || step.kind == StepKind::Refused
            || segments.last().is_some_and(|last| !is_release(last));
        let own = segments.iter().rev().take_while(|entry| !is_release(entry) || entry.stack == stack);
        let own = if may_retry { own.count() } else { 0 };
        let (before, own) = segments.split_at(segments.len() - own);
        let is_retry = own.iter().any(is_release);
        self.release_pools(&segments, step.entry);
        if let Some(last) = before.iter().rfind(|entry| is_release(entry)) {
            let may_be_retry = step.kind == StepKind::Refused || !segments.iter().all(is_release);
            self.releases.uncertain_calls += u32::from(may_be_retry && last.stack == StackId::EMPTY);
            self.steps.append(&mut self.completed);
            self.empty_cache(step.entry);
        }
        if is_retry {
            self.releases.retries += 1;
            let may_be_empty_cache = stack == StackId::EMPTY && step.kind == StepKind::Alloc;
            self.releases.uncertain += u32::from(may_be_empty_cache);
        } else if step.kind != StepKind::Refused {
            // A refused request waits for pending frees even if there is nothing to release.
            self.steps.append(&mut self.completed);
        }
        let made = segments.iter().find(|entry| !is_release(entry));
        self.addresses.extend(made.map(|entry| (step.entry, entry.addr)));
        self.steps.push(step);
        self.steps.append(&mut self.completed);
    }

    fn empty_cache(&mut self, entry: u32) {
        self.releases.empty_cache += 1;
        self.steps.push(Step { kind: StepKind::EmptyCache, pool: 0, allocation: u32::MAX, entry, bytes: 0 });
    }

    fn release_pools(&mut self, segments: &[TraceEntry], entry: u32) {
        for released in segments.iter().filter(|entry| entry.action == Action::SegmentFree) {
            let context = self.track.snapshot.contexts.get(released.context);
            let Some(private) = context.pool.filter(|&pool| pool != (0, 0)) else { continue };
            let Some(&pool) = self.first_of_private.get(&private) else { continue };
            if self.released.insert(pool) {
                let kind = StepKind::ReleasePool;
                self.steps.push(Step { kind, pool, allocation: u32::MAX, entry, bytes: 0 });
            }
        }
    }

    /// Ends the entries since the last step: memory that was released without a request.
    fn flush(&mut self) {
        self.steps.append(&mut self.completed);
        let is_release = |entry: &TraceEntry| matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
        if self.segments.iter().any(is_release) {
            let entry = self.steps.last().map_or(0, |last| last.entry + 1);
            let segments = std::mem::take(&mut self.segments);
            self.release_pools(&segments, entry);
            self.empty_cache(entry);
        }
        self.segments.clear();
    }

    fn pool_of(&mut self, recorded: &TraceEntry, allocation: u32) -> Option<u16> {
        let context = self.track.snapshot.contexts.get(recorded.context);
        let private = context.pool.or_else(|| self.private_pool_at(allocation)).filter(|&pool| pool != (0, 0));
        let key = (context.stream, private);
        if self.pools.get(usize::from(self.last_pool)) == Some(&key) {
            return Some(self.last_pool);
        }
        if let Some(&known) = self.known_pools.get(&key) {
            self.last_pool = known;
            return Some(known);
        }
        let number = u16::try_from(self.pools.len()).ok()?;
        self.pools.push(key);
        self.known_pools.insert(key, number);
        if let Some(private) = private {
            self.first_of_private.entry(private).or_insert(number);
        }
        Some(number)
    }

    /// The private pool in whose final segment an allocation is, if the segment was there then.
    fn private_pool_at(&self, allocation: u32) -> Option<PoolId> {
        if self.private.is_empty() {
            return None;
        }
        let allocation = self.track.history.allocations.get(allocation as usize)?;
        let after = self.private.partition_point(|segment| segment.address <= allocation.addr);
        let segment = self.private.get(after.checked_sub(1)?)?;
        if allocation.addr - segment.address >= segment.total_size {
            return None;
        }
        let after = self.last_spans.partition_point(|span| span.addr <= allocation.addr);
        let span = self.last_spans.get(after.checked_sub(1)?)?;
        private_pool(segment).filter(|_| allocation.addr < span.end() && span.made <= allocation.born)
    }
}
