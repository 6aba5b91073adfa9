//! What prevents a lower peak.

use crate::facts::device::Device;
use crate::facts::grouping::attribution::{Attribution, Row};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference};
use crate::facts::time::moment::Moment;
use crate::facts::training::Phase;
use crate::replay::{Instant, Metric};
use crate::simulation::changes::{Chosen, Edited};
use crate::simulation::{Highest, StepKind};
use serde::Serialize;
use std::collections::HashSet;

const ROWS: usize = 5;

/// The new peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "CheckpointLimit"))]
pub struct RemainingPeak {
    /// Where it is in the kept history.
    #[serde(flatten)]
    pub moment: Moment,
    /// The phase.
    pub phase: Phase,
    /// Whether its training step is incomplete in the recording, so that what checkpointing frees in it is unknown.
    #[serde(rename = "unfinished")]
    pub is_unfinished: bool,
    /// Whether a call is recomputed there.
    pub rerun: bool,
    /// Bytes that the recomputed call has allocated by then.
    pub rerun_bytes: u64,
    /// Workspaces of the autograd engine's thread, which it needs to recompute calls.
    pub workspace_bytes: u64,
    /// Other memory at the peak, by site, the largest first and the rest as `(other)`.
    pub rows: Vec<Row>,
}

impl RemainingPeak {
    pub(super) fn of_simulation(device: &Device<'_>, changed: &Edited, chosen: &Chosen, highest: &Highest) -> Self {
        let (history, steps) = (device.history(), &changed.program.steps);
        let peak = highest.step.and_then(|step| steps.get(step));
        // The allocations of a recomputed call are at the entry before which it runs.
        let recorded = peak.map(|step| changed.recorded_instant(step, history));
        let rerun = recorded == Some(None);
        let instant = recorded.flatten().or(peak.map(|step| step.entry)).unwrap_or(0);
        let is_workspace = |origin: u32| chosen.workspaces.iter().any(|workspace| workspace.like == origin);
        let (mut again, mut workspaces): (HashSet<u32>, HashSet<u32>) = Default::default();
        let made = steps[..highest.step.map_or(0, |step| step + 1)].iter().filter(|step| step.kind == StepKind::Alloc);
        for step in made.filter(|step| changed.recorded_instant(step, history).is_none()) {
            match changed.origin(step.allocation) {
                Some(origin) if is_workspace(origin) => workspaces.insert(step.allocation),
                _ if rerun && step.entry == instant => again.insert(step.allocation),
                _ => false,
            };
        }
        let sum = |wanted: &HashSet<u32>| {
            let blocks = highest.blocks.iter().filter(|(index, _)| wanted.contains(&(*index as u32)));
            blocks.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
        };
        let (rerun_bytes, workspace_bytes) = (sum(&again), sum(&workspaces));
        let others = highest.blocks.iter().filter(|(index, _)| {
            let index = *index as u32;
            !again.contains(&index) && !workspaces.contains(&index)
        });
        let others = others.filter_map(|&(index, bytes)| Some((changed.origin(index as u32)? as usize, bytes)));
        let rows = rows(device, others);
        Self { rerun, rerun_bytes, workspace_bytes, rows, ..Self::at(device, instant) }
    }

    /// An instant of the recording, without the memory that checkpointed calls would not hold there.
    pub(super) fn of_recording(device: &Device<'_>, chosen: &Chosen, instant: Instant) -> Self {
        let gaps = chosen.calls.iter().flat_map(|call| &call.gaps);
        let gone: HashSet<u32> =
            gaps.filter(|gap| gap.from < instant && instant < gap.to).map(|gap| gap.allocation).collect();
        let inputs = chosen.calls.iter().flat_map(|call| &call.inputs);
        let waiting = inputs.filter(|input| input.from <= instant && instant < input.to);
        let waiting = waiting.map(|input| (input.allocation as usize, input.bytes));
        let there = device.history().allocations.iter().enumerate();
        let there = there.filter(|(_, allocation)| allocation.allocated_at(instant));
        let left = there.filter(|(index, _)| !gone.contains(&(*index as u32)));
        let left = left.map(|(index, allocation)| (index, allocation.size)).chain(waiting);
        Self { rows: rows(device, left), ..Self::at(device, instant) }
    }

    fn at(device: &Device<'_>, instant: Instant) -> Self {
        let moment = Moment::of(device.track, device.annotations(), instant);
        Self { moment, phase: device.phases().at(instant), ..Self::default() }
    }
}

/// Blocks by site, the largest first.
fn rows(device: &Device<'_>, blocks: impl Iterator<Item = (usize, u64)>) -> Vec<Row> {
    let filter = Filter::default();
    let grouper = Grouper::new(device, device.deep_sites(), &filter, GroupBy::Site).inferring(
        device,
        Inference::On,
        Metric::Allocated,
    );
    let mut attribution = Attribution::of_blocks(&grouper, Metric::Allocated, blocks);
    attribution.keep_top(ROWS);
    attribution.rows
}
