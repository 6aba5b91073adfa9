//! The finished history of one device: immutable, and the only input of analyses.

use super::allocation::{Allocation, Instant};
use super::anomaly::Anomalies;
use super::counted::ComparedCounter;
use super::counters::{Counters, Maximum, Metric};
use super::operator_usage::OperatorUsage;
use crate::model::{DeviceId, PoolId, StackId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Entries after an instant among which the next allocation mostly is.
const NEAR: usize = 16;

/// A reserved range and its lifetime: a segment, or a mapped part of an expandable one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSpan {
    pub addr: u64,
    pub size: u64,
    /// First instant at which it exists: 0 for ranges from before the trace.
    pub born: Instant,
    /// First instant at which it no longer exists.
    pub gone: Instant,
    pub expandable: bool,
    /// The instant right after the entry that created it, or created the range that it was cut from: 0 for ranges from before
    /// the trace.
    pub made: Instant,
    pub stack: StackId,
}

impl SegmentSpan {
    /// The first address after it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size)
    }

    #[inline]
    pub fn reserved_at(&self, instant: Instant) -> bool {
        self.born <= instant && instant < self.gone
    }
}

/// Where a baseline allocation was made, as far as the final segments show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaselineOrigin {
    /// Stack of the allocation; empty if the file does not have it.
    pub stack: StackId,
    /// Where forward created the autograd node of the allocation, if that is recorded: see
    /// [`crate::model::EntryContext::forward`].
    pub forward: StackId,
    pub stream: u64,
    /// Memory pool; `None` when unknown.
    pub pool: Option<PoolId>,
}

/// How much of a device's past the recording contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each shown on its own")]
pub struct Completeness {
    /// The recording has no entries for this device: only the final state is known.
    pub no_entries: bool,
    /// Something was reserved or allocated before the first kept entry.
    pub has_baseline: bool,
    /// The file was cut off inside this device's trace: the final state belongs to a later time.
    pub truncated: bool,
    /// Frees were recorded without `free_requested` (`skip_actions`): `allocated` is an upper bound, equal to
    /// `active`.
    pub no_free_requested: bool,
    /// The file says that the ring buffer dropped entries (`trace_alloc_overflowed`).
    pub overflowed: bool,
    /// The device has as many entries as its ring buffer can contain (`trace_alloc_max_entries`), and the file does not say
    /// whether it dropped any.
    pub ring_full: bool,
    /// PyTorch 2.0 does not record frees of blocks from before the recording: the baseline is a lower bound.
    pub unrecorded_frees: bool,
    /// The recording has neither requested sizes nor pending frees, like profiler traces and memory timelines: requested and
    /// active are assumed to equal allocated.
    pub blocks_only: bool,
    /// Memory is known only as sums at some times, so peaks between them are missing.
    pub sampled: bool,
    /// The recording has no running totals, like profiler traces before PyTorch 1.11: counters are sums of what it shows,
    /// without memory from before the trace that was not freed in it.
    pub no_totals: bool,
    /// CPU memory of a profiler trace, which PyTorch counts only while a profiler is on: counters are sums of what the trace
    /// shows, without other memory.
    pub while_profiling: bool,
    /// The recording shows no reserved memory, like memory timelines, profiler traces before PyTorch 1.11, and CPU memory.
    pub no_reserved: bool,
    /// Frees were recorded without `free_completed` (`skip_actions`): `active` and `requested` are lower bounds, as if each
    /// free had completed at once.
    pub no_free_completed: bool,
    /// A rule that the file does not state, and that alone explains every entry and the final state.
    pub inferred_rule: Option<super::InferredRule>,
    /// A private pool gives each request a whole segment (`MemPool(no_split=True)`), as its entries or segments show.
    pub whole_segments: bool,
    /// Bytes by which the peaks of allocated and active may exceed their maxima because the recording does not show which rule applied:
    /// whether a private pool gives whole segments, or when `expandable_segments` was changed.
    pub other_rules_bytes: u64,
    /// The page of PyTorch that contains the recording may leave out what was freed, and shows no freed block.
    pub freed_left_out: bool,
    /// Entries have rounded sizes, as those of pinned host memory: `requested` is an upper bound, equal to `active`.
    pub rounded_requests: bool,
    /// Bytes by which the baseline may exceed the counted value: the size of some blocks freed in the trace has no upper
    /// bound in the recording.
    pub baseline_uncertain_bytes: u64,
    /// Bytes by which the peaks of allocated and active may exceed their maxima for that reason; 0 if those blocks are freed
    /// before memory comes near the peak.
    pub peak_uncertain_bytes: u64,
    /// PyTorch's own counters, which the file contains, differ from the replayed ones: entries are missing or wrong.
    pub counters_differ: bool,
}

names! {
    /// The direction in which the true value of an inexact number lies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Bound {
        /// The true value is this or higher.
        Lower = "lower",
        /// The true value is this or lower.
        Upper = "upper",
        /// The direction is unknown.
        Unknown = "unknown",
    }
}

impl Completeness {
    /// Whether recording started with an empty allocator and is complete since.
    pub fn is_complete(&self) -> bool {
        !self.no_entries
            && !self.has_baseline
            && !self.truncated
            && !self.no_free_requested
            && !self.overflowed
            && !self.ring_full
            && !self.no_totals
            && !self.while_profiling
            && !self.freed_left_out
            && !self.counters_differ
    }

    /// Which bound the values of a metric are, if they are not exact.
    pub fn bound(&self, metric: Metric) -> Option<Bound> {
        match metric {
            Metric::Reserved if self.no_reserved => Some(Bound::Unknown),
            _ if self.no_entries || self.overflowed || self.ring_full => Some(Bound::Lower),
            _ if self.counters_differ => Some(Bound::Unknown),
            _ if self.truncated && (self.has_baseline || self.blocks_only) => Some(Bound::Lower),
            Metric::Reserved => None,
            Metric::Requested if self.blocks_only => Some(Bound::Unknown),
            Metric::Requested if self.rounded_requests => Some(Bound::Upper),
            _ if self.sampled || self.no_totals || self.while_profiling => Some(Bound::Lower),
            Metric::Active if self.blocks_only => Some(Bound::Lower),
            _ if self.unrecorded_frees || self.freed_left_out => Some(Bound::Lower),
            Metric::Active | Metric::Requested if self.no_free_completed => Some(Bound::Lower),
            Metric::Allocated if self.no_free_requested => Some(Bound::Upper),
            Metric::Allocated | Metric::Active if self.peak_uncertain_bytes > 0 || self.other_rules_bytes > 0 => {
                Some(Bound::Lower)
            }
            _ => None,
        }
    }

    /// Which bound the counters before the first kept entry are, if they are not exact.
    pub fn baseline_bound(&self) -> Option<Bound> {
        let uncertain = self.baseline_uncertain_bytes > 0
            || self.unrecorded_frees
            || self.overflowed
            || self.ring_full
            || self.no_totals
            || self.while_profiling
            || self.counters_differ
            || (self.truncated && self.has_baseline);
        uncertain.then_some(Bound::Lower)
    }
}

/// One device's allocator from the first kept entry to the last.
#[derive(Clone, Debug)]
pub struct History {
    /// Device: -1 for pinned host memory, -2 for CPU memory.
    pub device: DeviceId,
    /// Rows of [`crate::model::Snapshot::entries`]; instant `i + 1` follows row `rows.start + i`.
    pub rows: Range<usize>,
    /// Every allocation: baseline allocations first, then in the order of the trace.
    pub allocations: Vec<Allocation>,
    /// Origins of the leading baseline allocations.
    pub baseline: Vec<BaselineOrigin>,
    /// Every reserved range that ever existed.
    pub segments: Vec<SegmentSpan>,
    pub start: Counters,
    pub end: Counters,
    /// Each counter's maximum and the first instant that reaches it, in the order of [`super::Metric::ALL`].
    pub maxima: [Maximum; 4],
    /// All counters at the instant of each maximum, if the replay stored them.
    #[doc(hidden)]
    pub at_maxima: Option<[Counters; 4]>,
    pub anomalies: Anomalies,
    pub completeness: Completeness,
    /// PyTorch's own counters, if the file contains them, beside the replayed ones.
    pub counted: Vec<ComparedCounter>,
    /// Memory by operator, if the recording shows it; profiler traces do.
    pub operators: Vec<OperatorUsage>,
    /// The allocation of each entry.
    #[doc(hidden)]
    pub links: Vec<u32>,
    /// From each of these instants on, counters differ by this many bytes from the sum of the entries. In order.
    #[doc(hidden)]
    pub corrections: Vec<(Instant, i64)>,
}

impl History {
    pub fn entries(&self) -> u32 {
        self.links.len() as u32
    }

    /// The allocation that entry `entry` (counted within the trace) allocates, frees or annotates.
    pub fn allocation_of(&self, entry: u32) -> Option<&Allocation> {
        let link = *self.links.get(entry as usize)?;
        self.allocations.get(link as usize)
    }

    /// Row of the alloc entry of the allocation with this index; `None` for baseline allocations.
    pub fn born_row(&self, index: usize) -> Option<usize> {
        let born = self.allocations.get(index)?.born;
        (born > 0).then(|| self.rows.start + born as usize - 1)
    }

    /// Index of the first allocation that is born after an instant; their number if there is none.
    #[doc(hidden)]
    pub fn born_after(&self, instant: Instant) -> usize {
        // An allocation is mostly a few entries ahead. Looking there misses the cache less often than bisecting.
        let near = self.links.get(instant as usize..).unwrap_or_default().iter().take(NEAR);
        let born = |(&link, born): (&u32, Instant)| {
            let made = self.allocations.get(link as usize)?;
            (made.born == born).then_some(link as usize)
        };
        let found = near.zip(instant.saturating_add(1)..).find_map(born);
        found.unwrap_or_else(|| self.allocations.partition_point(|made| made.born <= instant))
    }

    /// The entry that leads to an instant, counted within the trace; `None` for instant 0.
    pub fn entry_before(instant: Instant) -> Option<u32> {
        instant.checked_sub(1)
    }
}
