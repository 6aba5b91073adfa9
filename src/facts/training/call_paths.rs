//! Places of a program outside its modules, backward passes and optimizers, where its loops are.

use super::role::Roles;
use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::model::{FrameId, StackId, StrId};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// A chain of Python frames, outermost first, that ends where a phase of training starts: at the call of a module, of
/// `backward` or of an optimizer. Equal chains, including lines, are the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceId(u32);

#[cfg(test)]
impl PlaceId {
    /// A place with a number, for tests.
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// The innermost frame of a place, and its context.
#[derive(Clone, Copy, Debug)]
struct Link {
    around: Option<PlaceId>,
    frame: FrameId,
    /// The function call that contains the frame: the same for all lines of the function below one place.
    call: u32,
    /// Whether any of its frames is the user's own code.
    is_own: bool,
}

/// The place of one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    place: Option<PlaceId>,
    /// The first frame inside the module or function that is called there.
    callee: Option<FrameId>,
}

/// The places of all stacks of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct CallPaths {
    links: Vec<Link>,
    calls: usize,
    stacks: Vec<Ending>,
}

impl CallPaths {
    /// Reads every stack once.
    pub fn of(sites: &Sites<'_>, roles: &Roles) -> Self {
        Self::up_to(sites, roles, |_| false)
    }

    /// The same for a program whose model is these functions, given by their frames: a place ends where one is called, too.
    pub(crate) fn of_functions(sites: &Sites<'_>, roles: &Roles, functions: &HashSet<FrameId>) -> Self {
        Self::up_to(sites, roles, |frame| functions.contains(&frame))
    }

    fn up_to(sites: &Sites<'_>, roles: &Roles, is_function: impl Fn(FrameId) -> bool) -> Self {
        let snapshot = sites.snapshot();
        let mut found = Self::default();
        let mut known: HashMap<(Option<PlaceId>, FrameId), PlaceId, RandomState> = HashMap::default();
        let mut calls: HashMap<(Option<PlaceId>, StrId, StrId), u32, RandomState> = HashMap::default();
        for id in 0..snapshot.stacks.len() as u32 {
            let mut ending = Ending::default();
            let mut frames = snapshot.stacks.frame_ids(StackId(id)).iter().rev().copied();
            let mut is_module = false;
            for frame in frames.by_ref().filter(|&frame| sites.kind(frame).is_python()) {
                if is_function(frame) {
                    ending.callee = Some(frame);
                    break;
                }
                if roles.begins_phase(frame) {
                    is_module = roles.is_module(frame);
                    if !roles.is_module_call(frame) {
                        ending.callee = Some(frame).filter(|_| is_module);
                    }
                    break;
                }
                let around = ending.place;
                let place = *known.entry((around, frame)).or_insert_with(|| {
                    let next = calls.len() as u32;
                    let function = snapshot.stacks.frame(frame).map(|frame| (frame.filename, frame.name));
                    let (file, name) = function.unwrap_or_default();
                    let call = *calls.entry((around, file, name)).or_insert(next);
                    let is_own = sites.kind(frame) == FrameKind::User
                        || around.is_some_and(|around: PlaceId| found.links[around.0 as usize].is_own);
                    found.links.push(Link { around, frame, call, is_own });
                    PlaceId(found.links.len() as u32 - 1)
                });
                ending.place = Some(place);
            }
            if is_module && ending.callee.is_none() {
                ending.callee = frames.find(|&frame| sites.kind(frame).is_python() && !roles.is_module_call(frame));
            }
            found.stacks.push(ending);
        }
        found.calls = calls.len();
        found
    }

    /// The place of a stack, if it contains the user's own code.
    pub fn place(&self, stack: StackId) -> Option<PlaceId> {
        self.stacks.get(stack.index())?.place.filter(|&place| self.links[place.0 as usize].is_own)
    }

    /// The first frame inside the module or function that a stack calls at its place.
    pub fn callee(&self, stack: StackId) -> Option<FrameId> {
        self.stacks.get(stack.index())?.callee
    }

    /// Number of function calls that contain places.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The frames of a place, innermost first, each with the number of its function call.
    pub fn frames(&self, place: PlaceId) -> impl Iterator<Item = (FrameId, usize)> + '_ {
        let mut next = Some(place);
        std::iter::from_fn(move || {
            let link = self.links.get(next?.0 as usize)?;
            next = link.around;
            Some((link.frame, link.call as usize))
        })
    }
}
