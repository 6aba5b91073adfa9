//! Blocks that live shorter, are smaller or are not there at all: what a cure does to a program that has no flag of its own.

use super::rewrite::{Patch, Rewrite};
use crate::facts::device::Device;
use crate::replay::Instant;

/// Changes of single allocations. Numbers are those of [`crate::replay::History::allocations`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lives {
    /// Allocations, each with the instant right behind which it is freed instead of where it was.
    pub freed: Vec<(u32, Instant)>,
    /// Allocations that are not made.
    pub removed: Vec<u32>,
    /// Allocations with the bytes that they ask for instead.
    pub resized: Vec<(u32, u64)>,
    /// Why figures may be far off, where they may.
    pub doubt: Option<&'static str>,
}

impl Lives {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.freed.is_empty() && self.removed.is_empty() && self.resized.is_empty()
    }
}

/// Makes the changes. Blocks from before the recording stay where they are unless one of them is removed or resized: then all of
/// them are requested anew.
pub(super) fn apply(rewrite: &mut Rewrite, device: &Device<'_>, lives: &Lives) {
    let resized = lives.resized.iter().map(|&(allocation, _)| allocation);
    let remade: std::collections::HashSet<u32> = lives.removed.iter().copied().chain(resized).collect();
    if rewrite.starts_with(|allocation| remade.contains(&allocation)) {
        rewrite.request_start();
    }
    let places = rewrite.places(device.history().entries());
    let end = rewrite.program.steps.len();
    let mut patch = Patch::default();
    for &(allocation, instant) in &lives.freed {
        patch.free_at(places.get(instant as usize).copied().unwrap_or(end), allocation, instant);
    }
    for &allocation in &lives.removed {
        patch.remove(allocation);
    }
    for &(allocation, bytes) in &lives.resized {
        patch.resize(allocation, bytes);
    }
    rewrite.apply(patch);
}
