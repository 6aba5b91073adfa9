//! Keeps only forward passes, in `eval` mode and without gradients.

use super::Assumed;
use super::rewrite::{Patch, Rewrite, is_free};
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::{FrameId, StackId};
use crate::simulation::changes::Release;
use crate::simulation::{Step, StepKind};
use std::collections::HashMap;

/// Removes the requests of backward and the optimizer, and frees the tensors that forward keeps for them as soon as the
/// program releases them. Returns the assumption.
pub(super) fn apply(rewrite: &mut Rewrite, device: &Device<'_>, releases: &[Release]) -> Assumed {
    let (history, phases) = (device.history(), device.phases());
    let places = rewrite.places(history.entries());
    let mut patch = Patch::default();
    let mut frees = Frees::of(&rewrite.program.steps);
    for release in releases {
        frees.moved.insert(release.allocation, (places[release.released as usize], release.released));
    }
    for step in rewrite.program.steps.iter().filter(|step| step.kind == StepKind::Alloc) {
        let made = rewrite.origin(step.allocation).and_then(|origin| history.allocations.get(origin as usize));
        if made.is_some_and(|made| matches!(phases.at(made.born), Phase::Backward | Phase::Optimizer)) {
            patch.remove(step.allocation);
        }
    }
    leave_out_dropout(&rewrite.program.steps, device, &mut frees, &mut patch);
    for (allocation, (place, entry)) in frees.moved {
        patch.free_at(place, allocation, entry);
    }
    rewrite.apply(patch);
    let assumption = "the forward passes as recorded, with their losses, in eval mode and under no_grad, without backward, optimizer or dropout";
    Assumed { assumption: assumption.to_owned(), doubt: doubt(device) }
}

/// PyTorch modules that behave differently in `eval`, or that run several parts in one C++ call.
const OTHERWISE: [(&str, &str); 2] = [
    ("nn/modules/transformer.py", "torch.nn.TransformerEncoderLayer has a fast path in eval mode"),
    ("nn/modules/rnn.py", "the recording does not show what a recurrent layer keeps for each time step"),
];

/// Why figures may be far off: a module whose behavior in `eval` mode the recording does not show.
fn doubt(device: &Device<'_>) -> Option<String> {
    let snapshot = device.snapshot();
    let frames = (0..snapshot.stacks.frame_count() as u32).filter_map(|id| snapshot.stacks.frame(FrameId(id)));
    let mut files = frames.map(|frame| snapshot.strings.get(frame.filename));
    let reason = files.find_map(|file| OTHERWISE.iter().find(|(end, _)| file.ends_with(end)));
    reason.map(|(_, reason)| (*reason).to_owned())
}

struct Frees {
    recorded: HashMap<u32, (usize, u32)>,
    /// With the change.
    moved: HashMap<u32, (usize, u32)>,
}

impl Frees {
    fn of(steps: &[Step]) -> Self {
        let frees = steps.iter().enumerate().filter(|(_, step)| is_free(step.kind));
        let recorded = frees.map(|(place, step)| (step.allocation, (place, step.entry))).collect();
        Self { recorded, moved: HashMap::new() }
    }

    fn at(&self, allocation: u32) -> Option<(usize, u32)> {
        self.moved.get(&allocation).or_else(|| self.recorded.get(&allocation)).copied()
    }
}

/// Removes the allocations of dropout: in `eval` mode, dropout returns its input, which then lives as long as the result would.
fn leave_out_dropout(steps: &[Step], device: &Device<'_>, frees: &mut Frees, patch: &mut Patch) {
    let mut known: HashMap<StackId, bool> = HashMap::new();
    let mut is_dropout = |step: &Step| {
        let stack = device.track.stack(step.entry);
        step.kind == StepKind::Alloc
            && device.phases().at(step.entry + 1) == Phase::Forward
            && *known.entry(stack).or_insert_with(|| is_dropout(device, stack))
    };
    // Live blocks by size, the newest last.
    let mut there: HashMap<u64, Vec<u32>> = HashMap::new();
    let mut last: Option<(usize, Step)> = None;
    for (place, step) in steps.iter().enumerate() {
        if step.kind != StepKind::Alloc {
            continue;
        }
        if !is_dropout(step) {
            there.entry(step.bytes).or_default().push(step.allocation);
            continue;
        }
        patch.remove(step.allocation);
        let until = frees.at(step.allocation);
        frees.moved.remove(&step.allocation);
        // A mask is allocated before the result, which is larger.
        let is_result = last.is_some_and(|(before, mask)| {
            mask.bytes < step.bytes && steps[before + 1..place].iter().all(|between| is_free(between.kind))
        });
        last = Some((place, *step));
        let given = there.get_mut(&step.bytes).filter(|_| is_result);
        let given = given.and_then(|there| {
            there.retain(|&allocation| frees.recorded.get(&allocation).is_none_or(|&(freed, _)| freed > place));
            there.last().copied()
        });
        let (Some(given), Some(until)) = (given, until) else { continue };
        if frees.at(given).is_some_and(|(freed, _)| freed < until.0) {
            frees.moved.insert(given, until);
        }
    }
}

/// Whether `torch.nn.functional.dropout`, or a similar function, runs on a stack.
fn is_dropout(device: &Device<'_>, stack: StackId) -> bool {
    let strings = &device.snapshot().strings;
    device.snapshot().stacks.frames(stack).any(|frame| {
        strings.get(frame.name).contains("dropout") && strings.get(frame.filename).ends_with("nn/functional.py")
    })
}
