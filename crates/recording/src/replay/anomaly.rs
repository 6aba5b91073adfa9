//! Contradictions between an entry and the state that the entries before it left.

use serde::Serialize;

/// Kinds of contradictions. A recording that PyTorch wrote from start to end has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// An address is freed that is not allocated.
    FreeOfUnknown,
    /// A block is freed again while its first free is pending.
    DoubleFree,
    /// A free completes that was never requested.
    CompletedWithoutRequest,
    /// A free names another size than the allocation.
    SizeMismatch,
    /// A block is allocated where another block of its pool is.
    OverlappingAlloc,
    /// A block is allocated outside every known segment.
    OutsideSegment,
    /// A segment is created where another one is.
    OverlappingSegment,
    /// A segment or mapped range is released that does not exist.
    UnknownSegment,
    /// A `snapshot` entry records other active bytes than the replay computes.
    SnapshotMismatch,
    /// Time runs backwards from one entry to the next.
    TimeReversed,
    /// A counter falls below zero.
    NegativeTotal,
    /// A counter exceeds 63 bits.
    Overflow,
    /// A block at the end of the replay differs from the final segments, or exists in only one of the two.
    EndBlockMismatch,
    /// The segments at the end of the replay and the final segments cover different addresses.
    EndSegmentMismatch,
    /// The blocks of a final segment do not cover it exactly, or do not sum to its totals.
    SegmentTotalsMismatch,
    /// The running total of a profiler trace changes by a different amount than the event states: something was not recorded.
    TotalGap,
    /// The running total of a profiler trace restarts from zero.
    TotalReset,
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

    /// The kind's key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::FreeOfUnknown => "free_of_unknown",
            Self::DoubleFree => "double_free",
            Self::CompletedWithoutRequest => "completed_without_request",
            Self::SizeMismatch => "size_mismatch",
            Self::OverlappingAlloc => "overlapping_alloc",
            Self::OutsideSegment => "outside_segment",
            Self::OverlappingSegment => "overlapping_segment",
            Self::UnknownSegment => "unknown_segment",
            Self::SnapshotMismatch => "snapshot_mismatch",
            Self::TimeReversed => "time_reversed",
            Self::NegativeTotal => "negative_total",
            Self::Overflow => "overflow",
            Self::EndBlockMismatch => "end_block_mismatch",
            Self::EndSegmentMismatch => "end_segment_mismatch",
            Self::SegmentTotalsMismatch => "segment_totals_mismatch",
            Self::TotalGap => "total_gap",
            Self::TotalReset => "total_reset",
        }
    }
}

/// Counts of anomalies by kind, each with its first example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    found: Vec<Anomaly>,
}

/// One kind of anomaly in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind of contradiction.
    pub kind: AnomalyKind,
    /// How many times.
    pub count: u64,
    /// Index of the first entry concerned, counted within the device's trace. `None` for contradictions in the final state.
    pub first_entry: Option<u32>,
    /// Address in the first case.
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

    /// Number of anomalies of all kinds.
    pub fn total(&self) -> u64 {
        self.found.iter().map(|anomaly| anomaly.count).sum()
    }

    /// Removes a kind.
    pub fn forget(&mut self, kind: AnomalyKind) {
        self.found.retain(|anomaly| anomaly.kind != kind);
    }
}
