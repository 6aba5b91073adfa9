//! What holds the blocks of a leak, in recordings with holders.

use crate::facts::device::Device;
use crate::facts::held::group;
use indexmap::IndexMap;
use std::cmp::Reverse;

/// The path that holds most of these blocks, without the places in lists: `train.history[*]`.
pub(super) fn of(device: &Device<'_>, blocks: &[usize]) -> Option<String> {
    let held = device.held()?;
    let mut paths: IndexMap<String, u64> = IndexMap::new();
    for &block in blocks {
        let Some(first) = held.first(block) else { continue };
        *paths.entry(group(&first.path)).or_default() += device.history().allocations[block].size;
    }
    paths.into_iter().enumerate().max_by_key(|&(place, (_, bytes))| (bytes, Reverse(place))).map(|(_, (path, _))| path)
}
