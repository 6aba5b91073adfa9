//! Infers the iterations of a program's loop, if no annotation names them.
//!
//! A training loop runs forward, backward and optimizer in each iteration, so its iterations can be counted by backward
//! passes and optimizer steps that repeatedly come from one place. An inference loop calls its model from outside every
//! module, and between two calls, other lines of its functions run. Repetitions within one phase (layers in a forward,
//! parameters in an optimizer) are not iterations of such a loop, however regular they are.

use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::facts::training::{Call, CallPaths, Calls, Phase, Phases, PlaceId, Role, Roles};
use crate::model::{Action, Format, FrameId, StrId};
use crate::replay::{Instant, Track};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;

/// The event that marks an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterationKind {
    /// An optimizer step after one backward pass or several.
    Optimizer,
    /// A backward pass, if there is no optimizer step.
    Backward,
    /// A call of a model, if there is no backward pass.
    Forward,
    /// A repeated place, if there is neither a model nor a backward pass. Such a loop can be anything.
    Loop,
}

/// The iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Iterations {
    pub kind: IterationKind,
    /// The instants at which they end.
    pub ends: Vec<Instant>,
    /// The place in the loop that calls the marking event.
    pub place: Option<PlaceId>,
    /// The name of the ranges that end them, if each iteration has one with the same name.
    pub range: Option<StrId>,
}

/// A backward pass, with the forward before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Where it is called; if that is not recorded, where its forward is called.
    place: Option<PlaceId>,
    /// Entries of the backward pass.
    pub entries: Range<u32>,
    /// The instant after its last allocation.
    end: Instant,
    /// The end of an optimizer step that follows it.
    closed: Option<Instant>,
    /// The range of that step.
    range: Option<StrId>,
}

/// A range of an optimizer's `step`, by instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepRange {
    pub name: StrId,
    pub end: Instant,
}

/// Fewer calls of a model are not a loop: some programs make two or three from one place without a loop.
const MIN_FORWARDS: usize = 4;

/// Least number of iterations of a loop without a model.
const MIN_LOOP: usize = 16;

/// One device's history, and what its stacks show.
pub(crate) struct IterationFinder<'a> {
    pub track: Track<'a>,
    pub sites: &'a Sites<'a>,
    pub roles: &'a Roles,
    pub call_paths: &'a CallPaths,
    pub phases: &'a Phases,
}

impl IterationFinder<'_> {
    /// The backward passes of a recording. `ranges` are those of optimizers, in order.
    pub(crate) fn passes(&self, ranges: &[StepRange]) -> Vec<Pass> {
        let mut passes: Vec<Pass> = Vec::new();
        // Where the forward before the next backward pass is called.
        let (mut forward, mut has_forward) = (None, false);
        for span in &self.phases.spans {
            let entries = span.start..span.end;
            match (span.phase, passes.last_mut()) {
                (Phase::Forward, _) => {
                    has_forward = true;
                    forward = forward.or_else(|| self.place_of(entries, Role::Module));
                }
                (Phase::Backward, Some(last)) if !has_forward => {
                    last.end = self.last_alloc(entries).unwrap_or(last.end);
                    last.entries.end = span.end;
                }
                (Phase::Backward, _) => {
                    let place = self.place_of(entries.clone(), Role::Backward).or(forward);
                    let end = self.last_alloc(entries.clone()).unwrap_or(span.start);
                    passes.push(Pass { place, entries, end, closed: None, range: None });
                    (forward, has_forward) = (None, false);
                }
                // Gradients may be cleared anywhere; after a forward, they are cleared for the next backward pass.
                (Phase::Optimizer, Some(last)) if !has_forward => {
                    let end = self.last_alloc(entries);
                    last.closed = end.or(last.closed).or(Some(last.end));
                }
                _ => {}
            }
        }
        for range in ranges {
            let before = passes.partition_point(|pass| pass.entries.start < range.end);
            if let Some(pass) = before.checked_sub(1).and_then(|index| passes.get_mut(index)) {
                (pass.closed, pass.range) = (Some(range.end), Some(range.name));
            }
        }
        passes
    }

    /// The iterations of the loop that runs these passes, or, if there are none, of a loop that only calls a model.
    pub(crate) fn iterations(&self, passes: &[Pass]) -> Option<Iterations> {
        if passes.is_empty() { self.forwards() } else { training(passes) }
    }

    /// The place of the first allocation with a role and a known place.
    fn place_of(&self, entries: Range<u32>, role: Role) -> Option<PlaceId> {
        self.allocs(entries).find_map(|entry| {
            let stack = self.track.stack(entry);
            (self.roles.role(stack) == role).then(|| self.call_paths.place(stack)).flatten()
        })
    }

    fn last_alloc(&self, entries: Range<u32>) -> Option<Instant> {
        self.allocs(entries).next_back().map(|entry| entry + 1)
    }

    /// Allocations among entries.
    fn allocs(&self, entries: Range<u32>) -> impl DoubleEndedIterator<Item = u32> {
        let actions = self.track.actions();
        entries.filter(|&entry| actions.get(entry as usize) == Some(&Action::Alloc))
    }

    /// The iterations of a loop that calls a model from outside every module. Layers may be called from plain functions, too:
    /// then they are PyTorch's own modules, or modules of other code are called before and after them, and no loop is
    /// reported. If nothing is called that could be a model, the iterations of a loop that fills the recording.
    fn forwards(&self) -> Option<Iterations> {
        let visits = self.visits();
        let is_model = visits.values().any(|visits| visits.calls_model);
        // If annotations name a forward phase, another loop is not evidence. Lines in traces are those of definitions.
        let has_forward = self.phases.spans.iter().any(|span| span.phase == Phase::Forward);
        if !is_model && (has_forward || self.track.snapshot.notes.format == Format::ProfilerTrace) {
            return None;
        }
        let (kind, least) =
            if is_model { (IterationKind::Forward, MIN_FORWARDS) } else { (IterationKind::Loop, MIN_LOOP) };
        let counts = |visits: &Visits| visits.calls_model == is_model;
        let (loops, others): (Vec<_>, Vec<_>) =
            visits.iter().filter(|(_, visits)| counts(visits)).partition(|(_, visits)| visits.ends.len() >= least);
        let called: HashSet<FrameId> = loops.iter().flat_map(|(_, visits)| visits.callees.iter().copied()).collect();
        let is_layer = |callee: &FrameId| self.sites.kind(*callee) == FrameKind::Torch;
        if is_model && called.iter().any(is_layer) {
            return None;
        }
        // A loop that moves each module to the device before calling it goes through the layers of a model.
        let least_moves = loops.iter().map(|(_, visits)| visits.ends.len()).min().unwrap_or(0);
        if is_model && visits.values().any(|visits| visits.moves_module && visits.ends.len() >= least_moves) {
            return None;
        }
        if is_model && others.iter().any(|(_, visits)| visits.callees.iter().all(|callee| !called.contains(callee))) {
            return None;
        }
        let mut order: Vec<(usize, PlaceId)> = Vec::new();
        for (place, visits) in &loops {
            order.extend(visits.ends.iter().map(|&(number, _)| (number, **place)));
        }
        order.sort_unstable();
        let places: Vec<PlaceId> = order.iter().map(|&(_, place)| place).collect();
        let (mut ends, mut last) = (Vec::new(), None);
        for group in once_per_iteration(&places) {
            let &place = places.get(*group.first()?)?;
            if kind == IterationKind::Loop && !fills(&visits, group.len()) {
                return None;
            }
            ends.extend(iteration_ends(&visits, &visits[&place].ends));
            last = Some(place);
        }
        (!ends.is_empty()).then_some(Iterations { kind, ends, place: last, range: None })
    }

    /// Repeated calls of one model from one place, if there is no other evidence of a loop: at least two calls, all alike,
    /// with most of what forward allocates. For recordings without a backward pass.
    pub(crate) fn model_calls(&self) -> Option<Iterations> {
        let moves = self.track.stacks().iter().any(|&stack| self.roles.moves_module(stack));
        if moves || !self.track.snapshot.notes.format.has_segments() {
            return None;
        }
        let calls = Calls::of(self.track, self.phases, self.sites, self.roles);
        let mut outermost: Vec<&Call> = Vec::new();
        for call in &calls.calls {
            if outermost.last().is_none_or(|last| last.end <= call.start) {
                outermost.push(call);
            }
        }
        let function = outermost.first()?.function;
        let is_layer = self.sites.kind(calls.function(function)?.frame) == FrameKind::Torch;
        if is_layer || outermost.len() < MIN_CALLS || outermost.iter().any(|call| call.function != function) {
            return None;
        }
        let place_of = |call: &&Call| self.place_of(call.start..call.end, Role::Module);
        let place = place_of(outermost.first()?)?;
        if outermost.iter().any(|call| place_of(call) != Some(place)) {
            return None;
        }
        let made: Vec<usize> = outermost.iter().map(|call| self.allocs(call.start..call.end).count()).collect();
        let (least, most) = (made.iter().min()?, made.iter().max()?);
        let in_forward = self.phases.spans.iter().filter(|span| span.phase == Phase::Forward);
        let all: usize = in_forward.map(|span| self.allocs(span.start..span.end).count()).sum();
        let are_alike = most * (ALL_BUT_ONE - 1) <= least * ALL_BUT_ONE;
        let are_most = made.iter().sum::<usize>() * ALL_BUT_ONE >= all * (ALL_BUT_ONE - 1);
        (are_alike && are_most).then(|| Iterations {
            kind: IterationKind::Forward,
            ends: outermost.iter().map(|call| call.end).collect(),
            place: Some(place),
            range: None,
        })
    }

    /// Repeated visits of the program to places outside its modules.
    fn visits(&self) -> HashMap<PlaceId, Visits, RandomState> {
        let mut line_changes = LineChanges::new(self.call_paths);
        let mut visits: HashMap<PlaceId, Visits, RandomState> = HashMap::default();
        let (mut at, mut changes, mut number) = (None, 0, 0);
        for entry in self.allocs(0..self.track.entries()) {
            let stack = self.track.stack(entry);
            let Some(place) = self.call_paths.place(stack) else { continue };
            if at != Some(place) {
                changes = line_changes.arrive(place);
                at = Some(place);
            }
            let visits = visits.entry(place).or_default();
            number += visits.visit(changes, number, entry + 1);
            visits.moves_module |= self.roles.moves_module(stack);
            if self.roles.role(stack) == Role::Module {
                visits.calls_model = true;
                visits.callees.extend(self.call_paths.callee(stack));
            }
        }
        visits
    }
}

/// The least calls of a model that are a loop.
const MIN_CALLS: usize = 2;

/// All except one of this many visits are to places of the loop, if the loop fills a recording.
const ALL_BUT_ONE: usize = 10;

/// Whether nine in ten visits are to places that are visited as often as the loop iterates.
fn fills(visits: &HashMap<PlaceId, Visits, RandomState>, iterations: usize) -> bool {
    let all: usize = visits.values().map(|visits| visits.ends.len()).sum();
    let of_loop: usize = visits.values().map(|visits| visits.ends.len()).filter(|&times| times == iterations).sum();
    of_loop * ALL_BUT_ONE >= all * (ALL_BUT_ONE - 1)
}

/// The ends of iterations, each of which starts with one of these visits: after the last place that each iteration visits
/// once.
fn iteration_ends(visits: &HashMap<PlaceId, Visits, RandomState>, begins: &[(usize, Instant)]) -> Vec<Instant> {
    let takes_turns = |ends: &[(usize, Instant)]| {
        let after = begins.iter().zip(ends).all(|(begin, end)| begin.0 <= end.0);
        after && begins[1..].iter().zip(ends).all(|(next, end)| end.0 < next.0)
    };
    let each_once = visits.values().map(|visits| visits.ends.as_slice()).filter(|ends| ends.len() == begins.len());
    let last = each_once.filter(|ends| takes_turns(ends)).max_by_key(|ends| ends.last().map(|&(number, _)| number));
    last.unwrap_or(begins).iter().map(|&(_, end)| end).collect()
}

/// The iterations of a training loop. A single pass does not need a loop: it is one step.
fn training(passes: &[Pass]) -> Option<Iterations> {
    let mut closing: Vec<usize> = (0..passes.len()).filter(|&index| passes[index].closed.is_some()).collect();
    let kind = if closing.is_empty() { IterationKind::Backward } else { IterationKind::Optimizer };
    let gaps = closing.windows(2).map(|pair| pair[1] - pair[0]);
    let most = gaps.chain(closing.first().map(|&first| first + 1)).max().unwrap_or(1);
    match closing.last() {
        None => closing = (0..passes.len()).collect(),
        // An optimizer whose state exists may run without any allocation that would show it.
        Some(&last) if passes.len() - 1 - last > most => {
            closing.extend((last + most..passes.len()).step_by(most));
        }
        // The gradients of the last passes were not used by an optimizer step yet.
        Some(_) => {}
    }
    let places: Vec<Option<PlaceId>> = closing.iter().map(|&index| passes[index].place).collect();
    let chosen = if places.len() == 1 { vec![0] } else { once_per_iteration(&places).concat() };
    let passes: Vec<&Pass> = chosen.into_iter().map(|index| &passes[closing[index]]).collect();
    let last = passes.last()?;
    let range = last.range.filter(|name| passes.iter().all(|pass| pass.range == Some(*name)));
    let ends = passes.iter().map(|pass| pass.closed.unwrap_or(pass.end)).collect();
    Some(Iterations { kind, ends, place: last.place, range })
}

/// An event that is this many times rarer than another one is not an event of the loop.
const TOO_RARE: usize = 10;

/// From events in order, the indexes of the event that occurs once in each iteration of a loop, loop after loop. If several
/// alternating events are possible, the rarest counts; an event that occurs less than a tenth as often as another has other
/// reasons. Consecutive loops are separate, and an event that never repeats belongs to none.
fn once_per_iteration<T: Copy + Eq + Hash>(events: &[T]) -> Vec<Vec<usize>> {
    let mut of_event: HashMap<T, Vec<usize>, RandomState> = HashMap::default();
    for (index, &event) in events.iter().enumerate() {
        of_event.entry(event).or_default().push(index);
    }
    let mut repeated: Vec<Vec<usize>> = of_event.into_values().filter(|indexes| indexes.len() > 1).collect();
    repeated.sort_unstable();
    let mut chosen = Vec::new();
    let mut next = 0;
    while next < repeated.len() {
        // All events that overlap with each other.
        let first = next;
        let mut end = 0;
        while let Some(indexes) = repeated.get(next).filter(|indexes| next == first || indexes[0] < end) {
            end = end.max(*indexes.last().unwrap_or(&0));
            next += 1;
        }
        let group = &repeated[first..next];
        let most = group.iter().map(Vec::len).max().unwrap_or(0);
        let rarest =
            group.iter().filter(|indexes| indexes.len() * TOO_RARE >= most).min_by_key(|indexes| indexes.len());
        chosen.extend(rarest.cloned());
    }
    chosen
}

/// The visits to a place.
#[derive(Clone, Debug, Default)]
struct Visits {
    /// Number of line changes up to the latest visit.
    changes: u64,
    /// For each visit, its number among the visits of all places, and the instant after its last allocation.
    ends: Vec<(usize, Instant)>,
    /// Whether modules are called there.
    calls_model: bool,
    /// Whether a module is moved there.
    moves_module: bool,
    /// The code of the called modules.
    callees: HashSet<FrameId, RandomState>,
}

impl Visits {
    /// Adds an allocation; returns 1 if it is the first one of a visit, otherwise 0.
    fn visit(&mut self, changes: u64, order: usize, end: Instant) -> usize {
        match self.ends.last_mut() {
            Some(last) if self.changes == changes => {
                last.1 = end;
                0
            }
            _ => {
                self.changes = changes;
                self.ends.push((order, end));
                1
            }
        }
    }
}

/// For each function call outside all phases, its current line, and how often the line has changed.
struct LineChanges<'a> {
    call_paths: &'a CallPaths,
    calls: Vec<(Option<FrameId>, u64)>,
}

impl<'a> LineChanges<'a> {
    fn new(call_paths: &'a CallPaths) -> Self {
        Self { call_paths, calls: vec![(None, 0); call_paths.calls()] }
    }

    /// Moves to a place and returns how often the lines of its frames have changed so far: more than at the last visit if
    /// another line of any of them ran in between.
    fn arrive(&mut self, place: PlaceId) -> u64 {
        let mut changes = 0;
        for (frame, call) in self.call_paths.frames(place) {
            let Some((line, changed)) = self.calls.get_mut(call) else { continue };
            if *line != Some(frame) {
                *changed += 1;
            }
            *line = Some(frame);
            changes += *changed;
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(place: u32, closed: bool, at: u32) -> Pass {
        let closed = closed.then_some(at + 5);
        Pass { place: Some(PlaceId::numbered(place)), entries: at..at + 3, end: at + 3, closed, range: None }
    }

    fn steps(passes: &[(u32, bool)]) -> usize {
        let passes: Vec<Pass> =
            (0..).step_by(10).zip(passes).map(|(at, &(place, closed))| pass(place, closed, at)).collect();
        training(&passes).map_or(0, |iterations| iterations.ends.len())
    }

    #[test]
    fn a_training_step_ends_with_its_optimizer() {
        assert_eq!(steps(&[(1, true)]), 1, "one step needs no loop");
        assert_eq!(steps(&[(1, false)]), 1, "nor an optimizer");
        assert_eq!(steps(&[(1, true); 5]), 5);
        assert_eq!(steps(&[(1, false); 5]), 5);
        assert_eq!(steps(&[(1, true), (2, true), (3, true)]), 0, "three lines are no loop");
    }

    #[test]
    fn micro_batches_are_no_steps() {
        let one = [(1, false), (1, false), (1, false), (1, true)];
        assert_eq!(steps(&one), 1);
        assert_eq!(steps(&one.repeat(3)), 3);
        assert_eq!(steps(&[&one.repeat(2)[..], &one[..2]].concat()), 2, "the third is not finished");
    }

    #[test]
    fn an_optimizer_that_allocates_once_ends_every_step() {
        assert_eq!(steps(&[&[(1, true)][..], &[(1, false); 7]].concat()), 8);
        let micro = [&[(1, false), (1, true)][..], &[(1, false); 6]].concat();
        assert_eq!(steps(&micro), 4);
    }

    #[test]
    fn alternating_models_are_one_step() {
        assert_eq!(steps(&[(1, true), (2, true)].repeat(6)), 6);
        let critic = [(1, true), (1, true), (1, true), (1, true), (1, true), (2, true)];
        assert_eq!(steps(&critic.repeat(4)), 4);
        // A warm-up loop and the main loop.
        assert_eq!(steps(&[&[(1, true); 2][..], &[(2, true); 5]].concat()), 7);
        assert_eq!(steps(&[&[(1, true)][..], &[(2, true); 5]].concat()), 5);
    }
}
