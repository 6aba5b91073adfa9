//! Streams and pools of blocks whose entries do not record them.

use super::holder::Holder;
use crate::model::Segment;
use crate::replay::{NEVER, SegmentSpan, Track};

/// Stream and pool by address. Before PyTorch 2.15, entries do not record the pool, but a segment that exists at the end
/// does, and all its blocks belong to its pool.
#[derive(Default)]
pub(super) struct Pools<'a> {
    /// Ranges that exist at the end, in address order, with their segments.
    ranges: Vec<(&'a SegmentSpan, &'a Segment)>,
}

impl<'a> Pools<'a> {
    pub(super) fn of(track: Track<'a>) -> Self {
        let history = track.history;
        let segments = track.segments();
        let segment_of = |addr| {
            let after = segments.partition_point(|segment| segment.address <= addr);
            segments.get(after.checked_sub(1)?).filter(|segment| addr - segment.address < segment.total_size)
        };
        let spans = history.segments.iter().filter(|span| span.gone == NEVER);
        let mut ranges: Vec<_> = spans.filter_map(|span| Some((span, segment_of(span.addr)?))).collect();
        ranges.sort_unstable_by_key(|(span, _)| span.addr);
        Self { ranges }
    }

    /// The ranges that exist at the end, each with its segment.
    pub(super) fn segments(&self) -> impl Iterator<Item = (&'a SegmentSpan, &'a Segment)> {
        self.ranges.iter().copied()
    }

    /// The segment in which a block was allocated, if that segment exists at the end.
    pub(super) fn at(&self, holder: &Holder) -> Option<&'a Segment> {
        let after = self.ranges.partition_point(|(span, _)| span.addr <= holder.addr);
        let &(span, segment) = self.ranges.get(after.checked_sub(1)?)?;
        (holder.addr < span.end() && span.made <= holder.born).then_some(segment)
    }
}
