//! The module that allocated a block: `GPT.Block[3].Attention.Linear[0]`.
//!
//! Profiler traces name the calls of modules, with a number for each instance of a class. Snapshots only have frames: there,
//! the functions that `nn.Module` calls represent modules, and the order of their calls shows which of several instances it
//! is. Neither contains attribute names (`self.attn`).

use super::calls::forwards;
use crate::facts::code::sites::Sites;
use crate::facts::training::{Calls, FunctionId, Phases, Roles};
use crate::model::{FrameId, Snapshot, StackId, StrId};
use crate::replay::Track;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The modules of one device's blocks.
pub(crate) enum ModulePaths {
    /// Of a profiler trace, by stack.
    Named(HashMap<StackId, String>),
    /// Of a snapshot.
    Called {
        /// Every call, by its start, outer calls before inner calls.
        calls: Vec<ModuleCall>,
        /// For blocks that are older than the kept history, by stack: which of several calls allocated them is unknown.
        older: HashMap<StackId, String>,
    },
}

pub(crate) struct ModuleCall {
    start: u32,
    end: u32,
    /// The call around it.
    parent: Option<usize>,
    path: String,
}

impl ModulePaths {
    pub(crate) fn of(track: Track<'_>, sites: &Sites<'_>, phases: &Phases, roles: &Roles) -> Self {
        let snapshot = track.snapshot;
        if snapshot.notes.format.has_segments() {
            let calls = Calls::of(track, phases, sites, roles);
            return Self::Called { calls: module_calls(&calls, sites), older: older(track, sites, roles) };
        }
        Self::Named(named(sites, snapshot))
    }

    /// The modules around an allocation, outermost first, given its stack and its entry within the device's trace.
    pub(crate) fn path(&self, stack: StackId, entry: Option<u32>) -> Option<&str> {
        match self {
            Self::Named(paths) => paths.get(&stack).map(String::as_str),
            Self::Called { calls, older } => {
                let Some(entry) = entry else { return older.get(&stack).map(String::as_str) };
                let mut at = calls.partition_point(|call| call.start <= entry).checked_sub(1);
                while let Some(call) = at.and_then(|index| calls.get(index)) {
                    if entry < call.end {
                        return Some(&call.path);
                    }
                    at = call.parent;
                }
                None
            }
        }
    }

    /// Whether a path is partly inferred: numbers follow from the order of calls, and so do the calls in a snapshot.
    pub(crate) fn is_inferred(&self, path: &str) -> bool {
        matches!(self, Self::Called { .. }) || path.ends_with(']') || path.contains("].")
    }
}

/// The modules on the stacks of blocks from before the first entry.
fn older(track: Track<'_>, sites: &Sites<'_>, roles: &Roles) -> HashMap<StackId, String> {
    let stacks = &track.snapshot.stacks;
    let mut paths = HashMap::new();
    for stack in track.history.baseline.iter().map(|origin| origin.stack) {
        if stack == StackId::EMPTY || paths.contains_key(&stack) {
            continue;
        }
        let outermost_first = stacks.frame_ids(stack).iter().rev().copied();
        let python: Vec<FrameId> = outermost_first.filter(|&frame| sites.kind(frame).is_python()).collect();
        let called = forwards(track.snapshot, roles, &python).into_iter().filter_map(|place| python.get(place));
        let path: Vec<String> = called.map(|&frame| sites.function(frame)).collect();
        paths.insert(stack, path.join(" / "));
    }
    paths.retain(|_, path| !path.is_empty());
    paths
}

/// The calls of a snapshot with their paths. Several calls of a function within one call of another are numbered.
fn module_calls(calls: &Calls, sites: &Sites<'_>) -> Vec<ModuleCall> {
    let mut parents: Vec<Option<usize>> = Vec::with_capacity(calls.calls.len());
    let mut open: Vec<usize> = Vec::new();
    let mut times: HashMap<(Option<usize>, FunctionId), usize> = HashMap::new();
    for (index, call) in calls.calls.iter().enumerate() {
        while open.last().is_some_and(|&last| calls.calls[last].end <= call.start) {
            open.pop();
        }
        let parent = open.last().copied();
        *times.entry((parent, call.function)).or_default() += 1;
        parents.push(parent);
        open.push(index);
    }
    let mut module_calls: Vec<ModuleCall> = Vec::with_capacity(parents.len());
    let mut next: HashMap<(Option<usize>, FunctionId), usize> = HashMap::new();
    for (call, &parent) in calls.calls.iter().zip(&parents) {
        let function = calls.function(call.function);
        let mut path = function.map(|function| sites.label(function.frame)).unwrap_or_default();
        let key = (parent, call.function);
        let number = next.entry(key).or_default();
        // Calls without an enclosing call belong to successive steps.
        if parent.is_some() && times.get(&key).is_some_and(|&times| times > 1) {
            path += &format!("[{number}]");
        }
        *number += 1;
        if let Some(around) = parent.and_then(|parent| module_calls.get(parent)) {
            path = format!("{} / {path}", around.path);
        }
        module_calls.push(ModuleCall { start: call.start, end: call.end, parent, path });
    }
    module_calls
}

/// The paths of a trace: classes, numbered among their siblings if there are several. PyTorch numbers the instances of a
/// class in the order of their first calls, regardless of what contains them.
fn named(sites: &Sites<'_>, snapshot: &Snapshot) -> HashMap<StackId, String> {
    let stacks = (0..snapshot.stacks.len() as u32).map(StackId);
    let stacks: Vec<(StackId, Vec<StrId>)> = stacks.map(|stack| (stack, sites.nn_modules(stack))).collect();
    let mut siblings: BTreeMap<(Option<StrId>, &str), BTreeSet<u64>> = BTreeMap::new();
    let split = |name: StrId| {
        let name = snapshot.strings.get(name);
        name.rsplit_once('_').and_then(|(class, number)| Some((class, number.parse().ok()?))).unwrap_or((name, 0))
    };
    for (_, modules) in &stacks {
        let mut parent = None;
        for &module in modules {
            let (class, number) = split(module);
            siblings.entry((parent, class)).or_default().insert(number);
            parent = Some(module);
        }
    }
    let path = |modules: &[StrId]| {
        let mut parent = None;
        let mut parts = Vec::with_capacity(modules.len());
        for &module in modules {
            let (class, number) = split(module);
            let among = siblings.get(&(parent, class)).filter(|among| among.len() > 1);
            parts.push(match among {
                Some(among) => format!("{class}[{}]", among.range(..number).count()),
                None => class.to_owned(),
            });
            parent = Some(module);
        }
        parts.join(".")
    };
    let named = stacks.iter().filter(|(_, modules)| !modules.is_empty());
    named.map(|(stack, modules)| (*stack, path(modules))).collect()
}
