//! The allocator's segments and blocks at an instant: what `torch.cuda.memory_snapshot()` would have shown then.

use crate::model::{BlockState, PoolId, Segment, SegmentType, Snapshot, StackId};
use crate::replay::{History, Instant, NEVER, SMALL_SIZE, SegmentSpan};
use std::ops::Range;

/// Segments of the small pool have this size in bytes, and its expandable segments grow by it (`kSmallBuffer`).
const SMALL_BUFFER: u64 = 2 << 20;

/// A piece of a segment: a block, in use or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub size: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// Index into [`History::allocations`]; `None` for a free piece.
    pub allocation: Option<usize>,
}

/// A segment. Touching mapped ranges of an expandable segment are one, as in `torch.cuda.memory_snapshot()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub size: u64,
    /// Whether it is (a mapped part of) an expandable segment.
    pub expandable: bool,
    /// Small or large pool. Known for segments that are there at the end or have a block in use; the others' follows
    /// from their size.
    pub segment_type: SegmentType,
    /// CUDA stream; `None` when the file does not tell.
    pub stream: Option<u64>,
    /// Default or private pool; `None` when the file does not tell.
    pub pool: Option<PoolId>,
    /// Stack of the request that made it.
    pub stack: StackId,
    /// Its pieces in [`Layout::pieces`]; they tile it.
    pub pieces: Range<usize>,
}

/// The segments of one device and what is in them.
///
/// Pieces tile their segments: the segments sum to `reserved`, the pieces that are not free to `active`, unless the
/// recording contradicts itself and has [`Layout::stray`] blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Segments in address order.
    pub segments: Vec<SegmentLayout>,
    /// Pieces of all segments, in address order.
    pub pieces: Vec<Piece>,
    /// Blocks in use that lie in no segment or in one another, as indexes into [`History::allocations`]. A recording
    /// that PyTorch wrote has none.
    pub stray: Vec<usize>,
}

impl Layout {
    /// The layout at an instant.
    pub fn at(snapshot: &Snapshot, history: &History, instant: Instant) -> Self {
        let mut spans: Vec<&SegmentSpan> = history.segments.iter().filter(|span| span.reserved_at(instant)).collect();
        spans.sort_unstable_by_key(|span| span.addr);
        let live = history.allocations.iter().enumerate().filter(|(_, allocation)| allocation.active_at(instant));
        let mut live: Vec<Piece> = live
            .map(|(index, allocation)| Piece {
                addr: allocation.addr,
                size: allocation.size,
                state: if allocation.allocated_at(instant) {
                    BlockState::ActiveAllocated
                } else {
                    BlockState::ActivePendingFree
                },
                allocation: Some(index),
            })
            .collect();
        live.sort_unstable_by_key(|piece| (piece.addr, piece.allocation));

        let mut layout = Self::default();
        let mut live = live.into_iter().peekable();
        let mut spans = spans.into_iter().peekable();
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
            layout.segments.push(segment(snapshot, history, first, end, &layout.pieces, pieces));
        }
        layout.stray.extend(live.filter_map(|piece| piece.allocation));
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

/// Puts together what is known of the segment from `first` up to `end`.
fn segment(
    snapshot: &Snapshot,
    history: &History,
    first: &SegmentSpan,
    end: u64,
    all_pieces: &[Piece],
    pieces: Range<usize>,
) -> SegmentLayout {
    // What is still there at the end is described by the snapshot itself.
    let at_end = (first.gone == NEVER).then(|| final_segment(snapshot, history, first.addr)).flatten();
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
    let (stream, pool) = at_end.map(|segment| (Some(segment.stream), segment.pool)).or(of_block).or(of_entry).unzip();
    let size = end - first.addr;
    // The small pool hands out blocks of up to 1 MiB, the large pool only larger ones.
    let is_small = block.map_or(size == SMALL_BUFFER, |(piece, _)| piece.size <= SMALL_SIZE);
    let segment_type = if is_small { SegmentType::Small } else { SegmentType::Large };
    SegmentLayout {
        addr: first.addr,
        size,
        expandable: first.expandable,
        segment_type: at_end.map_or(segment_type, |segment| segment.segment_type),
        stream: stream.flatten(),
        pool: pool.flatten(),
        stack: first.stack,
        pieces,
    }
}

/// The segment at the dump that contains an address.
fn final_segment<'s>(snapshot: &'s Snapshot, history: &History, addr: u64) -> Option<&'s Segment> {
    let segments = snapshot.segments_of(history.device);
    let after = segments.partition_point(|segment| segment.address <= addr);
    segments.get(after.checked_sub(1)?).filter(|segment| addr - segment.address < segment.total_size)
}
