//! A part of a model may do the same in training: the line that calls it detaches the result, so its graph is freed there, before
//! any backward pass. Then only this part belongs under `torch.no_grad()`.

use super::kept_over_steps::is_freed_by_backward;
use super::model_calls::{ModelCall, born_in};
use super::rules::Evidence;
use super::{Finding, Fix, Rewrite, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, History, Instant, NEVER};
use crate::simulation::changes::{Editor, Lifetimes};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// Least number of calls of a part, and of blocks and stacks in the graph of each. Results that a line joins are fewer.
const LEAST_CALLS: usize = 2;
const LEAST_BLOCKS: usize = 8;
const LEAST_STACKS: usize = 4;
/// The graph has at least this share of the early blocks of a call, in percent.
const LEAST_SHARE: usize = 50;
/// Blocks smaller than 1/N of the largest one do not count.
const PART_OF_LARGEST: u64 = 1000;
/// How many blocks of a call may outlive the line: its results.
const MOST_RESULTS: usize = 2;
/// Calls from each place that are searched first; all calls are if one of these calls such a part.
const LOOKED_AT: usize = 8;
/// Lines of a call that are examined: those that free the most blocks. Each takes time that is linear in the call.
const MOST_LINES: usize = 4;

struct Part {
    /// The instant before its first allocation, and that of its last.
    start: Instant,
    end: Instant,
    /// What the line frees when the part has returned.
    graph: Vec<(u32, Allocation)>,
}

/// One finding for each line in a model that calls such a part.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    if !device.phases().frees_tell {
        return Vec::new();
    }
    let innermost = |stack: u32| {
        let mut frames = device.snapshot().stacks.frame_ids(StackId(stack)).iter().copied();
        frames.find(|&frame| device.sites().kind(frame).is_python())
    };
    let code = Code { device, innermost: (0..device.snapshot().stacks.len() as u32).map(innermost).collect() };
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    // Lines that free something else in another call.
    let mut others: HashSet<u32> = HashSet::new();
    // A line that calls such a part does so in each call from its place, so most recordings are done after a few calls.
    let has_part = |call: &&ModelCall| {
        let mut freed = code.freed_by_line(call).into_iter();
        freed.any(|(line, freed)| code.part(call, line, freed).is_some())
    };
    if !calls.by_place().iter().any(|of_place| of_place.iter().take(LOOKED_AT).any(has_part)) {
        return Vec::new();
    }
    for call in &calls.all {
        for (line, freed) in code.freed_by_line(call) {
            match code.part(call, line, freed) {
                Some(part) => parts.entry(line.0).or_default().push(part),
                None => {
                    others.insert(line.0);
                }
            }
        }
    }
    let wasted = parts.into_iter().filter(|(line, parts)| parts.len() >= LEAST_CALLS && !others.contains(line));
    wasted.filter_map(|(line, parts)| finding(device, FrameId(line), &parts)).collect()
}

/// The innermost Python frame of each stack.
struct Code<'d, 'a> {
    device: &'d Device<'a>,
    innermost: Vec<Option<FrameId>>,
}

impl Code<'_, '_> {
    fn innermost(&self, stack: StackId) -> Option<FrameId> {
        self.innermost.get(stack.index()).copied().flatten()
    }

    /// What lines of the user's modules free during a call after functions that they called have allocated it.
    fn freed_by_line(&self, call: &ModelCall) -> Vec<(FrameId, Vec<(u32, Allocation)>)> {
        let (device, track) = (self.device, self.device.track);
        let mut lines: BTreeMap<FrameId, Vec<(u32, Allocation)>> = BTreeMap::new();
        for (index, made) in born_in(device, call.start, call.end).filter(|(_, made)| made.freed <= call.end) {
            let Some(entry) = History::entry_before(made.freed) else { continue };
            let by = self.innermost(track.stack(entry));
            let Some(line) = by.filter(|&line| line != call.line && device.sites().is_own(line)) else { continue };
            if self.is_called_by(index, line) {
                lines.entry(line).or_default().push((index, made));
            }
        }
        let mut lines: Vec<_> = lines.into_iter().filter(|(_, freed)| freed.len() >= LEAST_BLOCKS).collect();
        lines.sort_rows_by_key(|(_, freed)| Reverse(freed.len()));
        lines.truncate(MOST_LINES);
        lines
    }

    /// Whether a function that a line calls allocates a block.
    fn is_called_by(&self, index: u32, line: FrameId) -> bool {
        let stack = self.device.track.stack_of(index as usize);
        self.innermost(stack) != Some(line) && self.device.snapshot().stacks.frame_ids(stack).contains(&line)
    }

    /// The part that a line calls, if the line frees the part's graph at once and nothing but a result outlives it.
    fn part(&self, call: &ModelCall, line: FrameId, freed: Vec<(u32, Allocation)>) -> Option<Part> {
        let device = self.device;
        let is_workspace = |index: u32| device.categories().get(index as usize).category == Category::Workspace;
        let made: Vec<(u32, Allocation)> = born_in(device, call.start, call.end)
            .filter(|&(index, _)| self.is_called_by(index, line) && !is_workspace(index))
            .collect();
        let (first, end) = (made.first()?.1.born, made.last()?.1.born);
        // The line frees all of it after its part has returned: a line that runs several times in a call does not.
        let results = made.iter().filter(|(_, made)| made.freed > call.end).count();
        if results > MOST_RESULTS || freed.iter().any(|(_, made)| made.freed <= end) {
            return None;
        }
        let largest = made.iter().map(|(_, made)| made.size).max()?;
        let large: Vec<&(u32, Allocation)> =
            made.iter().filter(|(_, made)| made.size >= largest / PART_OF_LARGEST).collect();
        let early = &large[..large.len() / 2];
        let kept = early.iter().filter(|(index, _)| freed.binary_search_by_key(index, |(other, _)| *other).is_ok());
        let stacks: HashSet<StackId> = freed.iter().map(|&(index, _)| device.track.stack_of(index as usize)).collect();
        let is_graph = kept.count() * 100 >= early.len() * LEAST_SHARE && stacks.len() >= LEAST_STACKS;
        is_graph.then(|| Part { start: first.saturating_sub(1), end, graph: freed })
    }
}

fn finding(device: &Device<'_>, line: FrameId, parts: &[Part]) -> Option<Finding> {
    let passes = parts.iter().map(|part| part.start..part.end).collect();
    let blocks: Vec<u32> = parts.iter().flat_map(|part| &part.graph).map(|&(index, _)| index).collect();
    // Another call of the same part may be trained, such as after a warm-up.
    let stacks: HashSet<StackId> = blocks.iter().map(|&index| device.track.stack_of(index as usize)).collect();
    let mut all = device.track.allocations();
    if all.any(|(_, made, stack)| stacks.contains(&stack) && is_freed_by_backward(device, made)) {
        return None;
    }
    let freed = |index: u32| device.track.allocation(index as usize).map_or(NEVER, |made| made.freed);
    let releases = Editor::new(device).releases_without_backward(passes, &blocks).into_iter();
    let lives =
        Lifetimes { freed: releases.filter(|&(index, at)| at < freed(index)).collect(), ..Lifetimes::default() };
    let bytes = |part: &Part| part.graph.iter().map(|(_, made)| made.size).fold(0, u64::saturating_add);
    let most = parts.iter().map(bytes).max()?;
    Some(Finding {
        kind: RuleKind::EvalWithoutNoGrad,
        line: Some(line),
        evidence: format!(
            "each call keeps {} for a backward pass, but this line frees that memory before any backward pass, for example by detaching the result",
            Bytes(most)
        ),
        cost: None,
        fixes: vec![
            Fix::new(
                "make this call under torch.no_grad()",
                ["with torch.no_grad():  # around this call alone"],
                lives,
            )
            .by(Rewrite::NoGrad),
        ],
    })
}
