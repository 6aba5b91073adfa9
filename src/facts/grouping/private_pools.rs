//! The kinds of private pools, as far as the recording shows them.

use super::holder::Holder;
use super::pools::Pools;
use crate::facts::code::sites::Sites;
use crate::model::{Action, DEFAULT_POOL, PoolId, StackId};
use crate::replay::{Instant, Metric, Track};
use crate::sorting::SortRows;
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// A pool other than the default one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PrivatePoolFacts"))]
pub struct PrivatePool {
    pub pool_id: PoolId,
    /// Its use.
    pub kind: PoolKind,
    /// The evidence for its kind.
    pub evidence: PoolEvidence,
    /// The line of the first recorded request that it served; null if no stack shows it.
    pub first_used: Option<String>,
}

/// The kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// For the CUDA graph that created it.
    CapturedGraph,
    /// The CUDA graphs of `torch.compile(mode="reduce-overhead")`.
    CudagraphTrees,
    /// Tensors of symmetric memory.
    SymmetricMemory,
    /// `torch.cuda.MemPool`.
    MemPool,
    /// `torch.cuda.MemPool`, or graphs that share a `graph_pool_handle`: their IDs look the same.
    MemPoolOrHandle,
}

/// The evidence for the kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolEvidence {
    /// Its ID: (number, 0) for a graph with its own pool, (0, number) for pools created from Python.
    Id,
    /// A frame on the stack of a request.
    Stack,
    /// Requests on the default stream, on which no graph can be captured.
    Stream,
}

impl PoolKind {
    /// The kind in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::CapturedGraph => "CUDA graph",
            Self::CudagraphTrees => "CUDAGraph Trees",
            Self::SymmetricMemory => "symmetric memory",
            Self::MemPool => "MemPool",
            Self::MemPoolOrHandle => "MemPool or graph_pool_handle",
        }
    }

    /// The kind that a file on a stack implies.
    fn of_file(file: &str) -> Option<Self> {
        let file = file.replace('\\', "/");
        if file.ends_with("torch/_inductor/cudagraph_trees.py") {
            Some(Self::CudagraphTrees)
        } else if file.contains("torch/distributed/_symmetric_memory") {
            Some(Self::SymmetricMemory)
        } else if file.ends_with("torch/cuda/graphs.py") {
            Some(Self::CapturedGraph)
        } else {
            None
        }
    }
}

/// The private pools of a device.
#[derive(Clone, Debug, Default)]
pub struct PrivatePools(IndexMap<PoolId, PrivatePool>);

/// The evidence about a pool, before its kind is decided.
#[derive(Default)]
struct Used {
    first: Option<(Instant, StackId)>,
    stacks: HashSet<StackId>,
    on_default_stream: bool,
}

impl Used {
    fn add(&mut self, made: Instant, stack: StackId, stream: u64) {
        self.on_default_stream |= stream == 0;
        if made > 0 && self.first.is_none_or(|(first, _)| made < first) {
            self.first = Some((made, stack));
        }
        self.stacks.insert(stack);
    }
}

impl PrivatePools {
    /// Examines what every private pool served. Before PyTorch 2.15, only segments that exist at the end show their pool.
    pub fn of(track: Track<'_>, sites: &Sites<'_>) -> Self {
        let mut used: IndexMap<PoolId, Used> = IndexMap::new();
        let is_private = |pool: Option<PoolId>| pool.filter(|&pool| pool != DEFAULT_POOL);
        if track.snapshot.contexts.iter().any(|context| is_private(context.pool).is_some()) {
            for (entry, action) in (0..).zip(track.actions()) {
                let asks = matches!(action, Action::Alloc | Action::SegmentAlloc | Action::SegmentMap);
                let context = track.context(entry);
                if let Some(pool) = is_private(context.pool).filter(|_| asks) {
                    let used = used.entry(pool).or_default();
                    used.add(entry.saturating_add(1), track.stack(entry), context.stream);
                }
            }
        }
        for (span, segment) in Pools::of(track).segments() {
            if let Some(pool) = is_private(segment.pool) {
                let used = used.entry(pool).or_default();
                used.add(span.made, span.stack, segment.stream);
                used.stacks.extend(segment.blocks.iter().map(|block| block.stack));
            }
        }
        let judged = used.into_iter().map(|(id, used)| (id, judge(id, &used, sites)));
        Self(judged.collect())
    }

    /// A pool by its ID.
    pub fn get(&self, id: PoolId) -> Option<&PrivatePool> {
        self.0.get(&id)
    }

    /// Every pool, by its ID.
    pub fn all(&self) -> Vec<PrivatePool> {
        let mut pools: Vec<PrivatePool> = self.0.values().cloned().collect();
        pools.sort_rows_by_key(|pool| pool.pool_id);
        pools
    }
}

/// The blocks of private pools, by the number of their allocation. Before PyTorch 2.15, only segments that exist at the end
/// show their pool.
pub fn private_blocks(track: Track<'_>) -> HashMap<u32, PoolId> {
    let is_private = |pool: &PoolId| *pool != DEFAULT_POOL;
    let is_named = track.snapshot.contexts.iter().any(|context| context.pool.as_ref().is_some_and(is_private));
    let pools = Pools::of(track);
    if !is_named && !pools.segments().any(|(_, segment)| segment.pool.as_ref().is_some_and(is_private)) {
        return HashMap::new();
    }
    let pool = |index: u32| {
        let block = Holder::of_allocation(track, Metric::Active, index as usize)?;
        let recorded = block.entry.and_then(|entry| track.context(entry).pool);
        recorded.or_else(|| pools.at(&block)?.pool).filter(is_private)
    };
    (0u32..).zip(&track.history.allocations).filter_map(|(index, _)| Some((index, pool(index)?))).collect()
}

fn judge(id: PoolId, used: &Used, sites: &Sites<'_>) -> PrivatePool {
    let snapshot = sites.snapshot();
    let of_stack = |&stack: &StackId| {
        let mut frames = snapshot.stacks.frame_ids(stack).iter().filter_map(|&frame| snapshot.stacks.frame(frame));
        frames.find_map(|frame| PoolKind::of_file(snapshot.strings.get(frame.filename)))
    };
    // CUDA graph trees also capture graphs, and are more specific.
    let kinds: Vec<PoolKind> = used.stacks.iter().filter_map(of_stack).collect();
    let told = [PoolKind::CudagraphTrees, PoolKind::SymmetricMemory, PoolKind::CapturedGraph];
    let (kind, evidence) = match told.into_iter().find(|kind| kinds.contains(kind)) {
        Some(kind) => (kind, PoolEvidence::Stack),
        None if id.1 == 0 => (PoolKind::CapturedGraph, PoolEvidence::Id),
        None if used.on_default_stream => (PoolKind::MemPool, PoolEvidence::Stream),
        None => (PoolKind::MemPoolOrHandle, PoolEvidence::Id),
    };
    let first = used.first.map(|(_, stack)| stack).filter(|&stack| stack != StackId::EMPTY);
    PrivatePool { pool_id: id, kind, evidence, first_used: first.map(|stack| sites.site(stack)) }
}
