//! The model of a program without modules: the user's functions that training differentiates.

use super::model_calls::{ModelCall, born_in, inside};
use crate::facts::device::Device;
use crate::facts::training::{CallPaths, Phase, Role};
use crate::model::{FrameId, StackId};
use crate::replay::{Allocation, Instant, NEVER};
use std::collections::{HashMap, HashSet};

/// A call without a backward pass keeps a graph if at least so many of its blocks from stacks that allocate memory for backward
/// outlive it, and if this share of these stacks keeps as much as in training, in percent. A function that returns all its
/// activations collects them at one line.
const LEAST_KEPT: usize = 3;
const LEAST_STACKS: usize = 2;
/// A graph is freed from its end: this share of pairs of its blocks is freed in the reverse order, in percent. Collections of results
/// are freed one after the other. So many blocks are compared.
const SHARE_REVERSED: usize = 90;
const MOST_COMPARED: usize = 64;
const SHARE_OF_TRAINING: usize = 90;

/// The functions, and what training keeps of their blocks.
#[derive(Clone, Debug)]
pub(super) struct ModelFunctions {
    pub frames: HashSet<FrameId>,
    /// For the frames inside the line that calls a function, innermost first.
    saved: HashMap<Vec<FrameId>, Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    all: usize,
    /// Those that backward passes free, or that outlive their call.
    kept: usize,
}

impl Share {
    fn add(&mut self, is_kept: bool) {
        self.all += 1;
        self.kept += usize::from(is_kept);
    }
}

impl ModelFunctions {
    /// The functions of a device; `None` if the program has modules, or does not train.
    pub fn of(device: &Device<'_>) -> Option<Self> {
        let (sites, roles, phases, track) = (device.sites(), device.roles(), device.phases(), device.track);
        let snapshot = device.snapshot();
        let stacks = || (0..snapshot.stacks.len() as u32).map(StackId);
        if !phases.has_training() || stacks().any(|stack| roles.role(stack) == Role::Module) {
            return None;
        }
        let paths = CallPaths::of(sites, roles);
        let function = |frame: FrameId| snapshot.stacks.frame(frame).map(|frame| (frame.filename, frame.name));
        // Functions that run a backward pass, or call one that does, are the loop around the model.
        let passes = stacks().filter(|&stack| roles.role(stack) == Role::Backward);
        let around: Vec<(FrameId, usize)> =
            passes.filter_map(|stack| paths.place(stack)).flat_map(|place| paths.frames(place)).collect();
        let running: HashSet<usize> = around.iter().map(|&(_, call)| call).collect();
        let of_loop: HashSet<_> = around.iter().map(|&(frame, _)| function(frame)).collect();
        let within = |stacks: HashSet<StackId>| -> HashSet<_> {
            let places = stacks.into_iter().filter_map(|stack| paths.place(stack));
            let frames = places.flat_map(|place| paths.frames(place).take_while(|(_, call)| !running.contains(call)));
            let own = frames.map(|(frame, _)| frame).filter(|&frame| sites.is_own(frame));
            own.map(function).filter(|function| !of_loop.contains(function)).collect()
        };
        let all = || born_in(device, 0, track.entries());
        let is_saved = |made: &Allocation| phases.at(made.freed) == Phase::Backward;
        let saved = all().filter(|(_, made)| is_saved(made)).map(|(index, _)| track.stack_of(index as usize));
        let saved: HashSet<StackId> = saved.filter(|&stack| roles.role(stack) == Role::Plain).collect();
        // A backward pass also frees the data of a step, but computes no gradients for what makes them.
        let with_gradients =
            all().filter_map(|(index, _)| device.backward().forward_stack(track, roles, index as usize));
        let (saved, with_gradients) = (within(saved), within(with_gradients.collect()));
        let frames = (0..snapshot.stacks.frame_count() as u32).map(FrameId);
        let is_model = |&frame: &FrameId| {
            let function = function(frame);
            saved.contains(&function) && with_gradients.contains(&function)
        };
        let frames: HashSet<FrameId> = frames.filter(is_model).collect();
        (!frames.is_empty()).then_some(Self { frames, saved: HashMap::new() })
    }

    pub fn paths(&self, device: &Device<'_>) -> CallPaths {
        CallPaths::of_functions(device.sites(), device.roles(), &self.frames)
    }

    pub fn role(&self, device: &Device<'_>, paths: &CallPaths, stack: StackId) -> Role {
        match device.roles().role(stack) {
            Role::Plain if paths.callee(stack).is_some_and(|callee| self.frames.contains(&callee)) => Role::Module,
            role => role,
        }
    }

    /// Learns from the calls that are trained what each stack keeps.
    pub fn learn<'c>(&mut self, device: &Device<'_>, trained: impl Iterator<Item = &'c ModelCall>) {
        for call in trained {
            for (index, made) in born_in(device, call.start, call.end) {
                let is_saved = made.freed > call.end && device.phases().at(made.freed) == Phase::Backward;
                let inside = inside(device, device.track.stack_of(index as usize), call.line);
                // Other lines may call a function that training only calls inside another one.
                for end in (1..inside.len()).filter(|&end| self.frames.contains(&inside[end - 1])) {
                    self.saved.entry(inside[..end].to_vec()).or_default().add(is_saved);
                }
                self.saved.entry(inside).or_default().add(is_saved);
            }
        }
    }

    /// Whether a call without a backward pass keeps what training keeps for one. A function may return anything, so a few blocks
    /// that outlive the call are no evidence.
    pub fn keeps_graph(&self, device: &Device<'_>, call: &ModelCall) -> bool {
        let mut of_stack: HashMap<StackId, Share> = HashMap::new();
        for (index, made) in born_in(device, call.start, call.end) {
            of_stack.entry(device.track.stack_of(index as usize)).or_default().add(made.freed > call.end);
        }
        let trained = |stack| self.saved.get(&inside(device, stack, call.line)).filter(|share| share.kept > 0);
        let pairs = of_stack.into_iter().filter_map(|(stack, share)| Some((share, *trained(stack)?)));
        let (mut stacks, mut keeping, mut outliving) = (0, 0, 0);
        for (share, trained) in pairs {
            stacks += 1;
            outliving += share.kept;
            keeping += usize::from(share.kept * trained.all * 100 >= share.all * trained.kept * SHARE_OF_TRAINING);
        }
        outliving >= LEAST_KEPT
            && keeping >= LEAST_STACKS
            && keeping * 100 >= stacks * SHARE_OF_TRAINING
            && self.is_freed_from_its_end(device, call)
    }

    /// Whether the blocks that training keeps, other than the result, are freed in the reverse order of their allocation.
    fn is_freed_from_its_end(&self, device: &Device<'_>, call: &ModelCall) -> bool {
        let is_needed = |index: u32| {
            let inside = inside(device, device.track.stack_of(index as usize), call.line);
            self.saved.get(&inside).is_some_and(|share| share.kept > 0)
        };
        let kept =
            born_in(device, call.start, call.end).filter(|&(index, made)| made.freed > call.end && is_needed(index));
        let mut freed: Vec<Instant> = kept.map(|(_, made)| made.freed).collect();
        freed.pop();
        freed.retain(|&at| at != NEVER);
        freed.truncate(MOST_COMPARED);
        let pairs = freed.len() * freed.len().saturating_sub(1) / 2;
        let reversed = |(place, at): (usize, &Instant)| freed[place + 1..].iter().filter(|&later| later < at).count();
        freed.iter().enumerate().map(reversed).sum::<usize>() * 100 >= pairs * SHARE_REVERSED
    }
}
