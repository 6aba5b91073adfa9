//! Memory that was allocated and reserved before the first kept entry.

use super::allocation::Allocation;
use super::counters::Counters;
use super::history::{BaselineOrigin, SegmentSpan};

/// State before the first entry.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// Active blocks, in address order.
    pub blocks: Vec<BaselineBlock>,
    /// Reserved ranges, in address order.
    pub ranges: Vec<SegmentSpan>,
    /// Whether entries or final segments contradict an entry that frees a block from before the trace.
    pub contradicted: bool,
}

/// A block from before the first entry.
#[derive(Clone, Copy, Debug)]
pub struct BaselineBlock {
    /// Address and sizes; `born` is 0, and so is `freed` if its free was already pending.
    pub allocation: Allocation,
    /// Whether its size is known. Otherwise the size is a lower bound.
    pub settled: bool,
    pub origin: BaselineOrigin,
}

impl Baseline {
    /// Whether nothing was reserved when recording started.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.ranges.is_empty()
    }

    /// The counters of the baseline. `allocations` start with its blocks, at their final sizes.
    pub fn counters(&self, allocations: &[Allocation]) -> Counters {
        let mut counters = Counters::default();
        for allocation in allocations.iter().take(self.blocks.len()) {
            counters.add_baseline(allocation);
        }
        for range in &self.ranges {
            counters.reserved = counters.reserved.wrapping_add_unsigned(range.size);
        }
        counters
    }
}
