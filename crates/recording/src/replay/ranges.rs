//! Reserved address ranges: segments and the mapped parts of expandable segments, with their lifetimes.

use super::address_map::AddressMap;
use super::allocation::Instant;
use super::history::SegmentSpan;
use crate::model::Segment;

/// The ranges reserved at one instant, and the spans of released ranges.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Spans by start address: indexes into `spans`.
    live: AddressMap<u32>,
    spans: Vec<SegmentSpan>,
    given_back: u32,
}

impl Ranges {
    #[inline]
    pub fn containing(&self, addr: u64) -> Option<&SegmentSpan> {
        let (_, &index) = self.live.up_to(addr)?;
        self.spans.get(index as usize).filter(|span| addr < span.end())
    }

    /// Whether all these bytes from `addr` on are reserved.
    pub fn cover(&self, addr: u64, size: u64) -> bool {
        let (mut at, Some(end)) = (addr, addr.checked_add(size)) else { return false };
        // Mapped ranges of an expandable segment may be adjacent, and a block may span several.
        while at < end {
            let Some(range) = self.containing(at) else { return false };
            at = range.end();
        }
        true
    }

    /// Number of ranges, or parts of ranges, released so far.
    pub fn given_back(&self) -> u32 {
        self.given_back
    }

    /// Adds a range. Returns false, and changes nothing, if it is empty, overlaps an existing range, or ends beyond 2^64.
    pub fn add(&mut self, span: SegmentSpan) -> bool {
        let end = self.live.place(span.end());
        let before = self.live.before(end).and_then(|(_, &index)| self.spans.get(index as usize));
        if span.size == 0
            || span.addr.checked_add(span.size).is_none()
            || before.is_some_and(|before| before.end() > span.addr)
        {
            return false;
        }
        self.live.insert(self.live.place(span.addr), span.addr, self.spans.len() as u32);
        self.spans.push(span);
        true
    }

    /// Removes a whole segment. Returns false, and changes nothing, if there is none with this address and size.
    pub fn remove(&mut self, addr: u64, size: u64, at: Instant) -> bool {
        let Some(&index) = self.live.get(addr) else { return false };
        let span = &mut self.spans[index as usize];
        if span.size != size {
            return false;
        }
        span.gone = at;
        self.live.remove(addr);
        self.given_back = self.given_back.wrapping_add(1);
        true
    }

    /// Removes a part of the mapped ranges. Returns false, and changes nothing, if any of it is not mapped. The rest of a
    /// range becomes a separate span.
    pub fn cut(&mut self, addr: u64, size: u64, at: Instant) -> bool {
        let Some(end) = addr.checked_add(size) else { return false };
        // This detects most unmapped ranges before the mapped ones are walked.
        if size == 0 || self.containing(addr).is_none() || self.containing(end - 1).is_none() {
            return false;
        }
        let first = self.live.up_to(addr).map_or(addr, |(start, _)| start);
        let from_first = self.live.iter_from(self.live.place(first));
        let hit: Vec<u32> = from_first.take_while(|&(start, _)| start < end).map(|(_, &index)| index).collect();
        let mut covered = addr;
        for &index in &hit {
            let span = &self.spans[index as usize];
            if span.end() <= addr {
                continue;
            }
            if span.addr > covered {
                return false;
            }
            covered = span.end();
        }
        if covered < end {
            return false;
        }
        self.given_back = self.given_back.wrapping_add(1);
        for index in hit {
            let span = self.spans[index as usize];
            if span.end() <= addr {
                continue;
            }
            self.live.remove(span.addr);
            self.spans[index as usize].gone = at;
            // The rest has a later start than the range it was cut from, so that each instant has exactly one of them.
            if span.addr < addr {
                self.add(SegmentSpan { size: addr - span.addr, born: at, ..span });
            }
            if span.end() > end {
                self.add(SegmentSpan { addr: end, size: span.end() - end, born: at, ..span });
            }
        }
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = &SegmentSpan> {
        self.live.values().filter_map(|&index| self.spans.get(index as usize))
    }

    /// Every range that ever existed, in the order of creation.
    pub fn spans(&self) -> &[SegmentSpan] {
        &self.spans
    }

    /// Like [`Ranges::spans`], by value.
    pub fn into_spans(self) -> Vec<SegmentSpan> {
        self.spans
    }
}

/// Merges adjacent ranges; `ranges` must be in address order.
pub fn coalesce(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// The reserved address ranges of segments; adjacent ones are merged.
pub fn covered(segments: &[Segment]) -> Vec<(u64, u64)> {
    coalesce(segments.iter().map(|segment| (segment.address, segment.address.saturating_add(segment.total_size))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(addr: u64, size: u64) -> SegmentSpan {
        SegmentSpan { addr, size, ..SegmentSpan::default() }
    }

    fn shown(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.iter().map(|span| (span.addr, span.end())).collect()
    }

    #[test]
    fn unmapping_can_split_and_span_ranges() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(span(0, 10)));
        assert!(ranges.add(span(10, 10)));
        assert!(!ranges.add(span(19, 2)), "overlap");
        assert!(!ranges.cut(5, 20, 1), "not all mapped");
        assert!(ranges.cut(4, 10, 1));
        assert_eq!(shown(&ranges), [(0, 4), (14, 20)]);
        assert!(ranges.containing(3).is_some());
        assert!(ranges.containing(4).is_none());
        assert!(!ranges.remove(14, 10, 2), "another size");
        assert!(ranges.remove(14, 6, 2));
        assert_eq!(shown(&ranges), [(0, 4)]);
    }

    #[test]
    fn touching_ranges_merge() {
        let merged = coalesce([(0, 2), (2, 3), (5, 6)].into_iter());
        assert_eq!(merged, [(0, 3), (5, 6)]);
    }
}
