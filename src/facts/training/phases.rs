//! The phase of each entry: forward, backward, optimizer or data.

use super::role::{Role, Roles};
use crate::facts::time::annotations::Annotations;
use crate::model::{Action, Format, StackId, StrId};
use crate::replay::{History, Instant, Track};
use serde::Serialize;
use std::collections::HashMap;

/// The part of a training step that an entry belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From the model's inputs to the loss.
    Forward,
    /// `backward()`, including recomputation.
    Backward,
    /// The optimizer, gradient scaling and clipping, `zero_grad`.
    Optimizer,
    /// Moving the inputs to the device.
    Data,
    /// Building the model, and everything else that is not part of a step or is unknown.
    #[default]
    Other,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 5] = [Self::Data, Self::Forward, Self::Backward, Self::Optimizer, Self::Other];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Data => "data",
            Self::Other => "other",
        }
    }

    /// The phase that the name of a `record_function` range implies: names that PyTorch itself writes
    /// (`Optimizer.step#AdamW.step`, `autograd::engine::evaluate_function`, `enumerate(DataLoader)#...`), and names that
    /// people usually choose.
    pub fn of_annotation(name: &str) -> Option<Self> {
        if name.starts_with("Optimizer.") {
            return Some(Self::Optimizer);
        }
        if name.starts_with("autograd::") {
            return Some(Self::Backward);
        }
        if name.starts_with("enumerate(DataLoader)") {
            return Some(Self::Data);
        }
        let lower = name.to_ascii_lowercase();
        let words = lower.split(|next: char| !next.is_ascii_alphanumeric());
        words.into_iter().find_map(|word| {
            // `forward2` and `backward_0` are forward and backward.
            match word.trim_end_matches(|next: char| next.is_ascii_digit()) {
                "forward" | "fwd" | "loss" => Some(Self::Forward),
                "backward" | "bwd" => Some(Self::Backward),
                "optimizer" | "optim" | "opt" => Some(Self::Optimizer),
                "data" | "dataload" | "dataloader" | "dataloading" => Some(Self::Data),
                _ => None,
            }
        })
    }
}

/// Consecutive entries of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The phase.
    pub phase: Phase,
    /// First entry, counted within the trace.
    pub start: u32,
    /// The entry after the last one.
    pub end: u32,
    /// Whether an annotation names it; otherwise it is inferred from stacks and the order of entries.
    pub recorded: bool,
}

/// The phases of one device, without gaps.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// In order; together they cover every entry.
    pub spans: Vec<PhaseSpan>,
    /// Index into [`Phases::spans`] of the first entry of each [`CHUNK`]: the span of another one is the same, or soon follows. A
    /// number for each entry would not stay in the processor's cache.
    of_chunk: Vec<u32>,
    /// Whether the stack of a free shows where it was freed. PyTorch 2.0 repeats the stack of the allocation there.
    pub frees_tell: bool,
}

/// Number of entries for which [`Phases`] stores one place.
const CHUNK: u32 = 64;

/// The evidence of one entry for its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    /// None: the entry belongs to the phase before it.
    None,
    /// Python code that runs before, between and after the phases: its neighbors decide.
    Plain,
    /// The same, in a function of `torch.nn.functional`: after a call of a module, it continues with the module's output.
    Functional,
    /// The same for a release: it does not move inputs to the device.
    Release,
    /// `zero_grad`, which programs may call anywhere in a step: it says nothing about its neighbors.
    ZeroGrad,
    /// A user's own `step`. After a backward pass it is an optimizer step; elsewhere it is plain code.
    Step,
    /// This phase.
    Sure(Phase),
}

impl Phases {
    /// Finds the phase of each entry: from annotations that name one, otherwise from stacks and order.
    pub fn of(track: Track<'_>, annotations: &Annotations, roles: &Roles) -> Self {
        let frees_tell = frees_tell(track);
        let hints = hints(track, roles, frees_tell);
        let mut phases = inferred(&hints);
        drop_busy_data(&mut phases, &hints, track);
        let spans = spans(&phases, &hints, &recorded(track, annotations));
        let spans = super::inner_backward::join(spans, track, roles);
        let mut of_chunk = Vec::with_capacity(track.actions().len().div_ceil(CHUNK as usize));
        for (index, span) in (0..).zip(&spans) {
            of_chunk.resize(span.end.div_ceil(CHUNK) as usize, index);
        }
        Self { spans, of_chunk, frees_tell }
    }

    /// The span of an entry.
    pub fn span(&self, entry: u32) -> Option<&PhaseSpan> {
        let first = *self.of_chunk.get((entry / CHUNK) as usize)?;
        self.spans.get(first as usize..)?.iter().find(|span| entry < span.end)
    }

    /// The phase of the entry that leads to an instant; [`Phase::Other`] before the first entry.
    pub fn at(&self, instant: Instant) -> Phase {
        let span = History::entry_before(instant).and_then(|entry| self.span(entry));
        span.map_or(Phase::Other, |span| span.phase)
    }

    /// Whether the recording contains a training step: a forward followed by a backward.
    pub fn has_training(&self) -> bool {
        let forward = self.spans.iter().position(|span| span.phase == Phase::Forward);
        forward.is_some_and(|first| self.spans[first..].iter().any(|span| span.phase == Phase::Backward))
    }
}

/// Consecutive entries with something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch<T> {
    what: T,
    /// The entry after the last one.
    end: u32,
}

/// Extends the last stretch up to an entry, or starts a new one.
fn extend<T: PartialEq>(stretches: &mut Vec<Stretch<T>>, what: T, end: u32) {
    match stretches.last_mut().filter(|last| last.what == what) {
        Some(last) => last.end = end,
        None => stretches.push(Stretch { what, end }),
    }
}

/// Combines inferred phases with those from annotations. Both have a stretch for each entry; the latter may be empty.
fn spans(phases: &[Stretch<Phase>], hints: &[Stretch<Hint>], recorded: &[Stretch<Option<Phase>>]) -> Vec<PhaseSpan> {
    let (mut hints, mut recorded) = (hints.iter().peekable(), recorded.iter().peekable());
    let mut spans: Vec<PhaseSpan> = Vec::new();
    let mut is_closure = false;
    let mut start = 0;
    for stretch in phases {
        while start < stretch.end {
            while recorded.next_if(|named| named.end <= start).is_some() {}
            let mut end = recorded.peek().map_or(stretch.end, |named| named.end.min(stretch.end));
            let named = recorded.peek().and_then(|named| named.what);
            // An optimizer may run a closure: the range around the closure does not make it a separate forward pass. Elsewhere, hints
            // show nothing that the phases do not.
            is_closure = is_closure && named == Some(Phase::Optimizer);
            if named == Some(Phase::Optimizer) {
                while hints.next_if(|hint| hint.end <= start).is_some() {}
                end = hints.peek().map_or(end, |hint| hint.end.min(end));
                is_closure = match hints.peek().map(|hint| hint.what) {
                    Some(Hint::Sure(phase)) => matches!(phase, Phase::Forward | Phase::Backward),
                    _ => is_closure,
                };
            }
            let named = named.filter(|_| !is_closure);
            let (phase, is_recorded) = (named.unwrap_or(stretch.what), named.is_some());
            match spans.last_mut().filter(|last| last.phase == phase && last.recorded == is_recorded) {
                Some(last) => last.end = end,
                None => spans.push(PhaseSpan { phase, start, end, recorded: is_recorded }),
            }
            start = end;
        }
    }
    spans
}

/// The phase of each entry from annotations; empty if they name no phase.
fn recorded(track: Track<'_>, annotations: &Annotations) -> Vec<Stretch<Option<Phase>>> {
    let snapshot = track.snapshot;
    let mut named: HashMap<StrId, Option<Phase>> = HashMap::new();
    for range in &annotations.ranges {
        named.entry(range.name).or_insert_with(|| Phase::of_annotation(snapshot.strings.get(range.name)));
    }
    if !snapshot.notes.has_times || named.values().all(Option::is_none) {
        return Vec::new();
    }
    let at = |time: i64| {
        let ranges: Vec<Option<Phase>> = annotations.enclosing(time).map(|range| named[&range.name]).collect();
        (time, ranges.into_iter().rev().find_map(|phase| phase))
    };
    let changes: Vec<(i64, Option<Phase>)> = annotations.changes().map(at).collect();
    let mut stretches = Vec::new();
    let mut rest = track.times();
    let mut end = 0;
    while let Some(&time) = rest.first() {
        // Times in this interval have the same phase. Entries are in chronological order; in a damaged file they may not be.
        let next = changes.partition_point(|&(from, _)| from <= time);
        let before = next.checked_sub(1).map(|index| changes[index]);
        let (from, phase) = before.unwrap_or((i64::MIN, None));
        let to = changes.get(next).map_or(i64::MAX, |&(to, _)| to);
        let others = rest[1..].iter().position(|time| !(from..to).contains(time));
        let length = 1 + others.unwrap_or(rest.len() - 1);
        end += length as u32;
        rest = &rest[length..];
        extend(&mut stretches, phase, end);
    }
    stretches
}

/// Whether any free has another stack than its allocation.
fn frees_tell(track: Track<'_>) -> bool {
    let history = track.history;
    let mut freed =
        history.allocations.iter().enumerate().filter(|(_, allocation)| allocation.freed <= history.entries());
    freed.any(|(index, allocation)| {
        let free = allocation.freed.checked_sub(1).map(|entry| track.stack(entry));
        free.is_some_and(|stack| stack != StackId::EMPTY && stack != track.stack_of(index))
    })
}

/// The evidence of each entry's stack.
fn hints(track: Track<'_>, roles: &Roles, frees_tell: bool) -> Vec<Stretch<Hint>> {
    // If no stack has Python frames, their absence is not evidence.
    let python = track.stacks().iter().any(|&stack| roles.has_python(stack));
    // Traces name what contains every entry, including the engine's nodes: an entry in none of them does not belong to the
    // engine.
    let is_trace = track.snapshot.notes.format == Format::ProfilerTrace;
    let hint = |action: Action, stack: StackId| {
        let gives_back = matches!(
            action,
            Action::FreeRequested | Action::FreeCompleted | Action::SegmentFree | Action::SegmentUnmap
        );
        if gives_back && !frees_tell {
            return Hint::None;
        }
        match roles.role(stack) {
            // The engine's threads have no Python frames. Frees may lack them for other reasons (`context="alloc"`).
            Role::Silent if is_trace && stack != StackId::EMPTY => Hint::Plain,
            Role::Silent if python && !is_trace && action == Action::Alloc && stack == StackId::EMPTY => {
                Hint::Sure(Phase::Backward)
            }
            Role::Silent => Hint::None,
            Role::Plain if roles.is_plain_step(stack) => Hint::Step,
            Role::Plain if gives_back => Hint::Release,
            Role::Plain if roles.is_functional(stack) => Hint::Functional,
            Role::Plain => Hint::Plain,
            Role::Module => Hint::Sure(Phase::Forward),
            Role::Setup => Hint::Sure(Phase::Other),
            Role::Data => Hint::Sure(Phase::Data),
            Role::Backward | Role::Recompute => Hint::Sure(Phase::Backward),
            Role::Optimizer => Hint::Sure(Phase::Optimizer),
            Role::ZeroGrad => Hint::ZeroGrad,
        }
    };
    // Many entries share a few stacks: each stack has a hint for each kind of action. Hints are compared by number, which is
    // faster.
    let mut distinct: Vec<Hint> = Vec::new();
    let mut number = |hint: Hint| {
        let known = distinct.iter().position(|&known| known == hint);
        known.unwrap_or_else(|| {
            distinct.push(hint);
            distinct.len() - 1
        }) as u8
    };
    let stacks = track.snapshot.stacks.len();
    let of_stack: Vec<[u8; KINDS.len()]> =
        (0..=stacks as u32).map(|id| KINDS.map(|action| number(hint(action, StackId(id))))).collect();
    let kinds = Action::ALL.map(kind);
    let mut stretches = Vec::new();
    let Some((&action, &stack)) = track.actions().first().zip(track.stacks().first()) else { return stretches };
    let mut open = of_stack[stack.index().min(stacks)][kind(action)];
    for (entry, (&action, stack)) in (0..).zip(track.actions().iter().zip(track.stacks())) {
        let number = of_stack[stack.index().min(stacks)][kinds[action as usize]];
        if number != open {
            stretches.push(Stretch { what: distinct[usize::from(open)], end: entry });
            open = number;
        }
    }
    stretches.push(Stretch { what: distinct[usize::from(open)], end: track.entries() });
    stretches
}

/// An action of each kind: a stack has the same hint for all actions of a kind.
const KINDS: [Action; 3] = [Action::FreeRequested, Action::Alloc, Action::SegmentAlloc];

/// The kind of an action, as an index into [`KINDS`].
fn kind(action: Action) -> usize {
    match action {
        Action::FreeRequested | Action::FreeCompleted | Action::SegmentFree | Action::SegmentUnmap => 0,
        Action::Alloc => 1,
        _ => 2,
    }
}

/// Decides about entries without their own evidence.
fn inferred(hints: &[Stretch<Hint>]) -> Vec<Stretch<Phase>> {
    let has = |phase| hints.iter().any(|hint| hint.what == Hint::Sure(phase));
    let program = Program { has_modules: has(Phase::Forward), trains: has(Phase::Backward) };
    let mut phases: Vec<Stretch<Phase>> = Vec::new();
    let mut before = None;
    let mut next = 0;
    while let Some(&Stretch { what: hint, end }) = hints.get(next) {
        let is_update =
            hint == Hint::Step && program.has_modules && matches!(before, Some(Phase::Backward | Phase::Optimizer));
        if let Some(phase) = sure(hint).or(is_update.then_some(Phase::Optimizer)) {
            before = Some(phase);
            extend(&mut phases, phase, end);
            next += 1;
            continue;
        }
        let rest = &hints[next..];
        let updates = program.has_modules && before == Some(Phase::Backward);
        let ends = |hint: &Stretch<Hint>| sure(hint.what).is_some() || (hint.what == Hint::Step && updates);
        let open = rest.iter().position(ends).unwrap_or(rest.len());
        let after = rest.get(open).map(|hint| sure(hint.what).unwrap_or(Phase::Optimizer));
        let plain = program.between(before, after);
        for hint in &rest[..open] {
            let last = phases.last().map(|last| last.what).unwrap_or_default();
            let phase = match hint.what {
                Hint::None => last,
                Hint::Release if plain == Phase::Data && last != Phase::Data => Phase::Other,
                Hint::Functional if plain == Phase::Data && before == Some(Phase::Forward) => Phase::Forward,
                Hint::Plain | Hint::Functional | Hint::Step | Hint::Release => plain,
                Hint::ZeroGrad => Phase::Optimizer,
                Hint::Sure(phase) => phase,
            };
            extend(&mut phases, phase, hint.end);
        }
        next += open;
    }
    phases
}

/// If this many blocks are allocated and most of them are freed before a module is called, they are not inputs.
const BUSY: usize = 16;

/// Plain code that computes, such as a user's own optimizer without a backward pass, is not the data phase.
fn drop_busy_data(phases: &mut [Stretch<Phase>], hints: &[Stretch<Hint>], track: Track<'_>) {
    let mut start = 0;
    for stretch in phases {
        let entries = start..stretch.end;
        start = entries.end;
        if stretch.what != Phase::Data {
            continue;
        }
        let within = &hints[hints.partition_point(|hint| hint.end <= entries.start)..];
        let mut within = within.iter().take_while(|hint| hint.end <= entries.end);
        if within.any(|hint| hint.what == Hint::Sure(Phase::Data)) {
            continue;
        }
        // An entry leads to the instant after it.
        let behind = |entry: u32| track.history.born_after(entry);
        let made = track.history.allocations.get(behind(entries.start)..behind(entries.end)).unwrap_or(&[]);
        let gone = made.iter().filter(|allocation| allocation.freed <= entries.end).count();
        if made.len() >= BUSY && gone * 2 > made.len() {
            stretch.what = Phase::Other;
        }
    }
}

fn sure(hint: Hint) -> Option<Phase> {
    match hint {
        Hint::Sure(phase) => Some(phase),
        _ => None,
    }
}

/// Properties of the recorded program that decide about phases.
struct Program {
    /// Whether it calls modules. If not, the model consists of plain functions.
    has_modules: bool,
    /// Whether it has a backward pass.
    trains: bool,
}

impl Program {
    /// The phase of plain Python code between two others.
    fn between(&self, before: Option<Phase>, after: Option<Phase>) -> Phase {
        match (before, after) {
            // The loss, and code between two calls of the model.
            (Some(Phase::Forward), Some(Phase::Forward | Phase::Backward)) if self.trains => Phase::Forward,
            // Hooks on gradients.
            (Some(Phase::Backward), Some(Phase::Backward)) if self.has_modules => Phase::Backward,
            (_, Some(Phase::Backward)) if !self.has_modules => Phase::Forward,
            // Entries before the first call of a module are its inputs.
            (_, Some(Phase::Forward)) => Phase::Data,
            _ => Phase::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Hint::{Functional, None as Silent, Plain, Release, Step, Sure, ZeroGrad};
    use Phase::{Backward, Data, Forward, Optimizer, Other};

    /// The phase of each entry.
    fn inferred(hints: &[Hint]) -> Vec<Phase> {
        let mut stretches = Vec::new();
        for (entry, &hint) in (1..).zip(hints) {
            extend(&mut stretches, hint, entry);
        }
        let mut phases = Vec::new();
        for stretch in super::inferred(&stretches) {
            phases.resize(stretch.end as usize, stretch.what);
        }
        phases
    }

    #[test]
    fn plain_code_gets_its_phase_from_its_neighbors() {
        let step = [Plain, Sure(Forward), Plain, ZeroGrad, Sure(Backward), Silent, Plain, Sure(Optimizer), Plain];
        let phases = [Data, Forward, Forward, Optimizer, Backward, Backward, Other, Optimizer, Other];
        assert_eq!(inferred(&step), phases);
    }

    #[test]
    fn zero_grad_before_forward_does_not_hide_the_inputs() {
        let step = [Sure(Optimizer), Plain, ZeroGrad, Sure(Forward), Sure(Backward)];
        assert_eq!(inferred(&step), [Optimizer, Data, Optimizer, Forward, Backward]);
    }

    #[test]
    fn a_model_without_modules_has_a_forward() {
        let step = [Plain, Plain, Sure(Backward), Silent, Sure(Optimizer), Plain, Sure(Backward)];
        assert_eq!(inferred(&step), [Forward, Forward, Backward, Backward, Optimizer, Forward, Backward]);
    }

    #[test]
    fn hooks_are_part_of_backward() {
        let step = [Sure(Forward), Sure(Backward), Plain, Sure(Backward), Plain, Sure(Optimizer)];
        assert_eq!(inferred(&step), [Forward, Backward, Backward, Backward, Other, Optimizer]);
    }

    #[test]
    fn a_user_defined_step_after_backward_is_an_optimizer() {
        let step = [Sure(Forward), Step, Sure(Backward), Plain, Step, Step, Plain, Sure(Forward), Sure(Backward)];
        let phases = [Forward, Forward, Backward, Other, Optimizer, Optimizer, Data, Forward, Backward];
        assert_eq!(inferred(&step), phases);
    }

    #[test]
    fn giving_memory_back_brings_no_inputs() {
        assert_eq!(inferred(&[Release, Plain, Release, Sure(Forward)]), [Other, Data, Data, Forward]);
    }

    #[test]
    fn inference_has_inputs_between_calls() {
        assert_eq!(
            inferred(&[Plain, Sure(Forward), Plain, Sure(Forward), Plain]),
            [Data, Forward, Data, Forward, Other]
        );
    }

    #[test]
    fn functions_between_modules_are_part_of_forward() {
        let calls = [Functional, Sure(Forward), Functional, Sure(Forward), Plain, Functional, Sure(Forward)];
        assert_eq!(inferred(&calls), [Data, Forward, Forward, Forward, Data, Forward, Forward]);
    }

    #[test]
    fn annotations_name_phases() {
        let phase = Phase::of_annotation;
        assert_eq!(phase("forward"), Some(Forward));
        assert_eq!(phase("train/Forward_2"), Some(Forward));
        assert_eq!(phase("## backward ##"), Some(Backward));
        assert_eq!(phase("Optimizer.step#AdamW.step"), Some(Optimizer));
        assert_eq!(phase("Optimizer.zero_grad#SGD.zero_grad"), Some(Optimizer));
        assert_eq!(phase("autograd::engine::evaluate_function: MulBackward0"), Some(Backward));
        assert_eq!(phase("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), Some(Data));
        assert_eq!(phase("ProfilerStep#3"), None);
        assert_eq!(phase("straightforward"), None);
    }
}
