//! What was in use and reserved before the first kept entry.

use super::allocation::Allocation;
use super::counters::Counters;
use super::history::{BaselineOrigin, SegmentSpan};

/// State before the first entry.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// Blocks in use, in address order.
    pub blocks: Vec<BaselineBlock>,
    /// Reserved ranges, in address order.
    pub ranges: Vec<SegmentSpan>,
}

/// A block from before the first entry.
#[derive(Clone, Copy, Debug)]
pub struct BaselineBlock {
    /// Address and sizes; `born` is 0, and so is `freed` when its free was already pending.
    pub allocation: Allocation,
    /// Whether its size is known. Otherwise it is at least what is given.
    pub settled: bool,
    /// Where it was made.
    pub origin: BaselineOrigin,
}

impl Baseline {
    /// Whether recording started with nothing reserved.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.ranges.is_empty()
    }

    /// The counters it adds up to. `allocations` begin with its blocks, at the sizes that they turned out to have.
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
