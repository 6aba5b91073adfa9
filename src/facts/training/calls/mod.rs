//! The calls of forward functions: which entries belong to the same call of the same function.
//!
//! A Python stack shows that `Block.forward` runs, but not which of eight blocks it is. `functions` distinguishes calls of
//! different functions; the order of entries distinguishes calls of the same function: a call ends before an entry whose
//! stack is elsewhere, or when its line jumps back to where the function started; for a function with a single line, when its
//! allocations start to repeat.

mod repetition;

use super::functions::{Functions, PythonStack};
use super::phases::{Phase, Phases};
use super::role::{Role, Roles};
use crate::facts::code::sites::Sites;
use crate::model::{Action, FrameId, Snapshot, StackId, StrId};
use crate::replay::Track;
use foldhash::fast::RandomState;
use repetition::{join_rounds, split_repetitions};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// A function that `nn.Module` calls as `forward`, or one that is the model itself. Functions with the same name in a file are distinguished by their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardFunction {
    pub file: StrId,
    pub name: StrId,
    /// Its first line that allocates or frees.
    pub first_line: u64,
    /// Its last line that allocates or frees.
    pub last_line: u64,
    /// A frame of it, at its first line.
    pub frame: FrameId,
}

/// The index of a function in [`Calls::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

impl FunctionId {
    /// The index itself.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One call of a function in the forward phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: FunctionId,
    /// Its first entry, counted within the trace.
    pub start: u32,
    /// The entry after its last one.
    pub end: u32,
    /// The nearest frame around it that is not part of PyTorch.
    pub caller: Option<FrameId>,
    /// Whether it runs under `torch.utils.checkpoint`.
    pub checkpointed: bool,
    /// Whether `torch.utils.checkpoint` calls it directly, so that it is not inside another checkpointed call.
    pub is_checkpoint: bool,
}

/// The calls of one device's forward phases.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Every called function, in the order of their first calls.
    pub functions: Vec<ForwardFunction>,
    /// Every call, in the order of their starts, outer calls before inner calls.
    pub calls: Vec<Call>,
    /// For each function, the indexes of its calls.
    of_function: Vec<Vec<u32>>,
}

impl Calls {
    /// These calls of these functions.
    pub(crate) fn new(functions: Vec<ForwardFunction>, calls: Vec<Call>) -> Self {
        let mut of_function = vec![Vec::new(); functions.len()];
        for (place, call) in (0..).zip(&calls) {
            of_function[call.function.index()].push(place);
        }
        Self { functions, calls, of_function }
    }

    /// Finds the calls of one device.
    pub fn of(track: Track<'_>, phases: &Phases, sites: &Sites<'_>, roles: &Roles) -> Self {
        let paths = Paths::of(track.snapshot, sites, roles, |_| false);
        Self::along(track, phases, roles, &paths, |phase| phase == Phase::Forward)
    }

    /// Finds the calls of one device where these functions, given by their frames, are the model: the program has no modules, so
    /// without a backward pass behind it, nothing shows that a phase is forward.
    pub(crate) fn of_functions(
        track: Track<'_>,
        phases: &Phases,
        sites: &Sites<'_>,
        roles: &Roles,
        functions: &HashSet<FrameId>,
    ) -> Self {
        let paths = Paths::of(track.snapshot, sites, roles, |frame| functions.contains(&frame));
        Self::along(track, phases, roles, &paths, |phase| !matches!(phase, Phase::Backward | Phase::Optimizer))
    }

    fn along(
        track: Track<'_>,
        phases: &Phases,
        roles: &Roles,
        paths: &Paths,
        is_wanted: impl Fn(Phase) -> bool,
    ) -> Self {
        let actions = track.actions();
        let tells = |entry: u32| phases.frees_tell || is_alloc(actions, entry);
        let mut open_calls = Tracker::default();
        for span in phases.spans.iter().filter(|span| is_wanted(span.phase)) {
            for entry in (span.start..span.end).filter(|&entry| tells(entry)) {
                let stack = track.stack(entry);
                if roles.role(stack) == Role::Module || roles.role(stack) == Role::Plain {
                    open_calls.visit(entry, &paths.of_stack[stack.index()]);
                }
            }
            open_calls.close_all();
        }
        let raw = join_rounds(split_repetitions(&open_calls.calls, track, paths));
        group(raw, track.snapshot, paths, roles)
    }

    /// Every function with its ID, in the order of their first calls.
    pub fn functions(&self) -> impl Iterator<Item = (FunctionId, &ForwardFunction)> {
        (0..).map(FunctionId).zip(&self.functions)
    }

    pub fn function(&self, id: FunctionId) -> Option<&ForwardFunction> {
        self.functions.get(id.index())
    }

    /// The index of a call in [`Calls::calls`].
    pub(crate) fn place(&self, call: &Call) -> Option<usize> {
        let first = self.calls.partition_point(|other| other.start < call.start);
        let same_start = self.calls[first..].iter().take_while(|other| other.start == call.start);
        Some(first + same_start.into_iter().position(|other| other == call)?)
    }

    /// The calls of a function, in order.
    pub fn of_function(&self, function: FunctionId) -> impl Iterator<Item = &Call> {
        let places = self.of_function.get(function.index()).into_iter().flatten();
        places.filter_map(|&place| self.calls.get(place as usize))
    }
}

/// One Python frame of a stack.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The function and the path to it: the same for all lines of a function that is called from one place.
    node: u32,
    /// The node and its line: two stacks with the same place have the same frames up to there.
    place: u32,
    /// Number of the function.
    function: u32,
    line: u64,
    frame: FrameId,
    /// Whether `nn.Module` calls it, or it is the model itself.
    is_call: bool,
    /// The nearest frame around it that is not part of PyTorch.
    caller: Option<FrameId>,
}

/// Every stack as its Python frames, outermost first.
struct Paths {
    of_stack: Vec<Vec<Level>>,
}

impl Paths {
    fn of(snapshot: &Snapshot, sites: &Sites<'_>, roles: &Roles, is_called: impl Fn(FrameId) -> bool) -> Self {
        let python = |id: u32| {
            let frames = snapshot.stacks.frame_ids(StackId(id)).iter().rev();
            let frames: Vec<FrameId> = frames.copied().filter(|&id| sites.kind(id).is_python()).collect();
            let calls = forwards(snapshot, roles, &frames);
            PythonStack { frames, calls }
        };
        let stacks: Vec<PythonStack> = (0..snapshot.stacks.len() as u32).map(python).collect();
        let functions = Functions::of(snapshot, roles, &stacks);
        // A node is a function below an exact place; a place is a node with a line.
        let mut nodes: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut places: HashMap<(u32, u64), u32, RandomState> = HashMap::default();
        let path = |stack: &PythonStack| {
            let mut calls = stack.calls.iter().copied().peekable();
            let (mut place, mut caller) = (0, None);
            let level = |(index, &id): (usize, &FrameId)| {
                let frame = snapshot.stacks.frame(id)?;
                let function = functions.get(id);
                let node = intern(&mut nodes, (place, function));
                place = intern(&mut places, (node, frame.line)) + 1;
                let is_call = calls.next_if_eq(&index).is_some() || is_called(id);
                let level = Level { node, place, function, line: frame.line, frame: id, is_call, caller };
                if !is_module_plumbing(snapshot, id) && !is_checkpoint_plumbing(snapshot, id) {
                    caller = Some(id);
                }
                Some(level)
            };
            stack.frames.iter().enumerate().filter_map(level).collect()
        };
        Self { of_stack: stacks.iter().map(path).collect() }
    }
}

/// Positions of the frames that are calls of modules, in a stack with the outermost frame first: `forward` itself, even if
/// decorators are between it and `Module._call_impl`.
pub(super) fn forwards(snapshot: &Snapshot, roles: &Roles, python: &[FrameId]) -> Vec<usize> {
    const MOST_DECORATORS: usize = 8;
    let is_forward = |id: &FrameId| {
        let frame = snapshot.stacks.frame(*id);
        // `CheckpointFunction.forward` calls the actual forward.
        frame.is_some_and(|frame| snapshot.strings.get(frame.name) == "forward") && !roles.is_checkpoint(*id)
    };
    let mut found = Vec::new();
    for (index, pair) in python.windows(2).enumerate() {
        if roles.is_module_call(pair[0]) && !roles.is_module_call(pair[1]) {
            let inside = python[index + 1..].iter().take_while(|&&id| !roles.is_module_call(id));
            let decorated = inside.take(MOST_DECORATORS + 1).position(is_forward).unwrap_or(0);
            found.push(index + 1 + decorated);
        }
    }
    found
}

/// Whether a frame is between a call of a module and its `forward`.
fn is_module_plumbing(snapshot: &Snapshot, id: FrameId) -> bool {
    is_of_file(snapshot, id, &["torch/nn/modules/module.py", "torch/nn/modules/container.py"])
}

/// Whether a frame is between a checkpointed call and its function.
fn is_checkpoint_plumbing(snapshot: &Snapshot, id: FrameId) -> bool {
    is_of_file(snapshot, id, &["torch/utils/checkpoint.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py"])
}

/// Whether a frame belongs to one of these files, with the separators of any system.
fn is_of_file(snapshot: &Snapshot, id: FrameId, files: &[&str]) -> bool {
    let matches = |path: &str, file: &str| {
        let same = |(a, b): (u8, u8)| a == b || (a == b'\\' && b == b'/');
        path.len() >= file.len() && path.bytes().rev().zip(file.bytes().rev()).all(same)
    };
    snapshot.stacks.frame(id).is_some_and(|frame| {
        let path = snapshot.strings.get(frame.filename);
        files.iter().any(|file| matches(path, file))
    })
}

/// The number of a key, in the order of first appearance.
fn intern<K: Eq + Hash>(known: &mut HashMap<K, u32, RandomState>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

/// A call, as the order of entries shows it.
#[derive(Clone, Copy, Debug)]
struct RawCall {
    node: u32,
    /// Number of the function.
    function: u32,
    frame: FrameId,
    caller: Option<FrameId>,
    /// Number of Python frames around it.
    depth: usize,
    first_line: u64,
    last_line: u64,
    start: u32,
    end: u32,
    /// Index of the call that contains it.
    parent: Option<usize>,
}

/// A frame that is open at the latest entry.
struct OpenFrame {
    node: u32,
    /// Its current place.
    place: u32,
    /// The line where it started.
    first_line: u64,
    /// Its current line.
    line: u64,
    /// The highest line so far.
    last_line: u64,
    /// Index of its call, if it is one.
    call: Option<usize>,
}

impl OpenFrame {
    /// Whether a frame that is now at this line was left and entered again: it is back at its first line, or at an earlier
    /// one. Within a statement of several lines, Python goes back, too: it evaluates the arguments before the call around
    /// them.
    fn begins_again(&self, line: u64) -> bool {
        const LONG_STATEMENT: u64 = 8;
        line != self.line
            && (line == self.first_line || (line < self.first_line && self.last_line - line > LONG_STATEMENT))
    }
}

/// Follows the entries of forward and records where calls start and end.
#[derive(Default)]
struct Tracker {
    open: Vec<OpenFrame>,
    calls: Vec<RawCall>,
    latest: u32,
}

impl Tracker {
    fn visit(&mut self, entry: u32, path: &[Level]) {
        // The open frames are those of the previous entry, and most entries differ from it only in the innermost frames.
        let both = self.open.iter().zip(path).enumerate();
        let mut same = both.rev().find(|(_, (open, level))| open.place == level.place).map_or(0, |(last, _)| last + 1);
        if let (Some(open), Some(level)) = (self.open.get_mut(same), path.get(same))
            && open.node == level.node
            && !open.begins_again(level.line)
        {
            // Another line of the same call: the calls inside it have ended.
            same += 1;
            open.place = level.place;
            open.line = level.line;
            open.last_line = open.last_line.max(level.line);
            if let Some(call) = open.call {
                self.calls[call].first_line = self.calls[call].first_line.min(level.line);
                self.calls[call].last_line = open.last_line;
            }
        }
        self.close(same);
        for (depth, level) in path.iter().enumerate().skip(same) {
            let parent = self.open.iter().rev().find_map(|open| open.call);
            let call = level.is_call.then(|| {
                self.calls.push(RawCall {
                    node: level.node,
                    function: level.function,
                    frame: level.frame,
                    caller: level.caller,
                    depth,
                    first_line: level.line,
                    last_line: level.line,
                    start: entry,
                    end: entry + 1,
                    parent,
                });
                self.calls.len() - 1
            });
            let line = level.line;
            let (node, place) = (level.node, level.place);
            self.open.push(OpenFrame { node, place, first_line: line, line, last_line: line, call });
        }
        self.latest = entry;
    }

    /// Ends everything below the outermost `keep` frames.
    fn close(&mut self, keep: usize) {
        for open in self.open.drain(keep.min(self.open.len())..) {
            if let Some(call) = open.call {
                self.calls[call].end = self.latest + 1;
            }
        }
    }

    fn close_all(&mut self) {
        self.close(0);
    }
}

fn is_alloc(actions: &[Action], entry: u32) -> bool {
    actions.get(entry as usize) == Some(&Action::Alloc)
}

/// Names the functions that calls belong to.
fn group(mut raw: Vec<RawCall>, snapshot: &Snapshot, paths: &Paths, roles: &Roles) -> Calls {
    raw.sort_by_key(|call| (call.start, call.depth));
    let around = checkpoints(paths, roles);
    // Lines seen in one call belong to one function.
    let mut lines: HashMap<u32, Vec<(u64, u64)>, RandomState> = HashMap::default();
    for call in &raw {
        lines.entry(call.function).or_default().push((call.first_line, call.last_line));
    }
    for ranges in lines.values_mut() {
        *ranges = joined(std::mem::take(ranges));
    }
    let mut known: HashMap<(u32, u64), FunctionId, RandomState> = HashMap::default();
    let (mut functions, mut calls) = (Vec::new(), Vec::new());
    for call in &raw {
        let Some(frame) = snapshot.stacks.frame(call.frame) else { continue };
        let (file, name) = (frame.filename, frame.name);
        let ranges = &lines[&call.function];
        let Some(&(first_line, last_line)) = ranges.iter().rfind(|range| range.0 <= call.first_line) else { continue };
        let function = *known.entry((call.function, first_line)).or_insert_with(|| {
            functions.push(ForwardFunction { file, name, first_line, last_line, frame: call.frame });
            FunctionId(functions.len() as u32 - 1)
        });
        let named = &mut functions[function.index()];
        if call.first_line == first_line {
            named.frame = call.frame;
        }
        let Around { checkpointed, is_checkpoint } = around.get(call.node as usize).copied().unwrap_or_default();
        let RawCall { start, end, caller, .. } = *call;
        calls.push(Call { function, start, end, caller, checkpointed, is_checkpoint });
    }
    Calls::new(functions, calls)
}

/// Merges overlapping ranges of lines, in order.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    ranges.dedup();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| range.0 <= last.1) {
            Some(last) => last.1 = last.1.max(range.1),
            None => joined.push(range),
        }
    }
    joined
}

/// What surrounds a node.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    checkpointed: bool,
    is_checkpoint: bool,
}

/// For each node, where `torch.utils.checkpoint` surrounds it.
fn checkpoints(paths: &Paths, roles: &Roles) -> Vec<Around> {
    let mut nodes = Vec::new();
    for path in &paths.of_stack {
        let (mut checkpointed, mut since_call) = (false, false);
        for level in path {
            let node = level.node as usize;
            if nodes.len() <= node {
                nodes.resize(node + 1, Around::default());
            }
            nodes[node] = Around { checkpointed, is_checkpoint: since_call && level.is_call };
            if roles.is_checkpoint(level.frame) {
                (checkpointed, since_call) = (true, true);
            } else if level.is_call {
                since_call = false;
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_seen_together_are_of_one_function() {
        assert_eq!(joined(vec![(53, 54), (19, 31), (26, 31), (41, 41), (19, 19)]), [(19, 31), (41, 41), (53, 54)]);
    }
}
