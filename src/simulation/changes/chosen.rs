//! Calls that the user selects for checkpointing, rather than calls found by a search.

use super::passes::Passes;
use super::recompute::{Recompute, RecomputeTables, Recomputing, is_recurrent};
use crate::facts::device::Device;
use crate::facts::training::{Call, Calls, ForwardFunction, FunctionId, Phase};
use crate::model::FrameId;
use crate::parallel;
use crate::replay::{Instant, Metric, Track};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct Choice {
    pub(super) calls: Calls,
    pub(super) passes: Passes,
    /// Functions that forward passes call, not checkpointed yet, with their labels.
    functions: Vec<(FunctionId, String)>,
    tables: RecomputeTables,
    /// The effect of checkpointing each call, computed when it is first needed.
    recomputes: Vec<OnceLock<Option<Arc<Recompute>>>>,
}

/// Calls whose recomputation a thread finds at a time.
const PORTION: usize = 16;

/// Calls are unequal if one keeps at least this many times as much as another.
const UNEVEN: u64 = 2;

/// Calls that are checkpointed together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    /// The calls, in the order of their starts; no call contains another.
    pub calls: Vec<Arc<Recompute>>,
    /// Whether they contain other selected calls.
    pub is_nested: bool,
    /// Workspaces that the engine's thread allocates.
    pub workspaces: Vec<Workspace>,
}

impl Chosen {
    /// The calls that were recomputed before an instant.
    pub fn until(&self, until: Instant) -> Self {
        let calls = self.calls.iter().filter(|call| call.end_of_use() <= until);
        Self { calls: calls.cloned().collect(), ..self.clone() }
    }

    /// Why reserved memory is uncertain: calls at several resolutions, such as those of a U-Net, fit the free segments
    /// of the others in different ways.
    pub fn unevenness(&self) -> Option<&'static str> {
        let kept = |call: &Arc<Recompute>| call.gaps.iter().map(|gap| gap.bytes).fold(0, u64::saturating_add);
        let (least, most) = (self.calls.iter().map(kept).min()?, self.calls.iter().map(kept).max()?);
        (most / UNEVEN > least)
            .then_some("calls keep blocks of different sizes, so it is uncertain which free segments they will use")
    }
}

/// A workspace that the engine's thread allocates when it runs an operator for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// The corresponding workspace of forward, as an index into [`crate::replay::History::allocations`].
    pub like: u32,
    /// The first block that the operator allocates when its call is recomputed.
    pub behind: Option<u32>,
}

/// The time between the last use of a block in forward and its use in backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// The block, as an index into [`crate::replay::History::allocations`].
    pub allocation: u32,
    /// When the program frees it.
    pub released: Instant,
    /// When the backward node that frees it starts.
    pub needed: Instant,
}

impl Choice {
    pub fn of(device: &Device<'_>) -> Self {
        let (track, history, phases) = (device.track, device.history(), device.phases());
        let calls = whole(Calls::of(track, phases, device.sites(), device.roles()), track);
        let peak = history.maxima[Metric::Allocated as usize];
        let passes = Passes::of(phases, &calls, history, peak.instant);
        Self::with(device, calls, passes)
    }

    /// The functions of passes without a backward pass, given their calls.
    pub fn around(device: &Device<'_>, calls: Calls, entries: Vec<Range<u32>>) -> Self {
        let calls = whole(calls, device.track);
        Self::with(device, calls, Passes { forward: entries.clone(), entries, is_open: true })
    }

    fn with(device: &Device<'_>, calls: Calls, passes: Passes) -> Self {
        let is_open = |id: FunctionId| calls.of_function(id).any(|call| !call.checkpointed);
        let functions = calls.functions().filter(|&(id, _)| is_open(id));
        let functions = functions.map(|(id, function)| (id, device.sites().label(function.frame))).collect();
        let tables = RecomputeTables::of(device, &calls, &passes);
        let recomputes = calls.calls.iter().map(|_| OnceLock::new()).collect();
        Self { calls, passes, functions, tables, recomputes }
    }

    /// The functions with a label, or if there are none, those whose labels contain it.
    pub fn find(&self, site: &str) -> Vec<&(FunctionId, String)> {
        let equal: Vec<_> = self.functions.iter().filter(|(_, label)| label == site).collect();
        if !equal.is_empty() {
            return equal;
        }
        let has_end =
            |label: &str| label.strip_suffix(site).is_some_and(|before| before.is_empty() || before.ends_with('/'));
        let ending: Vec<_> = self.functions.iter().filter(|(_, label)| has_end(label)).collect();
        if !ending.is_empty() {
            return ending;
        }
        self.functions.iter().filter(|(_, label)| label.contains(site)).collect()
    }

    /// The labels of the functions that a forward pass calls more than once.
    pub fn repeated(&self) -> impl Iterator<Item = &str> {
        self.repeated_functions().map(|(_, label)| label)
    }

    pub fn repeated_functions(&self) -> impl Iterator<Item = (FunctionId, &str)> {
        let is_repeated = |id: FunctionId| self.passes.split(self.open_calls(id)).iter().any(|calls| calls.len() > 1);
        self.functions.iter().filter(move |&&(id, _)| is_repeated(id)).map(|(id, label)| (*id, label.as_str()))
    }

    /// Whether a function is one of PyTorch's basic modules, which other modules consist of: a single operator, or a
    /// container.
    pub fn is_shared(&self, function: FunctionId, device: &Device<'_>) -> bool {
        self.calls.function(function).is_some_and(|function| {
            let is_single = function.first_line == function.last_line && !is_recurrent(device.snapshot(), function);
            is_single && device.sites().package_of(function.frame) == "torch"
        })
    }

    /// The effect of checkpointing the first call of each function and every N-th call after it in a forward pass, of the
    /// calls that the recommended code counts. A call within a checkpointed call is recomputed with it, and is not
    /// checkpointed itself.
    pub fn recompute(&self, device: &Device<'_>, functions: &[(FunctionId, usize)]) -> Chosen {
        let recomputing = self.recomputing(device);
        let mut chosen: Vec<&Call> = Vec::new();
        for &(function, every) in functions {
            // Checkpointing a call that keeps nothing changes nothing: if all are chosen, it need not be left out.
            let passes = match every {
                ..=1 => self.passes.split(self.open_calls(function)),
                _ => self.counted_calls(&recomputing, function),
            };
            chosen.extend(passes.into_iter().flat_map(|calls| calls.into_iter().step_by(every.max(1))));
        }
        // An outer call comes before the calls inside it.
        let order = |call: &Call| (call.start, Reverse(call.end));
        chosen.sort_rows_by(|a, b| order(a).cmp(&order(b)).then_with(|| self.calls.place(a).cmp(&self.calls.place(b))));
        chosen.dedup();
        let mut over = 0;
        let all = chosen.len();
        chosen.retain(|call| {
            let is_outermost = call.start >= over;
            over = if is_outermost { call.end } else { over };
            is_outermost
        });
        let is_nested = chosen.len() < all;
        let first_step = self.passes.entries.get(1).map_or(device.history().entries(), |pass| pass.start);
        let likes = recomputing.workspaces(&chosen, first_step);
        let of_portion = |calls: &[&Call]| -> Vec<Option<Arc<Recompute>>> {
            calls.iter().map(|call| self.recompute_of(&recomputing, call)).collect()
        };
        let calls = parallel::map(chosen.chunks(PORTION), of_portion);
        let calls: Vec<Arc<Recompute>> = calls.into_iter().flatten().flatten().collect();
        let mut again: Vec<&Recompute> = calls.iter().map(Arc::as_ref).collect();
        again.sort_rows_by_key(|call| call.resume);
        let workspace = |like: u32| {
            let operator = recomputing.operator(like);
            let mut made = again.iter().flat_map(|call| call.born.clone());
            Workspace { like, behind: made.find(|&made| made != like && recomputing.operator(made) == operator) }
        };
        Chosen { is_nested, workspaces: likes.into_iter().map(workspace).collect(), calls }
    }

    /// When the program would release each of some blocks if nothing were kept for backward. This covers blocks that a
    /// call of a function allocated and that the outermost call does not return, in the order of their indexes.
    pub fn releases(&self, device: &Device<'_>, blocks: &[u32]) -> Vec<Release> {
        let recomputing = self.recomputing(device);
        let all = &self.calls.calls;
        let mut around: Vec<usize> = Vec::new();
        let mut calls = all.iter().enumerate().peekable();
        let mut releases = Vec::new();
        for &index in blocks {
            let entry = recomputing.allocation(index).born.saturating_sub(1);
            while let Some((place, call)) = calls.next_if(|(_, call)| call.start <= entry) {
                around.retain(|&outer| all[outer].end > call.start);
                around.push(place);
            }
            around.retain(|&place| all[place].end > entry);
            let freed = recomputing.allocation(index).freed;
            let Some(released) = recomputing.release(index, &around) else { continue };
            let released = recomputing.end_of_cast(index, freed).unwrap_or(released);
            let behind = device.phases().spans.partition_point(|span| span.end <= released);
            let later = device.phases().spans[behind..].iter().find(|span| span.phase == Phase::Backward);
            let begin = later.map_or(released, |span| span.start);
            let needed = if begin < freed && freed <= device.history().entries() {
                recomputing.begin_of_node(freed, begin)
            } else {
                freed
            };
            releases.push(Release { allocation: index, released, needed });
        }
        releases
    }

    pub fn function(&self, id: FunctionId) -> Option<&ForwardFunction> {
        self.calls.function(id)
    }

    pub fn has_functions(&self) -> bool {
        !self.calls.functions.is_empty()
    }

    /// The entry at which the forward pass after an instant starts.
    pub fn end_of_step(&self, instant: Instant, entries: u32) -> u32 {
        self.passes.end_of_step(instant, entries)
    }

    /// The effect of checkpointing single calls.
    pub(super) fn recomputing<'c>(&'c self, device: &'c Device<'_>) -> Recomputing<'c> {
        Recomputing::new(device, &self.calls, &self.passes, &self.tables)
    }

    /// The effect of checkpointing one call; `None` if it keeps nothing for backward.
    pub(super) fn recompute_of(&self, recomputing: &Recomputing<'_>, call: &Call) -> Option<Arc<Recompute>> {
        let place = self.calls.place(call)?;
        self.recomputes.get(place)?.get_or_init(|| recomputing.of(call).map(Arc::new)).clone()
    }

    /// The calls of a function in each pass that are not checkpointed yet and keep something for backward.
    pub(super) fn keeping_calls(&self, recomputing: &Recomputing<'_>, function: FunctionId) -> Vec<Vec<&Call>> {
        let mut passes = self.passes.split(self.open_calls(function));
        for calls in &mut passes {
            calls.retain(|call| self.recompute_of(recomputing, call).is_some());
        }
        passes
    }

    /// The calls that the recommended code counts: all from lines where some call keeps something for backward. So the blocks
    /// of a loop count even if the first ones are frozen, but not the calls of a teacher under `torch.no_grad()`.
    fn counted_calls(&self, recomputing: &Recomputing<'_>, function: FunctionId) -> Vec<Vec<&Call>> {
        let keeping = self.keeping_calls(recomputing, function);
        let callers: HashSet<Option<FrameId>> = keeping.iter().flatten().map(|call| call.caller).collect();
        let mut passes = self.passes.split(self.open_calls(function));
        for calls in &mut passes {
            calls.retain(|call| callers.contains(&call.caller));
        }
        passes
    }

    /// Calls of a function that are not checkpointed yet.
    pub(super) fn open_calls(&self, function: FunctionId) -> impl Iterator<Item = &Call> {
        self.calls.of_function(function).filter(|call| !call.checkpointed)
    }
}

/// Calls, without those of a single-line function that follow each other at one line of their caller: a long expression,
/// which allocates several blocks of one size, looks like many calls. PyTorch's recurrent layers are a single operator, so
/// this does not apply to their calls.
fn whole(calls: Calls, track: Track<'_>) -> Calls {
    let Calls { functions, calls, .. } = calls;
    let mut whole: Vec<Call> = Vec::with_capacity(calls.len());
    for call in calls {
        let is_expression = |function: &ForwardFunction| {
            function.first_line == function.last_line && !is_recurrent(track.snapshot, function)
        };
        let is_single = functions.get(call.function.index()).is_some_and(is_expression);
        let goes_on = |last: &&mut Call| {
            last.function == call.function
                && last.end == call.start
                && last.is_checkpoint == call.is_checkpoint
                && track.stack(last.start) == track.stack(call.start)
        };
        match whole.last_mut().filter(|_| is_single).filter(goes_on) {
            Some(last) => last.end = call.end,
            None => whole.push(call),
        }
    }
    Calls::new(functions, whole)
}
