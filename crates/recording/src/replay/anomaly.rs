//! Contradictions between an entry and the state that the entries before it left.

use serde::Serialize;

names! {
    /// Kinds of contradictions. A recording that PyTorch wrote from start to end has none.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AnomalyKind {
        /// An address is freed that is not allocated.
        FreeOfUnknown = "free_of_unknown",
        /// A block is freed again while its first free is pending.
        DoubleFree = "double_free",
        /// A free completes that was never requested.
        CompletedWithoutRequest = "completed_without_request",
        /// A free names another size than the allocation.
        SizeMismatch = "size_mismatch",
        /// A block is allocated where another block of its pool is.
        OverlappingAlloc = "overlapping_alloc",
        /// A block is allocated outside every known segment.
        OutsideSegment = "outside_segment",
        /// A segment is created where another one is.
        OverlappingSegment = "overlapping_segment",
        /// A segment or mapped range is released that does not exist.
        UnknownSegment = "unknown_segment",
        /// A `snapshot` entry records other active bytes than the replay computes.
        SnapshotMismatch = "snapshot_mismatch",
        /// Time runs backwards from one entry to the next.
        TimeReversed = "time_reversed",
        /// A counter falls below zero.
        NegativeTotal = "negative_total",
        /// A counter exceeds 63 bits.
        Overflow = "overflow",
        /// A block at the end of the replay differs from the final segments, or exists in only one of the two.
        EndBlockMismatch = "end_block_mismatch",
        /// The segments at the end of the replay and the final segments cover different addresses.
        EndSegmentMismatch = "end_segment_mismatch",
        /// The blocks of a final segment do not cover it exactly, or do not sum to its totals.
        SegmentTotalsMismatch = "segment_totals_mismatch",
        /// The running total of a profiler trace changes by a different amount than the event states: something was not recorded.
        TotalGap = "total_gap",
        /// The running total of a profiler trace restarts from zero.
        TotalReset = "total_reset",
    }
}

impl AnomalyKind {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 17] = [
        Self::FreeOfUnknown,
        Self::DoubleFree,
        Self::CompletedWithoutRequest,
        Self::SizeMismatch,
        Self::OverlappingAlloc,
        Self::OutsideSegment,
        Self::OverlappingSegment,
        Self::UnknownSegment,
        Self::SnapshotMismatch,
        Self::TimeReversed,
        Self::NegativeTotal,
        Self::Overflow,
        Self::EndBlockMismatch,
        Self::EndSegmentMismatch,
        Self::SegmentTotalsMismatch,
        Self::TotalGap,
        Self::TotalReset,
    ];
}

/// Counts of anomalies by kind, each with its first example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    found: Vec<Anomaly>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    pub kind: AnomalyKind,
    pub count: u64,
    /// Index of the first entry concerned, counted within the device's trace. `None` for contradictions in the final state.
    pub first_entry: Option<u32>,
    pub first_addr: u64,
}

impl Anomalies {
    /// Counts one more.
    pub fn add(&mut self, kind: AnomalyKind, entry: Option<u32>, addr: u64) {
        match self.found.iter_mut().find(|anomaly| anomaly.kind == kind) {
            Some(anomaly) => anomaly.count += 1,
            None => self.found.push(Anomaly { kind, count: 1, first_entry: entry, first_addr: addr }),
        }
    }

    /// Adds anomalies that were found elsewhere, later.
    pub fn append(&mut self, others: Self) {
        for other in others.found {
            match self.found.iter_mut().find(|anomaly| anomaly.kind == other.kind) {
                Some(anomaly) => anomaly.count += other.count,
                None => self.found.push(other),
            }
        }
    }

    /// All kinds that occurred, in the order of [`AnomalyKind::ALL`].
    pub fn kinds(&self) -> impl Iterator<Item = &Anomaly> {
        AnomalyKind::ALL.iter().filter_map(|&kind| self.found.iter().find(|anomaly| anomaly.kind == kind))
    }

    pub fn total(&self) -> u64 {
        self.found.iter().map(|anomaly| anomaly.count).sum()
    }

    pub fn forget(&mut self, kind: AnomalyKind) {
        self.found.retain(|anomaly| anomaly.kind != kind);
    }
}
