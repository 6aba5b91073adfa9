//! The line of code that allocates or frees a block.

use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::model::{FrameId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The line of each stack: that of the innermost Python frame outside PyTorch.
pub(super) struct OwnLines<'a> {
    sites: &'a Sites<'a>,
    known: HashMap<StackId, Option<FrameId>, RandomState>,
}

impl<'a> OwnLines<'a> {
    pub(super) fn new(sites: &'a Sites<'a>) -> Self {
        Self { sites, known: HashMap::default() }
    }

    pub(super) fn of(&mut self, stack: StackId) -> Option<FrameId> {
        let sites = self.sites;
        *self.known.entry(stack).or_insert_with(|| {
            let frames = sites.snapshot().stacks.frame_ids(stack).iter().copied();
            let own = |&frame: &FrameId| matches!(sites.kind(frame), FrameKind::User | FrameKind::Package);
            frames.clone().find(own).or_else(|| frames.clone().find(|&frame| sites.kind(frame).is_python()))
        })
    }
}
