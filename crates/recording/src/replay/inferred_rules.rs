//! Rules that a file does not state.
//!
//! Where the final segments or the entries contradict a replay under the recorded settings, other known rules are tried: those
//! of another device, settings that changed while recording, pools that do not split segments, and frees of which only the
//! request was recorded. A rule is taken only if it is the only one that leaves no contradiction.

use super::history::History;
use super::simulation::Simulation;
use super::{Baseline, discovery, finish, run};
use crate::allocator::SizeRules;
use crate::model::trace_entry::ContextId;
use crate::model::{Action, Block, BlockState, DEFAULT_POOL, DeviceTrace, PoolId, Segment, Snapshot};
use foldhash::fast::RandomState;
use std::collections::HashSet;

/// A rule that explains a recording whose settings do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InferredRule {
    /// Each request gets 32 bytes before it is rounded, as torch-npu's allocator does on Ascend NPUs.
    Ascend,
    /// `expandable_segments` was changed while recording: blocks are split as the latest segment suggests.
    ExpandableChanged,
    /// `MemPool(no_split=True)`: each request of these private pools gets a whole segment.
    WholeSegments,
    /// Recorded without `free_completed` (`skip_actions`): a free completes when it is requested.
    NoFreeCompleted,
}

/// How a simulation departs from the recorded settings.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    pub rule: Option<InferredRule>,
    /// Whether the kind of the latest segment decides how blocks are split.
    pub splits_like_latest_segment: bool,
    /// Whether each free completes when it is requested.
    pub frees_complete_at_once: bool,
    /// By context: whether its pool gives whole segments. Empty if no pool does.
    whole_segments: Vec<bool>,
}

impl Variant {
    /// Whether a request in this context gets a whole segment.
    #[inline]
    pub fn gives_whole_segments(&self, context: ContextId) -> bool {
        !self.whole_segments.is_empty() && self.whole_segments.get(context.index()).copied().unwrap_or(false)
    }
}

/// The history under the only known rule that leaves no contradiction; `None` if there is none, or several.
pub(super) fn explain(snapshot: &Snapshot, trace: &DeviceTrace, rules: &SizeRules) -> Option<History> {
    let segments = snapshot.segments_of(trace.device);
    let actions = snapshot.entries.actions().get(trace.rows.clone()).unwrap_or_default();
    let has = |action: Action| actions.contains(&action);
    let variant = |rule| Variant { rule: Some(rule), ..Variant::default() };
    let mut tried: Vec<(SizeRules, Variant)> = Vec::new();
    if segments.iter().flat_map(|segment| &segment.blocks).any(|block| is_padded(block, rules)) {
        tried.push((rules.clone().on_ascend(), variant(InferredRule::Ascend)));
    }
    if has(Action::SegmentMap) && has(Action::SegmentAlloc) {
        let changed = Variant { splits_like_latest_segment: true, ..variant(InferredRule::ExpandableChanged) };
        tried.push((rules.clone().with_expandable(false), changed));
    }
    let pools = whole_pools(segments, rules);
    if !pools.is_empty() {
        let is_whole = |pool: Option<PoolId>| pool.is_some_and(|pool| pools.contains(&pool));
        let whole_segments = snapshot.contexts.iter().map(|context| is_whole(context.pool)).collect();
        tried.push((rules.clone(), Variant { whole_segments, ..variant(InferredRule::WholeSegments) }));
    }
    if has(Action::FreeRequested) && !has(Action::FreeCompleted) {
        let at_once = Variant { frees_complete_at_once: true, ..variant(InferredRule::NoFreeCompleted) };
        tried.push((rules.clone(), at_once));
    }
    let replayed = tried.into_iter().map(|(rules, variant)| replay_with(snapshot, trace, rules, variant));
    let mut all = replayed.filter(|history| history.anomalies.total() == 0);
    all.next().filter(|_| all.next().is_none())
}

fn replay_with(snapshot: &Snapshot, trace: &DeviceTrace, rules: SizeRules, variant: Variant) -> History {
    let mut first = Simulation::discovering(rules.clone());
    first.variant = variant;
    let first = run(first, snapshot, trace);
    let baseline: Baseline = discovery::baseline(snapshot, trace, &first, &rules);
    let simulation = run(Simulation::from_baseline(rules, &baseline, first), snapshot, trace);
    finish(snapshot, trace, simulation, &baseline)
}

/// Whether only the rounding of an Ascend NPU gives a block this size.
fn is_padded(block: &Block, rules: &SizeRules) -> bool {
    block.state != BlockState::Inactive
        && block.size != rules.round(block.requested_size)
        && block.size == rules.clone().on_ascend().round(block.requested_size)
}

/// The private pools whose segments each are one block, of which some are larger than a split would leave them.
fn whole_pools(segments: &[Segment], rules: &SizeRules) -> HashSet<PoolId, RandomState> {
    let private =
        || segments.iter().filter_map(|segment| Some((segment.pool.filter(|pool| *pool != DEFAULT_POOL)?, segment)));
    let is_unsplit = |segment: &Segment| {
        segment.blocks.first().is_some_and(|block| {
            let needed = rules.round(block.requested_size);
            let would_split =
                needed < block.size && (!rules.is_large(needed) || rules.large_block(needed, block.size) == needed);
            block.state != BlockState::Inactive && block.size == segment.total_size && would_split
        })
    };
    let mut pools: HashSet<PoolId, RandomState> =
        private().filter(|(_, segment)| is_unsplit(segment)).map(|(pool, _)| pool).collect();
    for (pool, _) in private().filter(|(_, segment)| segment.blocks.len() > 1) {
        pools.remove(&pool);
    }
    pools
}
