//! Finds lines of the user's code that run a library's model.
//!
//! `model(**batch)` with a model from `transformers` is a single line that allocates all activations, and does not show which
//! of the library's layers allocate them. The rule: modules of a library below one line of the user's own code allocated more
//! than half of the bytes that calls of `nn.Module`s allocated and that are in use at the peak of allocated, and at least a
//! tenth of the peak. The library's lines then replace this line, for the memory that the library's modules allocated; other
//! memory of the line stays with it. At most one line of each device is replaced.

use super::role::Roles;
use crate::facts::code::frames::{FrameKind, installed_path};
use crate::facts::code::sites::{LibraryLines, Sites};
use crate::model::{FrameId, StackId};
use crate::replay::{Metric, Track};
use std::collections::{HashMap, HashSet};

/// 1/N of the peak: for less, the lines are not replaced.
const LEAST_OF_PEAK: u64 = 10;

/// Files whose functions only call the `forward` of other code.
const WRAPPERS: [&str; 4] =
    ["accelerate/hooks.py", "accelerate/utils/operations.py", "peft/peft_model.py", "torch/utils/_contextlib.py"];

/// The parts of a stack that the rule needs.
#[derive(Clone, Copy, Default)]
struct StackCode {
    /// The line of the user's own code.
    own: Option<FrameId>,
    /// Whether a module is called.
    in_module: bool,
    /// The innermost line of the library whose module runs below the user's own line.
    library: Option<FrameId>,
}

/// The lines of the user's own code that are replaced by lines of a library.
pub(crate) fn library_lines<'a>(
    sites: &Sites<'_>,
    roles: &Roles,
    tracks: impl Iterator<Item = Track<'a>>,
) -> LibraryLines {
    let above = lines_above(sites, roles, tracks);
    let mut below = HashMap::new();
    if !above.is_empty() {
        for stack in (0..sites.snapshot().stacks.len() as u32).map(StackId) {
            let StackCode { own, library, .. } = code_of(sites, roles, stack);
            if own.is_some_and(|own| above.contains(&own)) {
                below.extend(library.map(|library| (stack, library)));
            }
        }
    }
    LibraryLines { above, below }
}

/// The lines of the user's own code to replace.
fn lines_above<'a>(sites: &Sites<'_>, roles: &Roles, tracks: impl Iterator<Item = Track<'a>>) -> HashSet<FrameId> {
    let mut lines = HashSet::new();
    let mut known: HashMap<StackId, StackCode> = HashMap::new();
    for track in tracks {
        let history = track.history;
        let at = history.maxima[Metric::Allocated as usize].instant;
        let (mut total, mut in_modules): (u64, u64) = (0, 0);
        let mut below: HashMap<FrameId, u64> = HashMap::new();
        for (index, allocation) in history.allocations.iter().enumerate() {
            if at < allocation.born || allocation.freed <= at {
                continue;
            }
            total = total.saturating_add(allocation.size);
            let stack = track.stack_of(index);
            let code = *known.entry(stack).or_insert_with(|| code_of(sites, roles, stack));
            if code.in_module {
                in_modules = in_modules.saturating_add(allocation.size);
            }
            if let (Some(own), Some(_)) = (code.own, code.library) {
                let bytes = below.entry(own).or_default();
                *bytes = bytes.saturating_add(allocation.size);
            }
        }
        let most = below.into_iter().filter(|(_, bytes)| *bytes > in_modules / 2 && *bytes >= total / LEAST_OF_PEAK);
        lines.extend(most.map(|(line, _)| line));
    }
    lines
}

fn code_of(sites: &Sites<'_>, roles: &Roles, stack: StackId) -> StackCode {
    let frames = sites.snapshot().stacks.frame_ids(stack);
    StackCode {
        own: frames.iter().copied().find(|&frame| sites.is_own(frame)),
        in_module: frames.iter().any(|&frame| roles.is_module_call(frame)),
        library: library_line(sites, roles, frames),
    }
}

/// Whether a frame is between a call of a module and its `forward`, in any library.
fn is_wrapper(sites: &Sites<'_>, frame: FrameId) -> bool {
    let snapshot = sites.snapshot();
    let file = snapshot.stacks.frame(frame).map_or("", |frame| snapshot.strings.get(frame.filename));
    let path = installed_path(file).unwrap_or("").replace('\\', "/");
    WRAPPERS.contains(&path.as_str())
}

/// The innermost line of the package whose module is the innermost one called below the user's own line.
fn library_line(sites: &Sites<'_>, roles: &Roles, frames: &[FrameId]) -> Option<FrameId> {
    let inside = frames.iter().copied().take_while(|&frame| !sites.is_own(frame));
    // The innermost line of each package so far, and the package of the previous frame.
    let mut innermost: Vec<(&str, FrameId)> = Vec::new();
    let mut called = None;
    for frame in inside {
        match sites.kind(frame) {
            // C++ frames may be between Python frames, and operators of traces are inside them.
            FrameKind::Native | FrameKind::Plumbing | FrameKind::Operator => {}
            FrameKind::Package | FrameKind::Torch if is_wrapper(sites, frame) => {}
            FrameKind::Package => {
                let package = sites.package_of(frame);
                if innermost.iter().all(|(known, _)| *known != package) {
                    innermost.push((package, frame));
                }
                called = Some(package);
            }
            _ if roles.is_module_call(frame) && called.is_some() => {
                return innermost.iter().find(|(package, _)| Some(*package) == called).map(|&(_, line)| line);
            }
            _ => called = None,
        }
    }
    None
}
