//! Queries about stacks, for finders.

use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::facts::training::workspace::is_workspace_size;
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, NEVER};

pub(super) struct Marked(Vec<Option<FrameId>>);

impl Marked {
    /// Stacks with a frame for which `is_it` is true. Its arguments are the path inside the installed package (empty for the
    /// user's own code), the name of the function, and the kind of code. Only the innermost such frame of a stack is known.
    pub fn of(device: &Device<'_>, is_it: impl Fn(&str, &str, FrameKind) -> bool) -> Self {
        let (snapshot, sites) = (device.snapshot(), device.sites());
        let frame = |id: u32| {
            snapshot.stacks.frame(FrameId(id)).is_some_and(|frame| {
                is_it(sites.installed_path(FrameId(id)), snapshot.strings.get(frame.name), sites.kind(FrameId(id)))
            })
        };
        let frames: Vec<bool> = (0..snapshot.stacks.frame_count() as u32).map(frame).collect();
        let is_marked = |id: &&FrameId| frames.get(id.index()).copied().unwrap_or(false);
        let stack = |id: u32| snapshot.stacks.frame_ids(StackId(id)).iter().find(is_marked).copied();
        Self((0..snapshot.stacks.len() as u32).map(stack).collect())
    }

    pub fn frame(&self, stack: StackId) -> Option<FrameId> {
        self.0.get(stack.index()).copied().flatten()
    }

    pub fn has(&self, stack: StackId) -> bool {
        self.frame(stack).is_some()
    }

    pub fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

/// The innermost frame of the user's code that all of these stacks share; without one, the frame of the first stack's
/// site.
pub(super) fn common_line(device: &Device<'_>, stacks: &[StackId]) -> Option<FrameId> {
    let frames = |stack: StackId| device.snapshot().stacks.frame_ids(stack);
    let (&first, rest) = stacks.split_first()?;
    let mut shared = frames(first);
    for &stack in rest {
        let same = shared.iter().rev().zip(frames(stack).iter().rev()).take_while(|(a, b)| a == b).count();
        shared = &shared[shared.len() - same..];
    }
    let own = shared.iter().copied().find(|&frame| device.sites().is_own(frame));
    own.or_else(|| device.sites().site_frame(first))
}

/// Whether a line of a stack calls a model of transformers itself, not a function that does.
pub(super) fn calls_transformers(device: &Device<'_>, stack: StackId, line: FrameId) -> bool {
    let (snapshot, sites) = (device.snapshot(), device.sites());
    let frames = snapshot.stacks.frame_ids(stack).iter().copied().filter(|&frame| sites.kind(frame).is_python());
    let frames: Vec<FrameId> = frames.collect();
    let Some(depth) = frames.iter().position(|&frame| frame == line) else { return false };
    let called = frames[..depth].iter().rev().filter_map(|&frame| snapshot.stacks.frame(frame));
    let mut called = called.map(|frame| snapshot.strings.get(frame.filename).replace('\\', "/"));
    let is_of_module = |file: &String| file.ends_with("torch/nn/modules/module.py");
    called.next().is_some_and(|file| is_of_module(&file))
        && called.find(|file| !is_of_module(file)).is_some_and(|file| file.contains("/transformers/"))
}

/// Whether a block has the size of a library's workspace and is the only one of its stack that is never freed: a leak repeats.
pub(super) fn may_be_workspace(device: &Device<'_>, index: u32, made: &Allocation) -> bool {
    let stack = device.track.stack_of(index as usize);
    let is_kept = |other: &Allocation| other.freed == NEVER && other.requested == made.requested;
    let kept = || device.allocations_by(|other| other == stack).filter(|(_, other, _)| is_kept(other)).count();
    made.freed == NEVER && is_workspace_size(made.requested) && kept() == 1
}
