//! Free memory that only one stream, or one pool, can use.
//!
//! The allocator keeps free blocks by stream and by pool. Unused memory that a side stream or a `MemPool` has reserved is
//! idle while others request more from the driver, so reserved memory grows although allocated memory does not.

use super::PoolFragmentation;
use crate::facts::device::Device;
use crate::facts::grouping::private_pools::PoolKind;
use crate::facts::segments::figures::NOTABLE;
use crate::model::{Action, DEFAULT_POOL, PoolId};
use indexmap::IndexMap;
use serde::Serialize;
use std::cmp::Reverse;

/// Less than 1/N of reserved memory is not worth reporting.
const LEAST_PART: u64 = 8;

/// The free memory of a stream or pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "StrandedMemory"))]
pub struct Stranded {
    pub stream: u64,
    /// Its pool, (0, 0) for the default one.
    pub pool_id: PoolId,
    pub free_bytes: u64,
    /// The reserved bytes of all streams and pools.
    #[serde(skip)]
    pub reserved: u64,
    /// The line of its first recorded request; null if no stack shows it.
    pub first_used: Option<String>,
}

impl Stranded {
    /// The stream or pool with the most free memory, other than the main one. Pools of captured graphs are left out: a graph
    /// uses its free blocks whenever it is replayed.
    pub(super) fn of(device: &Device<'_>, pools: &[PoolFragmentation]) -> Option<Self> {
        let mut all: IndexMap<(u64, PoolId), (u64, u64)> = IndexMap::new();
        let mut reserved = 0u64;
        for apart in pools {
            reserved = reserved.saturating_add(apart.figures.reserved);
            let is_graph = apart.private.as_ref().is_some_and(|pool| pool.kind != PoolKind::MemPool);
            if let (Some(stream), false) = (apart.stream, is_graph) {
                let sums = all.entry((stream, apart.pool.unwrap_or(DEFAULT_POOL))).or_default();
                sums.0 = sums.0.saturating_add(apart.figures.reserved);
                sums.1 = sums.1.saturating_add(apart.figures.inactive);
            }
        }
        let shared = all.iter().filter(|((_, pool), _)| *pool == DEFAULT_POOL);
        let &main = shared.max_by_key(|&(&(stream, _), &(reserved, _))| (reserved, Reverse(stream)))?.0;
        let sides = all.into_iter().filter(|&(key, _)| key != main);
        let ((stream, pool_id), (_, free_bytes)) = sides.max_by_key(|&(key, (_, free))| (free, Reverse(key)))?;
        let is_notable = free_bytes >= NOTABLE && free_bytes >= reserved / LEAST_PART;
        is_notable.then(|| Self {
            stream,
            pool_id,
            free_bytes,
            reserved,
            first_used: first_used(device, stream, pool_id),
        })
    }
}

fn first_used(device: &Device<'_>, stream: u64, pool: PoolId) -> Option<String> {
    let track = device.track;
    let is_there = |entry: u32| {
        let context = track.context(entry);
        context.stream == stream && context.pool.is_none_or(|known| known == pool)
    };
    let mut asks = (0..).zip(track.actions()).filter(|(_, action)| **action == Action::Alloc).map(|(entry, _)| entry);
    let stack = asks.find(|&entry| is_there(entry)).map(|entry| track.stack(entry))?;
    device.deep_sites().site_frame(stack).map(|_| device.deep_sites().site(stack))
}
