//! An earlier phase, such as loading data or a first evaluation, leaves segments reserved that the next phase cannot use, because
//! it requests other sizes.
//!
//! **Sign:** the only boundary between two phases, or the end of what a program does before it calls a model, at which at least a
//! fifth of the peak of reserved memory is free.
//!
//! **Fix:** call `torch.cuda.empty_cache()` once, there. In a loop it would cost more than it saves.
//!
//! **Figures** are simulated with an emptied cache, and shown only if they are at least an eighth of reserved memory: later
//! requests may fit the free segments.

use super::model_calls::{ModelCall, ModelCalls};
use super::rules::Evidence;
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::bytes::Bytes;
use crate::model::{FrameId, StackId};
use crate::replay::{Instant, Metric};
use crate::simulation::changes::Lifetimes;

/// At least 1/N of the peak of reserved memory stays reserved and free.
const PART_LEFT: i64 = 5;
/// At the end of a preparation, free reserved memory is at most 1/N below its maximum before the first call of a model.
const PART_LESS: i64 = 4;
/// Models that are called alternately are not phases: a phase has at least this many calls.
const LEAST_CALLS: usize = 2;

/// Finds places where an earlier phase leaves much memory reserved.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let (device, calls) = (evidence.device, evidence.calls());
    let highest = device.history().maxima[Metric::Reserved as usize];
    // A phase that repeats, such as an evaluation after each epoch, would pay the cost each time.
    let boundaries = boundaries(device, calls);
    let (boundary, left) = match boundaries.as_slice() {
        &[boundary] => (boundary, left_at(device, boundary.end)),
        [] => {
            let Some(prepared) = prepared(device, calls) else { return Vec::new() };
            prepared
        }
        _ => return Vec::new(),
    };
    if boundary.end >= highest.instant || left <= 0 || left < highest.bytes / PART_LEFT {
        return Vec::new();
    }
    let line = line_behind(device, boundary);
    let is_repeated = line.is_some_and(|line| is_repeated(calls, boundary, line));
    let place = if is_repeated { "before the loop that runs this line" } else { "before the next phase" };
    vec![Finding {
        kind: RuleKind::ReleaseCache,
        line,
        evidence: format!(
            "{} of reserved memory is free when the program moves on to its next phase",
            Bytes(left.unsigned_abs())
        ),
        cost: Some("the next phase reserves memory again".to_owned()),
        fixes: vec![Fix::new(
            format!("call torch.cuda.empty_cache() once {place}"),
            ["torch.cuda.empty_cache()  # once, not in the loop"],
            Lifetimes { emptied: vec![boundary.end], ..Lifetimes::default() },
        )],
    }]
}

fn left_at(device: &Device<'_>, instant: Instant) -> i64 {
    let mut left = 0;
    device.track.walk_to(instant, |_, now| left = now.reserved - now.active);
    left
}

/// The end of what a program does before it calls a model, such as computing statistics of its data: the last instant
/// before free reserved bytes shrink, once they are most of what is ever free before the first call. Later requests may reuse some.
fn prepared(device: &Device<'_>, calls: &ModelCalls) -> Option<(Boundary, i64)> {
    let first = calls.all.first()?.start;
    let mut most = 0;
    device.track.walk_to(first, |_, now| most = most.max(now.reserved - now.active));
    let (mut end, mut left, mut is_over) = (0, 0, false);
    device.track.walk_to(first, |instant, now| {
        let free = now.reserved - now.active;
        is_over |= free < left;
        if !is_over && free >= most - most / PART_LESS {
            (end, left) = (instant, free);
        }
    });
    (left > 0).then_some((Boundary { end, call: end }, left))
}

/// The instants at which the program starts another phase.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    end: Instant,
    /// The first model call of the next phase: entries in between may belong to either phase.
    call: Instant,
}

/// The instants at which the program switches phases: several calls of models that are trained, then several of models
/// that are not, or the other way round.
fn boundaries(device: &Device<'_>, calls: &ModelCalls) -> Vec<Boundary> {
    let is_trained: Vec<bool> = calls.all.iter().map(|call| call.is_trained(device)).collect();
    let mut boundaries = Vec::new();
    let mut start = 0;
    for run in is_trained.chunk_by(|one, next| one == next) {
        let end = start + run.len();
        let next = is_trained[end..].chunk_by(|one, next| one == next).next().map_or(0, <[bool]>::len);
        if run.len() >= LEAST_CALLS && next >= LEAST_CALLS {
            let call = &calls.all[end];
            boundaries.push(Boundary { end: end_before(device, call), call: call.start });
        }
        start = end;
    }
    boundaries
}

/// The end of the last phase before a call: the entries in between allocate its inputs.
fn end_before(device: &Device<'_>, call: &ModelCall) -> Instant {
    let is_phase = |phase: Phase| matches!(phase, Phase::Forward | Phase::Backward | Phase::Optimizer);
    let spans = device.phases().spans.iter().rev();
    let mut ended = spans.filter(|span| is_phase(span.phase) && span.end <= call.start);
    ended.next().map_or(call.start, |span| span.end)
}

/// The user's line that leads to the next phase, and did not lead to the previous one.
fn line_behind(device: &Device<'_>, boundary: Boundary) -> Option<FrameId> {
    let (track, sites) = (device.track, device.sites());
    let own = |stack: StackId| -> Vec<FrameId> {
        let frames = device.snapshot().stacks.frame_ids(stack).iter().rev();
        frames.copied().filter(|&frame| sites.is_own(frame)).collect()
    };
    let known = |entry: Instant| Some(own(track.stack(entry))).filter(|frames| !frames.is_empty());
    let behind = (boundary.call..track.entries()).find_map(known)?;
    let before = (0..boundary.end).rev().find_map(known).unwrap_or_default();
    let shared = behind.iter().zip(&before).take_while(|(one, other)| one == other).count();
    behind.get(shared).or(behind.last()).copied()
}

/// Whether a line itself calls the model several times in the next phase: it lies in the loop of the phase, not before it.
fn is_repeated(calls: &ModelCalls, boundary: Boundary, line: FrameId) -> bool {
    let next = calls.all.iter().skip_while(|call| call.start < boundary.call).take(LEAST_CALLS);
    next.filter(|call| call.line == line).count() == LEAST_CALLS
}
