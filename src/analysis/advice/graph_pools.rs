//! Several CUDA graphs each have a memory pool of their own: no other graph can use memory that a graph frees during its capture.
//!
//! **Sign:** at least two private pools of captured graphs that share no handle.
//!
//! **Fix:** capture all graphs into one pool, the one with the largest shape first. A replay may then overwrite the outputs of
//! the graph that ran before.
//!
//! **Figures** are simulated with all captured blocks in the pool of the first graph.

use super::rules::Evidence;
use super::stacks::common_line;
use super::{Finding, Fix, RuleKind};
use crate::facts::grouping::private_pools::{PoolKind, PrivatePools};
use crate::model::bytes::Bytes;
use crate::model::{PoolId, StackId};
use crate::simulation::changes::Lifetimes;
use std::collections::BTreeMap;

pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if calls.private.is_empty() {
        return Vec::new();
    }
    let kinds = PrivatePools::of(device.track, device.sites());
    // Graphs that share a handle have its ID: (0, number).
    let is_own = |pool: PoolId| pool.1 == 0 && kinds.get(pool).is_some_and(|pool| pool.kind == PoolKind::CapturedGraph);
    let mut graphs: BTreeMap<PoolId, Vec<u32>> = BTreeMap::new();
    for (&block, &pool) in calls.private.iter().filter(|&(_, &pool)| is_own(pool)) {
        graphs.entry(pool).or_default().push(block);
    }
    let mut graphs: Vec<Vec<u32>> = graphs.into_values().collect();
    for blocks in &mut graphs {
        blocks.sort_unstable();
    }
    graphs.sort_unstable();
    let Some(([first, ..], others)) = graphs.split_first().map(|(first, others)| (first.as_slice(), others)) else {
        return Vec::new();
    };
    let Some(second) = others.first() else { return Vec::new() };
    let stacks: Vec<StackId> = second.iter().map(|&block| device.track.stack_of(block as usize)).collect();
    let segments = device.track.segments().iter().filter(|segment| segment.pool.is_some_and(is_own));
    let reserved = segments.fold(0u64, |sum, segment| sum.saturating_add(segment.total_size));
    vec![Finding {
        kind: RuleKind::GraphPools,
        line: common_line(device, &stacks),
        evidence: format!(
            "{} CUDA graphs reserve {} in pools of their own; no graph can use the free memory of another's pool",
            graphs.len(),
            Bytes(reserved)
        ),
        cost: Some("a replay may overwrite the outputs of the graph that ran before it".to_owned()),
        fixes: vec![Fix::new(
            "capture the CUDA graphs into one pool",
            ["with torch.cuda.graph(graph, pool=first_graph.pool()):  # the largest shape first"],
            Lifetimes {
                beside: others.iter().flatten().map(|&block| (block, *first)).collect(),
                ..Lifetimes::default()
            },
        )],
    }]
}
