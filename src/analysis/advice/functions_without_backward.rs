//! Finds evaluations with gradients enabled in models of plain functions, without `nn.Module`.
//!
//! What a line of such a function makes is kept for backward where the program trains. Elsewhere, called from a line that no such
//! stack has, the same line makes what outlives its function, although no backward pass frees it.

use super::model_calls::{ModelCalls, born_in};
use super::{Finding, Remedy, Story, Way};
use crate::facts::device::Device;
use crate::facts::training::{Phase, Role};
use crate::model::bytes::Bytes;
use crate::model::{Action, FrameId, StackId, StrId};
use crate::play::changes::Lives;
use crate::replay::{Allocation, Instant, NEVER};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// So many blocks that are no results outlive their functions in a call, and such a share of them in percent, where it keeps a graph.
const LEAST_KEPT: usize = 4;
const LEAST_SHARE: usize = 30;
/// Calls that are looked at for the next one of the same function's.
const LOOKED_AT: usize = 256;
/// The doubt about when functions release what they make.
const UNKNOWN: &str = "which results the variables of functions keep until these return is not recorded";

/// One finding for each line that calls such functions, where the program calls no module.
pub(super) fn find(device: &Device<'_>, calls: &ModelCalls) -> Vec<Finding> {
    if !calls.all.is_empty() || !device.phases().frees_tell {
        return Vec::new();
    }
    evaluations(device).iter().filter_map(|(&line, calls)| finding(device, line, calls)).collect()
}

/// The calls from each line outside of training: from the first entry to what follows the return.
fn evaluations(device: &Device<'_>) -> BTreeMap<FrameId, Vec<Range<Instant>>> {
    let (track, phases) = (device.track, device.phases());
    let is_plain = |made: &Allocation, stack: StackId| {
        let is_forward = !matches!(phases.at(made.born), Phase::Backward | Phase::Optimizer);
        made.born > 0 && is_forward && device.roles().role(stack) == Role::Plain
    };
    let plain: Vec<(&Allocation, StackId)> = track
        .allocations()
        .filter(|(_, made, stack)| is_plain(made, *stack))
        .map(|(_, made, stack)| (made, stack))
        .collect();
    let frames = |stack: StackId| device.snapshot().stacks.frame_ids(stack).iter().copied();
    // For each line that makes what backward needs, the frames of its stacks then.
    let mut trained: HashMap<FrameId, HashSet<FrameId>> = HashMap::new();
    let is_needed = |made: &Allocation| made.freed != NEVER && phases.at(made.freed) == Phase::Backward;
    for &(_, stack) in plain.iter().filter(|(made, _)| is_needed(made)) {
        if let Some(line) = own_line(device, stack) {
            trained.entry(line).or_default().extend(frames(stack));
        }
    }
    let caller = |stack: StackId| -> Option<FrameId> {
        let line = own_line(device, stack)?;
        let known = trained.get(&line)?;
        frames(stack).skip_while(|&frame| frame != line).find(|frame| !known.contains(frame))
    };
    let lines: HashSet<FrameId> = plain.iter().filter_map(|&(_, stack)| caller(stack)).collect();
    let mut calls: BTreeMap<FrameId, Vec<Range<Instant>>> = BTreeMap::new();
    if lines.is_empty() {
        return calls;
    }
    let mut open: Option<FrameId> = None;
    for (entry, (&action, &stack)) in (0..).zip(track.actions().iter().zip(track.stacks())) {
        if !matches!(action, Action::Alloc | Action::FreeRequested) || stack == StackId::EMPTY {
            continue;
        }
        let line = frames(stack).find(|frame| lines.contains(frame));
        if line == open {
            continue;
        }
        if let Some(last) = open.take().and_then(|line| calls.get_mut(&line)?.last_mut()) {
            last.end = entry;
        }
        if let Some(line) = line.filter(|_| action == Action::Alloc) {
            calls.entry(line).or_default().push(entry..track.entries());
            open = Some(line);
        }
    }
    calls
}

fn own_line(device: &Device<'_>, stack: StackId) -> Option<FrameId> {
    device.sites().site_frame(stack).filter(|&frame| device.sites().is_own(frame))
}

fn finding(device: &Device<'_>, line: FrameId, calls: &[Range<Instant>]) -> Option<Finding> {
    let (mut least, mut most) = (Lives::default(), Lives::default());
    let mut kept = 0;
    for call in calls {
        let own = activations(device, call);
        let temporaries = own.iter().flat_map(|own| own.temporaries().iter().map(|made| (made, own.end)));
        let (held, all) = temporaries.fold((0, 0), |(held, all), ((_, made), end)| {
            (held + usize::from(made.freed > end && made.freed > call.end), all + 1)
        });
        if held < LEAST_KEPT || held * 100 < all * LEAST_SHARE {
            return None;
        }
        let bytes = born_in(device, call.start, call.end).filter(|(_, made)| made.freed > call.end);
        kept = kept.max(bytes.map(|(_, made)| made.size).fold(0, u64::saturating_add));
        for (place, activation) in own.iter().enumerate() {
            for pair in activation.blocks.windows(2) {
                let ((index, made), next) = (pair[0], pair[1].1.born);
                least.freed.extend((made.freed > activation.end).then_some((index, activation.end)));
                most.freed.extend((made.freed > next).then_some((index, next)));
            }
            // A variable of the caller has the result until it is bound to the next one.
            let end = own[place + 1..]
                .iter()
                .take(LOOKED_AT)
                .find(|other| other.is_behind(activation))
                .map_or(call.end, |other| other.end);
            let result = activation.blocks.last().filter(|(_, made)| made.freed > end);
            least.freed.extend(result.map(|&(index, _)| (index, end)));
            most.freed.extend(result.map(|&(index, _)| (index, end)));
        }
    }
    let cure = "call the model under torch.no_grad()";
    let code = vec!["with torch.no_grad():  # or @torch.no_grad() above the function".to_owned()];
    let way = Way { cure: cure.to_owned(), code: code.clone(), least, most, unknown: UNKNOWN };
    Some(Finding {
        story: Story::EvalWithoutNoGrad,
        line: Some(line),
        cure: cure.to_owned(),
        evidence: format!("each call keeps {} for a backward pass that never comes", Bytes(kept)),
        cost: None,
        code,
        remedy: Remedy::Ways(vec![way]),
    })
}

/// A call of a function, with the blocks that its own lines make.
struct Activation {
    /// The frames of its callers, outermost first, and what it is.
    callers: Vec<FrameId>,
    function: (StrId, StrId),
    first_line: u64,
    last_line: u64,
    blocks: Vec<(u32, Allocation)>,
    /// The instants of the first block and of the return.
    begin: Instant,
    end: Instant,
}

impl Activation {
    /// All blocks but the last one, which is the result.
    fn temporaries(&self) -> &[(u32, Allocation)] {
        self.blocks.split_last().map_or(&[], |(_, before)| before)
    }

    /// Whether the same function calls this after another one has returned.
    fn is_behind(&self, other: &Self) -> bool {
        let around = |it: &Self| it.callers.split_last().map(|(_, around)| around.to_vec());
        self.begin > other.end && self.callers.len() == other.callers.len() && around(self) == around(other)
    }
}

/// The calls of the user's functions within a call. A function whose first line makes something again was called again.
fn activations(device: &Device<'_>, call: &Range<Instant>) -> Vec<Activation> {
    let stacks = &device.snapshot().stacks;
    let mut all: Vec<Activation> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (index, made) in born_in(device, call.start, call.end) {
        let stack = device.track.stack_of(index as usize);
        let frames: Vec<FrameId> = stacks.frame_ids(stack).iter().rev().copied().collect();
        let own = own_line(device, stack).and_then(|line| frames.iter().rposition(|&frame| frame == line));
        let Some(depth) = own else { continue };
        let function = |depth: usize| {
            let frame = stacks.frame(*frames.get(depth)?)?;
            Some(((frame.filename, frame.name), frame.line))
        };
        let Some((name, line)) = function(depth) else { continue };
        let mut continued = false;
        open.retain(|&place| {
            let open: &mut Activation = &mut all[place];
            let at = open.callers.len();
            let is_inside =
                frames.starts_with(&open.callers) && function(at).is_some_and(|(it, _)| it == open.function);
            let is_own = is_inside && at == depth;
            let is_done = !is_inside || is_own && line <= open.first_line && line < open.last_line;
            if is_done {
                open.end = made.born - 1;
            } else if is_own {
                open.blocks.push((index, made));
                open.last_line = line;
                continued = true;
            }
            !is_done
        });
        if !continued {
            open.push(all.len());
            all.push(Activation {
                callers: frames[..depth].to_vec(),
                function: name,
                first_line: line,
                last_line: line,
                blocks: vec![(index, made)],
                begin: made.born,
                end: call.end,
            });
        }
    }
    all
}
