//! Rules that a file does not state.
//!
//! Where the final segments or the entries contradict a replay under the recorded settings, other known rules are tried: those
//! of another device, settings that changed while recording, and frees of which only the request was recorded. A rule is taken only if it is the only one that leaves no contradiction.

use super::history::History;
use super::simulation::Simulation;
use super::split_timeline::{SplitTimeline, as_segments_change};
use super::{Baseline, discovery, finish, run};
use crate::allocator::SizeRules;
use crate::model::trace_entry::ContextId;
use crate::model::{Action, Block, BlockState, DeviceTrace, Snapshot};

/// A rule that explains a recording whose settings do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InferredRule {
    /// Each request gets 32 bytes before it is rounded, as torch-npu's allocator does on Ascend NPUs.
    Ascend,
    /// `expandable_segments` was changed while recording: blocks are split as the latest segment suggests.
    ExpandableChanged,
    /// Recorded without `free_completed` (`skip_actions`): a free completes when it is requested.
    NoFreeCompleted,
}

/// How a simulation departs from the recorded settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    pub rule: Option<InferredRule>,
    /// How requests split blocks, if that changes. Empty if the settings say it.
    pub splits: SplitTimeline,
    /// Whether blocks keep their rests where that is unknown.
    pub keeps_rests: bool,
    /// Whether each free completes when it is requested.
    pub frees_complete_at_once: bool,
    /// By context: whether its pool gives whole segments. Empty if no pool does.
    pub whole_segments: Vec<bool>,
}

impl Variant {
    /// Whether it departs from the settings.
    pub fn departs(&self) -> bool {
        *self != Self::default()
    }

    /// Whether a request in this context gets a whole segment.
    #[inline]
    pub fn gives_whole_segments(&self, context: ContextId) -> bool {
        !self.whole_segments.is_empty() && self.whole_segments.get(context.index()).copied().unwrap_or(false)
    }
}

/// The history under the only known rule that leaves no contradiction; `None` if there is none, or several.
/// All of them apply beside `base`, which the recording shows.
pub(super) fn explain(snapshot: &Snapshot, trace: &DeviceTrace, rules: &SizeRules, base: &Variant) -> Option<History> {
    let segments = snapshot.segments_of(trace.device);
    let actions = snapshot.entries.actions().get(trace.rows.clone()).unwrap_or_default();
    let has = |action: Action| actions.contains(&action);
    let variant = |rule| Variant { rule: Some(rule), ..base.clone() };
    let mut tried: Vec<(SizeRules, Variant)> = Vec::new();
    if segments.iter().flat_map(|segment| &segment.blocks).any(|block| is_padded(block, rules)) {
        tried.push((rules.clone().on_ascend(), variant(InferredRule::Ascend)));
    }
    if base.splits.is_empty() && has(Action::SegmentMap) && has(Action::SegmentAlloc) {
        let changed =
            Variant { splits: as_segments_change(snapshot, trace), ..variant(InferredRule::ExpandableChanged) };
        tried.push((rules.clone().with_expandable(false), changed));
    }
    if has(Action::FreeRequested) && !has(Action::FreeCompleted) {
        let at_once = Variant { frees_complete_at_once: true, ..variant(InferredRule::NoFreeCompleted) };
        tried.push((rules.clone(), at_once));
    }
    let replayed = tried.into_iter().map(|(rules, variant)| replay_with(snapshot, trace, rules, variant));
    let mut all = replayed.filter(|history| history.anomalies.total() == 0);
    all.next().filter(|_| all.next().is_none())
}

/// The history under rules and a variant of them.
pub(super) fn replay_with(snapshot: &Snapshot, trace: &DeviceTrace, rules: SizeRules, variant: Variant) -> History {
    let mut first = Simulation::discovering(rules.clone());
    first.variant = variant;
    let first = run(first, snapshot, trace);
    let baseline: Baseline = discovery::baseline(snapshot, trace, &first, &rules);
    let mut simulation = run(Simulation::from_baseline(rules, &baseline, first), snapshot, trace);
    simulation.decide(snapshot.segments_of(trace.device));
    finish(snapshot, trace, simulation, &baseline)
}

/// Whether only the rounding of an Ascend NPU gives a block this size.
fn is_padded(block: &Block, rules: &SizeRules) -> bool {
    block.state != BlockState::Inactive
        && block.size != rules.round(block.requested_size)
        && block.size == rules.clone().on_ascend().round(block.requested_size)
}
