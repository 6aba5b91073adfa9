//! The allocator's segments and blocks at an instant: what `torch.cuda.memory_snapshot()` would have shown then.

use crate::allocator::{SMALL_BUFFER, SMALL_SIZE, SizeRules};
use crate::model::{BlockState, PoolId, Segment, SegmentType, StackId};
use crate::replay::{Instant, NEVER, SegmentSpan, Track};
use serde::{Serialize, Serializer};
use std::ops::Range;

/// A piece of a segment: a block, active or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub size: u64,
    pub state: BlockState,
    /// Index into [`crate::replay::History::allocations`]; `None` for a free piece.
    pub allocation: Option<usize>,
}

/// A segment. Adjacent mapped ranges of an expandable segment are merged, as in `torch.cuda.memory_snapshot()`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SegmentLayout {
    /// First address.
    #[serde(rename = "address")]
    pub addr: u64,
    /// `small` or `large`. Known for segments that exist at the end or contain an active block; otherwise it follows from
    /// the size.
    #[serde(serialize_with = "segment_type")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub segment_type: SegmentType,
    /// CUDA stream; null if the file does not record it.
    pub stream: Option<u64>,
    /// Pool id; null if the file does not record it.
    #[serde(rename = "pool_id")]
    pub pool: Option<PoolId>,
    /// Whether it is a mapped part of an expandable segment.
    pub expandable: bool,
    /// Length in bytes.
    #[serde(skip)]
    pub size: u64,
    /// The unit of release in bytes: the page size of an expandable segment, otherwise the whole size.
    #[serde(skip)]
    pub unit: u64,
    /// Stack of the request that created it.
    #[serde(skip)]
    pub stack: StackId,
    /// Its pieces in [`Layout::pieces`]; they cover it without gaps.
    #[serde(skip)]
    pub pieces: Range<usize>,
}

/// Writes `small` or `large`, as in snapshots.
// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn segment_type<S: Serializer>(segment_type: &SegmentType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match segment_type {
        SegmentType::Small => "small",
        SegmentType::Large => "large",
    })
}

/// The segments of one device and their blocks.
///
/// Pieces cover their segments without gaps: the segments sum to `reserved`, the pieces that are not free to `active`, unless
/// the recording contradicts itself and has [`Layout::stray`] blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Segments in address order.
    pub segments: Vec<SegmentLayout>,
    /// Pieces of all segments, in address order.
    pub pieces: Vec<Piece>,
    /// Active blocks that are in no segment or overlap another block, as indexes into
    /// [`crate::replay::History::allocations`]. A recording that PyTorch wrote has none.
    pub stray: Vec<usize>,
}

impl Layout {
    /// The layout at an instant.
    pub fn at(track: Track<'_>, instant: Instant) -> Self {
        Sweep::new(track).at(instant)
    }

    /// The layout of ranges and blocks in address order.
    fn of(track: Track<'_>, spans: impl Iterator<Item = SegmentSpan>, live: impl Iterator<Item = Piece>) -> Self {
        let snapshot = track.snapshot;
        let mut layout = Self::default();
        let rules = SizeRules::device(&snapshot.settings);
        let mut live = live.peekable();
        let mut spans = spans.peekable();
        while let Some(first) = spans.next() {
            let mut end = first.end();
            while let Some(next) = spans.next_if(|next| first.expandable && next.expandable && next.addr == end) {
                end = next.end();
            }
            let start = layout.pieces.len();
            let mut free_from = first.addr;
            while let Some(piece) = live.next_if(|piece| piece.addr < end) {
                let inside = piece.addr >= free_from && piece.size <= end - piece.addr;
                if inside {
                    layout.push_free(free_from, piece.addr);
                    layout.pieces.push(piece);
                    free_from = piece.addr + piece.size;
                } else {
                    layout.stray.extend(piece.allocation);
                }
            }
            layout.push_free(free_from, end);
            let pieces = start..layout.pieces.len();
            layout.segments.push(segment(track, &rules, &first, end, &layout.pieces, pieces));
        }
        layout.stray.extend(live.filter_map(|piece| piece.allocation));
        layout
    }

    /// The layout without some of its blocks: free blocks merge with their free neighbors.
    #[must_use]
    pub fn without(&self, gone: impl Fn(usize) -> bool) -> Self {
        let mut layout = Self { stray: self.stray.clone(), ..Self::default() };
        for segment in &self.segments {
            let start = layout.pieces.len();
            let mut free_from = segment.addr;
            for piece in self.pieces_of(segment).iter().filter(|piece| piece.allocation.is_some_and(|it| !gone(it))) {
                layout.push_free(free_from, piece.addr);
                layout.pieces.push(*piece);
                free_from = piece.addr + piece.size;
            }
            layout.push_free(free_from, segment.addr + segment.size);
            layout.segments.push(SegmentLayout { pieces: start..layout.pieces.len(), ..segment.clone() });
        }
        layout
    }

    fn push_free(&mut self, from: u64, to: u64) {
        if from < to {
            self.pieces.push(Piece { addr: from, size: to - from, state: BlockState::Inactive, allocation: None });
        }
    }

    /// The pieces of one of the segments, in address order.
    pub fn pieces_of(&self, segment: &SegmentLayout) -> &[Piece] {
        self.pieces.get(segment.pieces.clone()).unwrap_or(&[])
    }

    /// The segment that contains an address.
    pub fn segment_of(&self, addr: u64) -> Option<&SegmentLayout> {
        let after = self.segments.partition_point(|segment| segment.addr <= addr);
        self.segments.get(after.checked_sub(1)?).filter(|segment| addr - segment.addr < segment.size)
    }
}

/// Layouts at several instants of one history.
///
/// It keeps what exists from one instant to the next, so layouts at ascending instants together cost one pass over the
/// history, plus the blocks and segments in them.
#[derive(Clone, Debug)]
pub struct Sweep<'a> {
    track: Track<'a>,
    instant: Instant,
    /// The number of allocations processed so far, and the active ones among them, in address order.
    seen: usize,
    live: Vec<u32>,
    /// The same for [`crate::replay::History::segments`].
    seen_spans: usize,
    spans: Vec<u32>,
}

impl<'a> Sweep<'a> {
    /// Starts before the first entry.
    pub fn new(track: Track<'a>) -> Self {
        Self { track, instant: 0, seen: 0, live: Vec::new(), seen_spans: 0, spans: Vec::new() }
    }

    /// The layout at an instant. An instant before the last one starts over.
    pub fn at(&mut self, instant: Instant) -> Layout {
        if instant < self.instant {
            *self = Self::new(self.track);
        }
        self.instant = instant;
        let (allocations, segments) = (&self.track.history.allocations, &self.track.history.segments);

        // Both tables are in the order of creation.
        self.live.retain(|&index| allocations[index as usize].active_at(instant));
        let born = self.seen + allocations[self.seen..].partition_point(|allocation| allocation.born <= instant);
        let active = |&index: &usize| allocations[index].active_at(instant);
        self.live.extend((self.seen..born).filter(active).map(|index| index as u32));
        self.seen = born;
        self.live.sort_unstable_by_key(|&index| (allocations[index as usize].addr, index));

        self.spans.retain(|&index| segments[index as usize].reserved_at(instant));
        let born = self.seen_spans + segments[self.seen_spans..].partition_point(|span| span.born <= instant);
        let reserved = |&index: &usize| segments[index].reserved_at(instant);
        self.spans.extend((self.seen_spans..born).filter(reserved).map(|index| index as u32));
        self.seen_spans = born;
        self.spans.sort_unstable_by_key(|&index| segments[index as usize].addr);

        let pieces = self.live.iter().map(|&index| {
            let allocation = &allocations[index as usize];
            let allocated = allocation.allocated_at(instant);
            let state = if allocated { BlockState::ActiveAllocated } else { BlockState::ActivePendingFree };
            Piece { addr: allocation.addr, size: allocation.size, state, allocation: Some(index as usize) }
        });
        let spans = self.spans.iter().map(|&index| segments[index as usize]);
        Layout::of(self.track, spans, pieces)
    }
}

/// Combines the data about the segment from `first` up to `end`.
fn segment(
    track: Track<'_>,
    rules: &SizeRules,
    first: &SegmentSpan,
    end: u64,
    all_pieces: &[Piece],
    pieces: Range<usize>,
) -> SegmentLayout {
    let Track { snapshot, history } = track;
    // The snapshot itself describes segments that exist at the end.
    let at_end = (first.gone == NEVER).then(|| final_segment(track, first.addr)).flatten();
    let block = all_pieces[pieces.clone()].iter().find_map(|piece| Some((piece, piece.allocation?)));
    let context = |row| snapshot.contexts.get(snapshot.entries.context(row));
    let of_block = block.map(|(_, index)| match history.born_row(index) {
        Some(row) => (Some(context(row).stream), context(row).pool),
        None => history.baseline.get(index).map_or((None, None), |origin| (Some(origin.stream), origin.pool)),
    });
    let of_entry = first.made.checked_sub(1).map(|entry| {
        let context = context(history.rows.start + entry as usize);
        (Some(context.stream), context.pool)
    });
    // For a segment from before the recording, the entry that releases it shows its stream.
    let given_back = || {
        let entry = first.gone.checked_sub(1).filter(|_| first.gone != NEVER)?;
        let context = context(history.rows.start + entry as usize);
        Some((Some(context.stream), context.pool))
    };
    let known = at_end.map(|segment| (Some(segment.stream), segment.pool)).or(of_block).or(of_entry);
    let (stream, pool) = known.or_else(given_back).unzip();
    let size = end - first.addr;
    // The small pool has blocks of up to 1 MiB, the large pool only larger ones. Without a block, the size decides: regular
    // segments of the small pool have one size, and expandable segments of the large pool grow by larger pages.
    let large_page = rules.page_size(SegmentType::Large);
    let small_size = size == SMALL_BUFFER || (first.expandable && !size.is_multiple_of(large_page));
    let is_small = block.map_or(small_size, |(piece, _)| piece.size <= SMALL_SIZE);
    let segment_type = if is_small { SegmentType::Small } else { SegmentType::Large };
    let segment_type = at_end.map_or(segment_type, |segment| segment.segment_type);
    SegmentLayout {
        addr: first.addr,
        size,
        expandable: first.expandable,
        unit: if first.expandable { rules.page_size(segment_type) } else { size },
        segment_type,
        stream: stream.flatten(),
        pool: pool.flatten(),
        stack: first.stack,
        pieces,
    }
}

/// The segment at dump time that contains an address.
fn final_segment(track: Track<'_>, addr: u64) -> Option<&Segment> {
    let segments = track.segments();
    let after = segments.partition_point(|segment| segment.address <= addr);
    segments.get(after.checked_sub(1)?).filter(|segment| addr - segment.address < segment.total_size)
}
