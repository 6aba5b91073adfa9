//! The calls of a model by code outside of modules: from the first allocation of a call to the first entry after its return.

use super::model_functions::ModelFunctions;
use crate::facts::device::Device;
use crate::facts::grouping::private_pools::private_blocks;
use crate::facts::training::{CallPaths, Category, Phase, PlaceId, Role};
use crate::model::{Action, FrameId, PoolId, StackId};
use crate::replay::{Allocation, Instant};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// If a call keeps a graph, at least this many blocks of its first half outlive it, and at least this share of them,
/// in percent. Under `no_grad`, only results do, and a cache of keys and values, which keeps two of about a dozen.
const LEAST_KEPT: usize = 4;
const LEAST_SHARE: usize = 30;
/// The most blocks that a small network allocates.
const MOST_OF_SMALL: usize = 4 * LEAST_KEPT;
/// Activations of a small network are at most so many times smaller than the largest.
const PART_OF_ACTIVATION: u64 = 8;
/// Only blocks of at least 1/N of the largest one count.
const PART_OF_LARGEST: u64 = 1000;
/// If a call keeps the graph that training keeps, this many of its blocks from stacks that allocate memory for backward outlive it, and
/// this share of them in percent: a model that returns some of them keeps these under `no_grad` as well.
const LEAST_OF_TRAINING: usize = 3;
/// How many of the last calls before a backward pass are searched for the one that it belongs to.
const LOOKED_AT: usize = 8;
const SHARE_OF_TRAINING: usize = 90;

#[derive(Clone, Debug)]
pub(super) struct ModelCall {
    /// The line that calls the model, and its callers.
    pub place: PlaceId,
    pub line: FrameId,
    /// The instant before its first entry.
    pub start: Instant,
    pub end: Instant,
    /// The instant at which the next call of a model begins, from whichever line; the end of the recording for the last one.
    pub until: Instant,
    /// The end of the interval in which blocks may belong to the graph of the call: if no backward pass covers it,
    /// calls from other lines may use its results.
    pub scope: Instant,
    /// Entries of the backward passes that start before then.
    pub backward: Option<Range<Instant>>,
    /// Whether a backward pass that frees no graph follows, which may go through this call: see [`mark_retained`].
    pub is_retained: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModelCalls {
    pub all: Vec<ModelCall>,
    /// Blocks of private pools, which do not belong to a call.
    pub private: HashMap<u32, PoolId>,
    /// Where models allocate memory that a backward pass frees: the frames inside the line that calls the model.
    needed: HashSet<Vec<FrameId>>,
    functions: Option<ModelFunctions>,
}

impl ModelCalls {
    pub fn of(device: &Device<'_>) -> Self {
        let roles = device.roles();
        Self::along(device, &CallPaths::of(device.sites(), roles), |stack| roles.role(stack))
    }

    /// The calls of the user's functions that training differentiates, in a program without modules.
    pub fn of_functions(device: &Device<'_>) -> Self {
        let Some(mut functions) = ModelFunctions::of(device) else { return Self::default() };
        let paths = functions.paths(device);
        let mut calls = Self::along(device, &paths, |stack| functions.role(device, &paths, stack));
        functions.learn(device, calls.all.iter().filter(|call| call.is_trained(device)));
        calls.functions = Some(functions);
        calls
    }

    /// The calls of what is a module by its role.
    fn along(device: &Device<'_>, paths: &CallPaths, role: impl Fn(StackId) -> Role) -> Self {
        let (track, phases) = (device.track, device.phases());
        let private = private_blocks(track);
        let links = &track.history.links;
        // A captured call keeps its memory for replays, independently of Python.
        let is_captured = |entry: u32| {
            !private.is_empty() && links.get(entry as usize).is_some_and(|block| private.contains_key(block))
        };
        let mut all: Vec<ModelCall> = Vec::new();
        let of_stack = |id: u32| (role(StackId(id)), paths.place(StackId(id)));
        let of_stack: Vec<(Role, Option<PlaceId>)> = (0..device.snapshot().stacks.len() as u32).map(of_stack).collect();
        // The place of the open call.
        let mut open: Option<PlaceId> = None;
        let mut lines = Lines::of(device);
        for (entry, (&action, &stack)) in (0..).zip(track.actions().iter().zip(track.stacks())) {
            let is_alloc = action == Action::Alloc;
            if !(is_alloc || action == Action::FreeRequested && phases.frees_tell) {
                continue;
            }
            let (role, place) = of_stack.get(stack.index()).copied().unwrap_or((Role::Silent, None));
            // Most entries belong to the open call.
            let is_of_module = role == Role::Module;
            if is_of_module && !is_alloc || is_captured(entry) {
                continue;
            }
            if is_of_module && open.is_some() && open == place {
                lines.go_on(&mut all, stack);
                continue;
            }
            let backward = phases.span(entry).filter(|span| span.phase == Phase::Backward);
            match role {
                Role::Module if backward.is_none() => {
                    let Some(place) = place else { continue };
                    if lines.is_continued(&all, place, stack) {
                        open = Some(place);
                        lines.join(&mut all, entry, stack);
                        continue;
                    }
                    let frames = || paths.frames(place).map(|(frame, _)| frame);
                    let own = frames().find(|&frame| device.sites().is_own(frame));
                    let Some(line) = own.or_else(|| frames().next()) else { continue };
                    if let Some(last) = all.last_mut() {
                        last.end = if open.is_some() { entry } else { last.end };
                        last.until = entry;
                    }
                    open = Some(place);
                    all.push(ModelCall {
                        place,
                        line,
                        start: entry,
                        end: track.entries(),
                        until: track.entries(),
                        scope: track.entries(),
                        backward: None,
                        is_retained: false,
                    });
                    lines.begin(&all, stack);
                }
                Role::Module => {}
                Role::Silent if backward.is_none() => {}
                _ => {
                    let Some(last) = all.last_mut() else { continue };
                    if open.take().is_some() {
                        last.end = entry;
                    }
                    if let Some(backward) = backward.filter(|backward| backward.start >= last.start) {
                        let until = last.backward.as_ref().map_or(0, |known| known.end).max(backward.end);
                        last.backward.get_or_insert(backward.start..until).end = until;
                    }
                }
            }
        }
        give_passes_to_their_calls(device, &mut all);
        mark_retained(device, &mut all);
        let trained: Vec<bool> = all.iter().map(|call| call.is_trained(device)).collect();
        // For each call, the next call with a backward pass.
        let mut next_trained = track.entries();
        for (place, &is_trained) in trained.iter().enumerate().rev() {
            let call = &mut all[place];
            (call.scope, next_trained) =
                if is_trained { (call.until, call.start) } else { (next_trained, next_trained) };
        }
        let mut needed = HashSet::new();
        if trained.contains(&true) && trained.contains(&false) {
            for call in all.iter().zip(&trained).filter(|(_, is_trained)| **is_trained).map(|(call, _)| call) {
                let made = born_in(device, call.start, call.end);
                let of_backward =
                    made.filter(|(_, made)| made.freed > call.end && phases.at(made.freed) == Phase::Backward);
                let stacks: HashSet<StackId> = of_backward.map(|(index, _)| track.stack_of(index as usize)).collect();
                needed.extend(stacks.into_iter().map(|stack| inside(device, stack, call.line)));
            }
        }
        Self { all, private, needed, functions: None }
    }

    /// Whether a call without a backward pass keeps memory for one: as much as a large graph, or as the graph of training.
    pub fn keeps_graph(&self, device: &Device<'_>, call: &ModelCall) -> bool {
        match &self.functions {
            Some(functions) => functions.keeps_graph(device, call),
            None => call.keeps_graph(device) || self.keeps_what_training_needs(device, call),
        }
    }

    /// The frames of the functions that these calls call, if they call no modules.
    pub fn functions(&self) -> Option<&HashSet<FrameId>> {
        self.functions.as_ref().map(|functions| &functions.frames)
    }

    fn keeps_what_training_needs(&self, device: &Device<'_>, call: &ModelCall) -> bool {
        if self.needed.is_empty() {
            return false;
        }
        // Blocks that each stack allocates, and how many outlive the call: temporaries may have the same stack.
        let mut of_stack: HashMap<StackId, (usize, usize)> = HashMap::new();
        for (index, made) in born_in(device, call.start, call.end) {
            let (all, outlive) = of_stack.entry(device.track.stack_of(index as usize)).or_default();
            *all += 1;
            *outlive += usize::from(made.freed > call.end);
        }
        of_stack.retain(|&stack, _| self.needed.contains(&inside(device, stack, call.line)));
        let (all, outlive) = of_stack.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let outliving = of_stack.values().filter(|(_, outlive)| *outlive > 0).count();
        outlive >= LEAST_OF_TRAINING && outlive * 2 >= all && outliving * 100 >= of_stack.len() * SHARE_OF_TRAINING
    }

    /// The same calls, where a call without a backward pass of its own has the next one if that frees its graph: with
    /// `criterion(model(x))` on two lines, the pass belongs to the call of the criterion.
    pub fn with_shared_passes(&self, device: &Device<'_>) -> Self {
        let mut shared = self.clone();
        for (place, call) in shared.all.iter_mut().enumerate().filter(|(_, call)| call.backward.is_none()) {
            let next = self.all[place + 1..].iter().take(LOOKED_AT).find_map(|later| later.backward.clone());
            call.backward = next.filter(|pass| call.is_freed_by(device, pass, LEAST_KEPT));
        }
        shared
    }

    pub fn passes(&self) -> Vec<Range<Instant>> {
        self.all.iter().filter_map(|call| call.backward.clone()).collect()
    }

    /// The calls of each line, in order; the lines are in the order of their first calls.
    pub fn by_place(&self) -> Vec<Vec<&ModelCall>> {
        let mut places: HashMap<PlaceId, usize> = HashMap::new();
        let mut calls: Vec<Vec<&ModelCall>> = Vec::new();
        for call in &self.all {
            let place = *places.entry(call.place).or_insert_with(|| {
                calls.push(Vec::new());
                calls.len() - 1
            });
            calls[place].push(call);
        }
        calls
    }
}

impl ModelCall {
    /// Whether a backward pass covers a call: one frees its blocks, starts before any other call does, or retains graphs.
    pub fn is_trained(&self, device: &Device<'_>) -> bool {
        let phases = device.phases();
        self.backward.is_some()
            || self.is_retained
            || born_in(device, self.start, self.end)
                .any(|(_, made)| made.freed > self.end && phases.at(made.freed) == Phase::Backward)
    }

    /// Whether a backward pass frees at least so many blocks of a call that outlive it.
    fn is_freed_by(&self, device: &Device<'_>, pass: &Range<Instant>, least: usize) -> bool {
        let is_freed = |made: &Allocation| made.freed > self.end && (pass.start + 1..=pass.end).contains(&made.freed);
        born_in(device, self.start, self.end).filter(|(_, made)| is_freed(made)).nth(least.saturating_sub(1)).is_some()
    }

    pub fn keeps_graph(&self, device: &Device<'_>) -> bool {
        let categories = device.categories();
        let is_cache = |index: u32| categories.get(index as usize).category == Category::KvCache;
        let own = born_in(device, self.start, self.end).filter(|&(index, _)| !is_cache(index));
        let mut made: Vec<Allocation> = own.map(|(_, made)| made).collect();
        // Masks and positions of transformers are many blocks without a graph.
        let largest = made.iter().map(|made| made.size).max().unwrap_or(0);
        made.retain(|made| made.size >= largest / PART_OF_LARGEST);
        let early = &made[..made.len() / 2];
        let kept = early.iter().filter(|made| made.freed > self.end).count();
        // A small network keeps all, apart from the workspaces that PyTorch 2.15 allocates for each product.
        let large: Vec<&Allocation> = made.iter().filter(|made| made.size >= largest / PART_OF_ACTIVATION).collect();
        let is_small = made.len() <= MOST_OF_SMALL && large.len() >= 2 * (LEAST_KEPT - 1);
        let is_small_graph = is_small && large[..large.len() / 2].iter().all(|made| made.freed > self.end);
        is_small_graph || kept >= LEAST_KEPT && kept * 100 >= early.len() * LEAST_SHARE
    }
}

/// Which modules the line of the last call has called. A line that calls a model may then call the module of a loss, and move
/// the targets in between: `criterion(model(x), y.to(device))` is one call. A line that runs again repeats the stacks of its call.
struct Lines {
    /// For each stack, twice the number of the call in which it last allocated; one more if the line called another module there.
    last: Vec<usize>,
    /// Where the line called another module, and the end of the call before that.
    joined: Option<(Instant, Instant)>,
}

impl Lines {
    fn of(device: &Device<'_>) -> Self {
        Self { last: vec![0; device.snapshot().stacks.len()], joined: None }
    }

    fn mark(&mut self, calls: usize, stack: StackId) {
        if let Some(last) = self.last.get_mut(stack.index()) {
            *last = calls * 2 + usize::from(self.joined.is_some());
        }
    }

    fn has(&self, calls: usize, stack: StackId) -> bool {
        self.last.get(stack.index()).is_some_and(|last| last / 2 == calls)
    }

    fn begin(&mut self, all: &[ModelCall], stack: StackId) {
        self.joined = None;
        self.mark(all.len(), stack);
    }

    /// Whether a module that is called here belongs to the last call.
    fn is_continued(&self, all: &[ModelCall], place: PlaceId, stack: StackId) -> bool {
        all.last().is_some_and(|last| last.place == place && last.backward.is_none()) && !self.has(all.len(), stack)
    }

    /// The line of the last call calls another module.
    fn join(&mut self, all: &mut [ModelCall], entry: Instant, stack: StackId) {
        let Some(last) = all.last_mut() else { return };
        self.joined.get_or_insert((entry, last.end));
        last.end = last.until;
        self.mark(all.len(), stack);
    }

    /// The last call goes on. If it repeats a stack, the line has run again.
    fn go_on(&mut self, all: &mut Vec<ModelCall>, stack: StackId) {
        let is_again = self.last.get(stack.index()) == Some(&(all.len() * 2));
        if let (true, Some((start, end)), Some(last)) = (is_again, self.joined, all.last_mut()) {
            let again = ModelCall { start, ..last.clone() };
            (last.end, last.until) = (end, start);
            all.push(again);
            self.joined = None;
        }
        self.mark(all.len(), stack);
    }
}

/// A backward pass usually belongs to the last call before it. If it frees nothing of that call, but much of an earlier one, it
/// belongs to the earlier one: the last call may be that of a teacher, or its result may be detached.
fn give_passes_to_their_calls(device: &Device<'_>, all: &mut [ModelCall]) {
    for place in 1..all.len() {
        let Some(pass) = all[place].backward.clone() else { continue };
        if all[place].is_freed_by(device, &pass, 1) {
            continue;
        }
        let earlier = (0..place).rev().take_while(|&earlier| all[earlier].backward.is_none());
        let owner = earlier.take(LOOKED_AT).find(|&earlier| all[earlier].is_freed_by(device, &pass, LEAST_KEPT));
        if let Some(owner) = owner {
            all[owner].backward = all[place].backward.take();
        }
    }
}

/// A backward pass with `retain_graph` frees nothing, so frees do not show which calls it goes through: it may go through every
/// call since the pass before it that keeps a graph beyond it.
fn mark_retained(device: &Device<'_>, all: &mut [ModelCall]) {
    for place in 1..all.len() {
        let Some(pass) = all[place].backward.clone() else { continue };
        let earlier = (0..place).rev().take_while(|&earlier| all[earlier].backward.is_none());
        let earlier: Vec<usize> = earlier.take(LOOKED_AT).collect();
        if [place].iter().chain(&earlier).any(|&call| all[call].is_freed_by(device, &pass, 1)) {
            continue;
        }
        for call in earlier {
            let made = born_in(device, all[call].start, all[call].end);
            all[call].is_retained |= made.filter(|(_, made)| made.freed > pass.end).count() >= LEAST_KEPT;
        }
    }
}

pub(super) fn inside(device: &Device<'_>, stack: StackId, line: FrameId) -> Vec<FrameId> {
    device.snapshot().stacks.frame_ids(stack).iter().copied().take_while(|&frame| frame != line).collect()
}

/// The allocations after an instant and up to another one, with their indices.
pub(super) fn born_in<'d>(
    device: &'d Device<'_>,
    from: Instant,
    to: Instant,
) -> impl Iterator<Item = (u32, Allocation)> + 'd {
    let all = &device.history().allocations;
    let first = device.history().born_after(from);
    let end = device.history().born_after(to).max(first);
    (first as u32..).zip(all[first..end].iter().copied())
}
