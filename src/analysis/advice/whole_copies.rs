//! Lines that allocate temporaries of a whole tensor, in preprocessing or in an update, can cause the peak of a program.
//!
//! **A copy** of a whole tensor is made by an operator that could work in place: `x = x / 255`. The variable still holds the
//! input while the result is computed, so both are live; then the input is freed, with no allocation in between. The fix is an
//! in-place operator, such as `x.div_(255)`. It is uncertain, since a recording does not show which operator it is.

use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId, StrId};
use crate::replay::{Allocation, History, Metric};
use crate::simulation::changes::Lifetimes;
use std::collections::{HashMap, HashSet};

/// Copies are reported from 1/N of the peak on.
const NOTABLE_PART: u64 = 20;

/// One finding, for the copies around the peak that are each computed from the previous one.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let peak = device.history().maxima[Metric::Allocated as usize];
    let least = u64::try_from(peak.bytes).unwrap_or(0) / NOTABLE_PART;
    let mut copy_of: HashMap<u32, u32> = HashMap::new();
    let mut sources: HashSet<Option<FrameId>> = HashSet::new();
    let mut waiting: HashMap<(StrId, StrId, u64), u32> = HashMap::new();
    for (index, made) in (0u32..).zip(&device.history().allocations) {
        if made.size < least.max(1) {
            continue;
        }
        let Some(function) = function(device, index, made) else { continue };
        let earlier = waiting.insert((function.0, function.1, made.requested), index);
        match earlier.filter(|&earlier| is_rebound(device, earlier, index)) {
            Some(earlier) => {
                copy_of.insert(index, earlier);
            }
            None => {
                sources.insert(line(device, index));
            }
        }
    }
    // If a line once allocates data without a source, its copies are new data in later rounds of a loop, too.
    copy_of.retain(|&copy, _| !sources.contains(&line(device, copy)));
    // All copies around the peak, back to the input of the first one.
    let is_at_peak = |(copy, earlier): &(&u32, &u32)| {
        let [copy, earlier] = [**copy, **earlier].map(|index| device.history().allocations[index as usize]);
        copy.allocated_at(peak.instant) && earlier.allocated_at(peak.instant)
    };
    let Some((&copy, _)) = copy_of.iter().filter(is_at_peak).max() else { return Vec::new() };
    let mut first = copy;
    while let Some(&earlier) = copy_of.get(&first) {
        first = earlier;
    }
    let made_of: HashMap<u32, u32> = copy_of.iter().map(|(&copy, &earlier)| (earlier, copy)).collect();
    let copies_of = |first: u32| std::iter::successors(made_of.get(&first), |last| made_of.get(last)).copied();
    let lines: HashSet<Option<FrameId>> = copies_of(first).map(|copy| line(device, copy)).collect();
    let Some(named) = copies_of(first).next() else { return Vec::new() };
    // These lines copy in every round of a loop, and in every call of their function.
    let (mut removed, mut freed) = (Vec::new(), Vec::new());
    let block = |index: u32| device.history().allocations[index as usize];
    let mut roots: Vec<u32> = made_of.keys().copied().filter(|root| !copy_of.contains_key(root)).collect();
    roots.sort_unstable();
    for root in roots {
        let copies: Vec<u32> = copies_of(root).take_while(|&copy| lines.contains(&line(device, copy))).collect();
        if let Some(&last) = copies.last() {
            freed.push((root, block(last).freed.saturating_sub(1)));
            removed.extend(copies);
        }
    }
    vec![Finding {
        kind: RuleKind::Temporary,
        line: line(device, named),
        evidence: format!(
            "the input and the result of this operator, {} each, are both live at the peak; nothing uses the input afterwards",
            Bytes(block(named).size)
        ),
        cost: None,
        fixes: vec![Fix::new(
            "use an in-place operator, if each element of the result depends only on the corresponding element of the input",
            ["x.div_(255)  # instead of x = x / 255; likewise mul_, sub_, clamp_"],
            Lifetimes {
                removed,
                freed,
                doubt: Some("the recording does not show whether the operator has an in-place form"),
                ..Lifetimes::default()
            },
        )],
    }]
}

/// The function of the user that calls the operator, outside of models and of training.
pub(super) fn function(device: &Device<'_>, index: u32, made: &Allocation) -> Option<(StrId, StrId)> {
    let stack = device.track.stack_of(index as usize);
    let is_plain = matches!(device.roles().role(stack), Role::Plain | Role::Data | Role::Setup)
        && made.born > 0
        && !matches!(device.phases().at(made.born), Phase::Backward | Phase::Optimizer);
    let frame = device.snapshot().stacks.frame(line(device, index).filter(|_| is_plain)?)?;
    Some((frame.filename, frame.name))
}

/// The innermost line of Python, if it is the user's own.
pub(super) fn line(device: &Device<'_>, index: u32) -> Option<FrameId> {
    let (sites, stack) = (device.sites(), device.track.stack_of(index as usize));
    let frames = device.snapshot().stacks.frame_ids(stack);
    let innermost = frames.iter().copied().find(|&frame| sites.kind(frame).is_python());
    innermost.filter(|&frame| stack != StackId::EMPTY && sites.is_own(frame))
}

/// Whether a line releases a block after allocating another one, with no allocation in between.
pub(super) fn goes_behind(device: &Device<'_>, gone: u32, made: u32, at: FrameId) -> bool {
    let (track, history) = (device.track, device.history());
    let [gone, block] = [gone, made].map(|index| history.allocations[index as usize]);
    let next = history.allocations.get(made as usize + 1).map_or(history.entries(), |next| next.born);
    let is_behind = gone.freed > block.born && gone.freed <= next;
    let by = History::entry_before(gone.freed).filter(|&entry| is_behind && entry < history.entries());
    device.phases().frees_tell && by.and_then(|entry| device.sites().site_frame(track.stack(entry))) == Some(at)
}

/// Whether a block is released right after the block that is computed from it, by the line that allocates that one. In
/// a loop, a line does so with its own block from the previous round; that does not count.
fn is_rebound(device: &Device<'_>, earlier: u32, copy: u32) -> bool {
    let at = line(device, copy).filter(|&at| line(device, earlier) != Some(at));
    at.is_some_and(|at| goes_behind(device, earlier, copy, at))
}
