//! The frames of stacks that are shown: all except those that only pass calls on.

use super::passing::is_passed_through;
use super::sites::Sites;
use crate::model::{FrameId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Frames further from the root are left out, and their bytes are attributed to the last one kept. No program nests as deep,
/// and this bounds the cost of a malicious file.
pub const MAX_DEPTH: usize = 512;

/// Decides which frames of stacks are shown, once per frame.
pub(crate) struct ShownFrames<'a> {
    sites: &'a Sites<'a>,
    /// Whether to keep frames that only pass calls on.
    all: bool,
    /// Whether frames only pass calls on, in stacks with and without Python.
    passing: HashMap<(FrameId, bool), bool, RandomState>,
}

impl<'a> ShownFrames<'a> {
    /// Shows all frames, or leaves out those that only pass calls on.
    pub(crate) fn new(sites: &'a Sites<'a>, all: bool) -> Self {
        Self { sites, all, passing: HashMap::default() }
    }

    /// The frames of a stack that are shown, root first, at most [`MAX_DEPTH`].
    pub(crate) fn of(&mut self, stack: StackId) -> Vec<FrameId> {
        let frames = self.sites.snapshot().stacks.frame_ids(stack);
        let has_python = self.sites.has_python(stack);
        let is_shown = |id: &FrameId| self.all || !self.is_passed_through(*id, has_python);
        let mut shown: Vec<FrameId> = frames.iter().copied().rev().filter(is_shown).take(MAX_DEPTH).collect();
        // A stack without other frames is still a stack.
        if shown.is_empty() {
            shown.extend(frames.first());
        }
        shown
    }

    fn is_passed_through(&mut self, id: FrameId, has_python: bool) -> bool {
        let sites = self.sites;
        let passes = || {
            let snapshot = sites.snapshot();
            let Some(frame) = snapshot.stacks.frame(id) else { return false };
            let [file, name] = [frame.filename, frame.name].map(|text| snapshot.strings.get(text));
            !sites.is_own(id) && is_passed_through(sites.kind(id), file, name, has_python)
        };
        *self.passing.entry((id, has_python)).or_insert_with(passes)
    }
}
