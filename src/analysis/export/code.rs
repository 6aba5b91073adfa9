//! Groups of stacks as lists of places in code.

use crate::facts::code::shown_frames::ShownFrames;
use crate::facts::code::sites::{CodeOrigin, Place, Sites, backward_of};
use crate::facts::grouping::{Grouper, Key};
use crate::model::{FrameId, StackId};
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::collections::HashMap;

pub(super) struct Code<'a> {
    sites: &'a Sites<'a>,
    shown: ShownFrames<'a>,
    places: IndexSet<Place, RandomState>,
    known: HashMap<FrameId, u32, RandomState>,
}

impl<'a> Code<'a> {
    pub(super) fn new(sites: &'a Sites<'a>, all_frames: bool) -> Self {
        Self {
            sites,
            shown: ShownFrames::new(sites, all_frames),
            places: IndexSet::default(),
            known: HashMap::default(),
        }
    }

    /// The stack of a group, innermost first: its own frames, a separator, and the frames of the forward stack that belongs
    /// to it. A group without a stack is a single place with the group's name.
    pub(super) fn of(&mut self, grouper: &Grouper<'_>, key: &Key) -> Vec<u32> {
        let Key::Stack(CodeOrigin { stack, forward, is_recorded, .. }) = *key else {
            return vec![self.number(Place::marker(&grouper.label(key, false)))];
        };
        let mut places = self.of_stack(stack);
        if let Some(forward) = forward {
            let outer = self.of_stack(forward);
            places.extend(outer.first().map(|&line| self.backward(line, is_recorded)));
            places.extend(outer);
        }
        places
    }

    /// The place that represents the backward of a place in forward.
    fn backward(&mut self, forward: u32, is_recorded: bool) -> u32 {
        let forward = self.places.get_index(forward as usize).cloned().unwrap_or_default();
        let inferred = if is_recorded { "" } else { " (inferred)" };
        let function = format!("{}{inferred}", backward_of(&forward.function));
        self.number(Place { function, ..forward })
    }

    pub(super) fn of_stack(&mut self, stack: StackId) -> Vec<u32> {
        let (sites, places) = (self.sites, &mut self.places);
        let mut place = |id| *self.known.entry(id).or_insert_with(|| places.insert_full(sites.place(id)).0 as u32);
        self.shown.of(stack).into_iter().rev().map(&mut place).collect()
    }

    fn number(&mut self, place: Place) -> u32 {
        self.places.insert_full(place).0 as u32
    }

    /// Every place, in the order in which stacks refer to them.
    pub(super) fn into_places(self) -> Vec<Place> {
        self.places.into_iter().collect()
    }
}
