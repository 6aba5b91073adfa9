//! A failed request, and the memory that could have served it.

use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::facts::code::sites::{CodeOrigin, LONGEST_STACK, Sites, backward_of};
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::{Layout, SegmentLayout};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, BlockState, DEFAULT_POOL, PoolId, SegmentType, Snapshot, StackId};
use crate::replay::Track;
use indexmap::IndexMap;
use serde::Serialize;

/// Sites of blocks with the size of the request that are named.
const SAME_SIZE_SITES: usize = 3;

/// A request as the `oom` entry records it, and the code that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Requester"))]
pub struct Request {
    /// Bytes of the requested block: the caller's request, rounded up.
    #[serde(skip)]
    pub bytes: u64,
    /// Bytes that the driver would have had to supply for it: a whole segment, or whole pages.
    #[serde(skip)]
    pub driver_bytes: u64,
    /// CUDA stream.
    #[serde(skip)]
    pub stream: u64,
    /// Memory pool; `None` if unknown: PyTorch records it from 2.15 on.
    #[serde(skip)]
    pub pool: Option<PoolId>,
    /// Whether the pool is that of all live blocks with the same stack.
    #[serde(skip)]
    pub is_pool_inferred: bool,
    /// Whether new memory for it would have come from an expandable segment.
    #[serde(skip)]
    pub expandable: bool,
    /// Its site; `(no stack)` in backward passes, unless C++ frames were recorded.
    #[serde(rename = "label")]
    pub site: String,
    /// Its stack, innermost frame first; empty in backward passes.
    pub stack: Vec<String>,
    /// `torch.compile` context; empty if there is none.
    pub compile_context: String,
    /// Text that the user attached; empty if there is none.
    pub user_metadata: String,
    /// Without Python frames: the entry of the last request that has some.
    pub last_known_entry: Option<u32>,
    /// Its site.
    #[serde(rename = "last_known_label")]
    pub last_known_site: Option<String>,
    /// Without Python frames: sites of live blocks of the same rounded size. A gradient is as large as the tensor it
    /// belongs to, so these are inferred candidates, not facts.
    pub same_size: Vec<SameSize>,
}

/// Live blocks as large as a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SameSize {
    /// Their site.
    pub label: String,
    /// Number of these blocks.
    pub blocks: u64,
}

impl Request {
    /// The request that failed at an `oom` entry, as far as known, given the last request before it with Python frames.
    pub(super) fn of(
        track: Track<'_>,
        sites: &Sites<'_>,
        entry: u32,
        layout: &Layout,
        last_known: Option<u32>,
    ) -> Self {
        let snapshot = track.snapshot;
        let Some(TraceEntry { size, stack, context, .. }) = track.entry(entry) else { return Self::default() };
        let context = snapshot.contexts.get(context);
        let text = |id| Some(snapshot.strings.get(id)).filter(|&text| text != "N/A").unwrap_or_default().to_owned();
        let inferred = if context.pool.is_none() { pool_of_stack(track, layout, stack) } else { None };
        let pool = context.pool.or(inferred);
        let expandable = expandable(track, pool);
        let is_told = sites.has_python(stack) || context.forward != StackId::EMPTY;
        let (last_known_entry, same_size) =
            if is_told { (None, Vec::new()) } else { (last_known, same_size(track, sites, layout, size)) };
        let last_known_site = last_known_entry.map(|entry| sites.site(track.stack(entry)));
        let forward = Some(context.forward).filter(|&forward| forward != StackId::EMPTY && !sites.has_python(stack));
        let origin = CodeOrigin { stack, forward, is_recorded: true };
        Self {
            bytes: size,
            driver_bytes: SizeRules::device(&snapshot.settings).driver_request(size, expandable),
            stream: context.stream,
            pool,
            is_pool_inferred: inferred.is_some(),
            expandable,
            site: if forward.is_some() { backward_of(&sites.site(context.forward)) } else { sites.site(stack) },
            stack: sites.origin_labels(origin, LONGEST_STACK),
            compile_context: text(context.compile_context),
            user_metadata: text(context.user_metadata),
            last_known_entry,
            last_known_site,
            same_size,
        }
    }

    /// The pool that serves requests of this size.
    pub fn segment_type(&self) -> SegmentType {
        if self.bytes <= SMALL_SIZE { SegmentType::Small } else { SegmentType::Large }
    }

    /// Whether a segment's free blocks may serve it. Properties that the file does not contain count as matching; a request
    /// without a recorded pool counts as one of no private pool.
    pub(super) fn may_use(&self, segment: &SegmentLayout) -> bool {
        segment.segment_type == self.segment_type()
            && segment.stream.is_none_or(|stream| stream == self.stream)
            && segment.pool.is_none_or(|pool| pool == self.pool.unwrap_or(DEFAULT_POOL))
    }

    /// Whether the allocator uses a free block of this many bytes for it. `max_split_size` keeps large blocks from smaller
    /// requests, and blocks that are much larger from large requests (`get_free_block`).
    pub(super) fn takes(&self, snapshot: &Snapshot, block: u64) -> bool {
        block >= self.bytes && !SizeRules::device(&snapshot.settings).keeps_back(self.bytes, block)
    }
}

/// The private pool that holds all live blocks with a stack.
fn pool_of_stack(track: Track<'_>, layout: &Layout, stack: StackId) -> Option<PoolId> {
    if stack == StackId::EMPTY || layout.segments.iter().all(|segment| segment.pool.is_none_or(|it| it == DEFAULT_POOL))
    {
        return None;
    }
    let is_of_stack = |segment: &&SegmentLayout| {
        let mut made = layout.pieces_of(segment).iter().filter_map(|piece| piece.allocation);
        made.any(|index| track.stack_of(index) == stack)
    };
    let mut pools = layout.segments.iter().filter(is_of_stack).map(|segment| segment.pool);
    let first = pools.next().flatten().filter(|&pool| pool != DEFAULT_POOL)?;
    pools.all(|pool| pool == Some(first)).then_some(first)
}

/// Whether the request's pool grows in place. Up to PyTorch 2.4 private pools did not; before 2.3 nothing is recorded
/// but the segments themselves.
fn expandable(track: Track<'_>, pool: Option<PoolId>) -> bool {
    let Track { snapshot, history } = track;
    if snapshot.settings.recorded && pool.unwrap_or(DEFAULT_POOL) == DEFAULT_POOL {
        return snapshot.settings.expandable_segments;
    }
    history.segments.iter().any(|span| span.expandable)
}

fn same_size(track: Track<'_>, sites: &Sites<'_>, layout: &Layout, bytes: u64) -> Vec<SameSize> {
    let Track { snapshot, history } = track;
    let rules = SizeRules::device(&snapshot.settings);
    let mut found: IndexMap<StackId, u64> = IndexMap::new();
    for index in layout.pieces.iter().filter_map(|piece| piece.allocation) {
        let stack = track.stack_of(index);
        if sites.has_python(stack) && rules.round(history.allocations[index].requested) == bytes {
            *found.entry(stack).or_default() += 1;
        }
    }
    let mut by_site: IndexMap<String, u64> = IndexMap::new();
    for (stack, blocks) in found {
        *by_site.entry(sites.site(stack)).or_default() += blocks;
    }
    by_site.sort_by(|site, blocks, other, more| more.cmp(blocks).then_with(|| site.cmp(other)));
    by_site.into_iter().take(SAME_SIZE_SITES).map(|(label, blocks)| SameSize { label, blocks }).collect()
}

/// The memory that the allocator returned to the driver right before an `oom` entry, for its retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// Number of segments or mapped ranges.
    pub segments: u64,
    pub bytes: u64,
    /// Number of frees that completed meanwhile, or right before.
    pub completed: u64,
}

impl Retry {
    /// Sums up the entries right before the `oom` entry that return segments to the driver, and the frees that
    /// completed among them: the retry first waits for pending frees.
    pub(super) fn before(track: Track<'_>, entry: u32) -> Self {
        let mut retry = Self::default();
        for before in (0..entry).rev() {
            let Some(TraceEntry { action, size, .. }) = track.entry(before) else { break };
            match action {
                Action::SegmentFree | Action::SegmentUnmap => {
                    retry.segments += 1;
                    retry.bytes = retry.bytes.wrapping_add(size);
                }
                Action::FreeCompleted => retry.completed += 1,
                _ => break,
            }
        }
        retry
    }
}

/// The segments whose free blocks could have served a request: those of its pool and stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Sums over them.
    pub figures: Figures,
    /// The largest free block in them that is too small, or that the allocator would have used: blocks that
    /// `max_split_size` keeps back do not count.
    pub largest_usable: u64,
    /// Whether the request's pool is not recorded although there are private ones.
    pub assumed: bool,
}

impl Serving {
    pub(super) fn of(track: Track<'_>, request: &Request, layout: &Layout) -> Self {
        let Track { snapshot, history } = track;
        let private = |segment: &SegmentLayout| segment.pool.is_some_and(|pool| pool != DEFAULT_POOL);
        let assumed = request.pool.is_none() && layout.segments.iter().any(private);
        let mut serving = Self { assumed, ..Self::default() };
        for segment in layout.segments.iter().filter(|segment| request.may_use(segment)) {
            serving.figures = serving.figures.plus(&Figures::of_segment(history, layout, segment));
            let free = layout.pieces_of(segment).iter().filter(|piece| piece.state == BlockState::Inactive);
            let usable = free.filter(|piece| piece.size < request.bytes || request.takes(snapshot, piece.size));
            serving.largest_usable = usable.map(|piece| piece.size).fold(serving.largest_usable, u64::max);
        }
        serving
    }
}
