//! One label per stack: the line of code that an allocation is attributed to.

use super::frames::{FrameKind, dispatched_operator, has_line, installed_path, package, short_native_name};
use super::passing::calls_forward;
use crate::model::stacks::special;
use crate::model::{Frame, FrameId, Snapshot, StackId, StrId, traceback};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// Label of allocations without a stack.
pub const NO_STACK: &str = "(no stack)";
/// Label for files and packages if a profiler trace has no Python function around an operator.
pub const NO_PYTHON: &str = "(no Python code)";
/// Label of the frame between a backward operator and its forward operator.
const BACKWARD: &str = "(backward)";
/// The same if the forward operator is inferred.
const INFERRED_BACKWARD: &str = "(backward, inferred)";

/// Operators that create a tensor for other operators, or copy one.
const FACTORIES: [&str; 14] = [
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::zeros",
    "aten::zeros_like",
    "aten::new_zeros",
    "aten::resize_",
    "aten::clone",
    "aten::contiguous",
    "aten::copy_",
    "aten::_to_copy",
    "aten::to",
];

/// The code of an allocation, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeOrigin {
    /// Its stack, as recorded.
    pub stack: StackId,
    /// For an allocation made by backward, the stack in forward that it belongs to.
    pub forward: Option<StackId>,
    /// Whether the forward stack is recorded (`forward_frames`); otherwise it is inferred: see
    /// [`crate::facts::training::BackwardSites`].
    pub is_recorded: bool,
}

impl CodeOrigin {
    /// The code of a stack alone.
    pub fn of(stack: StackId) -> Self {
        Self { stack, ..Self::default() }
    }

    /// The separator between its own frames and those of forward.
    pub fn marker(&self) -> &'static str {
        if self.is_recorded { BACKWARD } else { INFERRED_BACKWARD }
    }
}

/// A place in the code, as programs name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The function, with the file that distinguishes it from other functions with the same name: `model.py forward`; a
    /// marker such as `(before the recording)` if it is not code.
    pub function: String,
    /// The name of the function as recorded.
    pub name: String,
    /// Its file as recorded; empty if there is none.
    pub file: String,
    /// The line, if there is one.
    pub line: Option<u64>,
}

impl Place {
    /// A place that is not code.
    pub(crate) fn marker(label: &str) -> Self {
        Self { function: label.to_owned(), name: label.to_owned(), ..Self::default() }
    }
}

/// Labels of frames and stacks, computed once per frame.
#[derive(Clone, Debug)]
pub struct Sites<'s> {
    snapshot: &'s Snapshot,
    kinds: Vec<FrameKind>,
    /// Whether the code of each frame is the user's own.
    own: Vec<bool>,
    library: LibraryLines,
    /// The requested labels: answers use the labels of few frames, but repeatedly.
    labels: Vec<OnceLock<String>>,
    /// The path of each frame's file inside the installed package, once requested.
    installed: Vec<OnceLock<String>>,
}

/// Lines of the user's own code that are replaced by lines of a library: none, unless set.
#[derive(Clone, Debug, Default)]
pub(crate) struct LibraryLines {
    /// The replaced lines of the user's own code.
    pub above: HashSet<FrameId>,
    /// The library's line that a stack with one of them is attributed to.
    pub below: HashMap<StackId, FrameId>,
}

impl<'s> Sites<'s> {
    /// Classifies every frame of the snapshot.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let frames = (0..snapshot.stacks.frame_count() as u32).filter_map(|id| snapshot.stacks.frame(FrameId(id)));
        // Frames of one function differ only in their lines.
        let mut known: HashMap<(StrId, StrId), FrameKind> = HashMap::new();
        let kind = |frame: &Frame| {
            *known.entry((frame.filename, frame.name)).or_insert_with(|| FrameKind::of(frame, &snapshot.strings))
        };
        let kinds: Vec<FrameKind> = frames.map(kind).collect();
        let is_own = |(id, &kind): (usize, &FrameKind)| {
            let frame = || snapshot.stacks.frame(FrameId(id as u32));
            kind == FrameKind::User || (kind.is_python() && frame().is_some_and(|frame| is_named_own(snapshot, frame)))
        };
        let own = kinds.iter().enumerate().map(is_own).collect();
        let [labels, installed] = [(); 2].map(|()| vec![OnceLock::new(); kinds.len()]);
        Self { snapshot, kinds, own, library: LibraryLines::default(), labels, installed }
    }

    /// The same, with lines of the user's own code replaced by lines of a library.
    pub(crate) fn going_down(self, library: LibraryLines) -> Self {
        Self { library, ..self }
    }

    /// Whether any frame belongs to a package that is not PyTorch.
    pub(crate) fn has_packages(&self) -> bool {
        self.kinds.contains(&FrameKind::Package)
    }

    /// Whether the code of a frame is the user's own: by its path, or because of [`crate::model::View::own`].
    pub fn is_own(&self, frame: FrameId) -> bool {
        self.own.get(frame.index()).copied().unwrap_or(false)
    }

    /// The path of a frame's file inside the installed package, with `/` between its parts; empty for other code.
    pub(crate) fn installed_path(&self, frame: FrameId) -> &str {
        let path = || {
            let file = self.snapshot.stacks.frame(frame).map_or("", |frame| self.snapshot.strings.get(frame.filename));
            installed_path(file).unwrap_or("").replace('\\', "/")
        };
        self.installed.get(frame.index()).map_or("", |known| known.get_or_init(path))
    }

    /// Lines of the user's own code that are replaced by lines of a library, as labels in order.
    pub fn library_below(&self) -> Vec<String> {
        let mut labels: Vec<String> = self.library.above.iter().map(|&frame| self.label(frame)).collect();
        labels.sort_unstable();
        labels
    }

    /// The recording whose stacks these are.
    pub fn snapshot(&self) -> &'s Snapshot {
        self.snapshot
    }

    pub fn kind(&self, frame: FrameId) -> FrameKind {
        self.kinds.get(frame.index()).copied().unwrap_or(FrameKind::Plumbing)
    }

    /// The frame that a stack is attributed to: the innermost frame of the user's own Python code, or that of a library's
    /// model below it (see [`crate::facts::device::Device::deep_sites`]); otherwise the innermost Python frame; otherwise the
    /// first operator that does more than create a tensor, or the first C++ frame that is not plumbing; otherwise the
    /// innermost frame.
    pub fn site_frame(&self, stack: StackId) -> Option<FrameId> {
        let frames = self.snapshot.stacks.frame_ids(stack);
        let first = |wanted: &dyn Fn(FrameKind) -> bool| frames.iter().copied().find(|&frame| wanted(self.kind(frame)));
        // Generated code with a recorded line of the user counts as the user's code, and is further inside.
        let generated = frames.iter().copied().find(|&frame| self.original_line(frame).is_some());
        generated
            .or_else(|| self.library.below.get(&stack).copied())
            .or_else(|| frames.iter().copied().find(|&frame| self.is_own(frame)))
            .or_else(|| first(&FrameKind::is_python))
            .or_else(|| self.operator_frame(frames))
            .or_else(|| first(&|kind| matches!(kind, FrameKind::Native | FrameKind::Operator | FrameKind::Category)))
            .or_else(|| frames.first().copied())
    }

    /// The innermost operator that does more than create or copy a tensor; the outermost operator, if there is none.
    fn operator_frame(&self, frames: &[FrameId]) -> Option<FrameId> {
        let mut operators = frames.iter().copied().filter(|&frame| self.kind(frame) == FrameKind::Operator);
        let computes = |&frame: &FrameId| {
            let name = self.snapshot.stacks.frame(frame).map_or("", |frame| self.snapshot.strings.get(frame.name));
            !FACTORIES.contains(&name)
        };
        operators.clone().find(computes).or_else(|| operators.next_back())
    }

    /// The label of a stack under `--by site`: `file.py:line function`.
    pub fn site(&self, stack: StackId) -> String {
        let Some(frame) = self.site_frame(stack) else { return NO_STACK.to_owned() };
        let label = self.operator_in_module(stack, frame).unwrap_or_else(|| self.label(frame));
        if self.is_backward(stack, frame) { backward_of(&label) } else { label }
    }

    /// An operator with the innermost module around it, if the trace names modules: `aten::linear in fc(Linear)`.
    pub(crate) fn operator_in_module(&self, stack: StackId, operator: FrameId) -> Option<String> {
        if self.kind(operator) != FrameKind::Operator {
            return None;
        }
        let frames = self.snapshot.stacks.frame_ids(stack).iter().copied();
        let module = frames.skip_while(|&frame| frame != operator).find(|&id| self.kind(id) == FrameKind::NnModule)?;
        let module = clipped(self.snapshot.strings.get(self.snapshot.stacks.frame(module)?.name));
        Some(format!("{} in {module}", self.label(operator)))
    }

    /// File and line of the code that a stack is attributed to, if it is Python.
    pub fn source_line(&self, stack: StackId) -> Option<(&'s str, u64)> {
        let id = self.site_frame(stack)?;
        let frame = self.snapshot.stacks.frame(id)?;
        if let Some((file, line, _)) = original_trace(self.snapshot, frame) {
            return Some((file, line));
        }
        let file = self.snapshot.strings.get(frame.filename);
        (self.kind(id).is_python() && has_line(frame.line, file)).then_some((file, frame.line))
    }

    /// The label of a stack under `--by site`, if its file must be distinguished from another file with the same name.
    pub fn site_with_path(&self, stack: StackId) -> String {
        let frame = self.site_frame(stack).and_then(|id| self.snapshot.stacks.frame(id).map(|frame| (id, frame)));
        match frame {
            Some((id, frame)) if self.kind(id).is_python() && self.original_line(id).is_none() => {
                let strings = &self.snapshot.strings;
                let label = line_label(strings.get(frame.filename), frame.line, strings.get(frame.name), true);
                if self.is_backward(stack, id) { backward_of(&label) } else { label }
            }
            _ => self.site(stack),
        }
    }

    /// Whether a frame of a stack belongs to the forward operator of a backward operator.
    pub fn is_backward(&self, stack: StackId, frame: FrameId) -> bool {
        let frames = self.snapshot.stacks.frame_ids(stack);
        frames.iter().take_while(|&&inner| inner != frame).any(|&inner| self.kind(inner) == FrameKind::Backward)
    }

    /// The innermost operator of a stack, such as `aten::mm`: recorded in profiler traces, and named by the dispatcher's
    /// functions if a snapshot has C++ frames.
    pub fn operator(&self, stack: StackId) -> Option<String> {
        self.snapshot.stacks.frame_ids(stack).iter().find_map(|&id| match self.kind(id) {
            FrameKind::Operator => Some(self.label(id)),
            FrameKind::Plumbing => {
                let frame = self.snapshot.stacks.frame(id)?;
                dispatched_operator(self.snapshot.strings.get(frame.name))
            }
            _ => None,
        })
    }

    /// Names of the `nn.Module` calls on a stack, outermost first; those of the forward pass for a backward operator.
    pub fn nn_modules(&self, stack: StackId) -> Vec<StrId> {
        let frames = self.snapshot.stacks.frames(stack).rev();
        frames
            .filter(|frame| self.snapshot.strings.get(frame.filename) == special::MODULE)
            .map(|frame| frame.name)
            .collect()
    }

    /// A frame as `file.py:line function`; C++ frames by their shortened name.
    pub fn label(&self, id: FrameId) -> String {
        self.labels.get(id.index()).map_or_else(String::new, |label| label.get_or_init(|| self.new_label(id)).clone())
    }

    fn new_label(&self, id: FrameId) -> String {
        if let Some(original) = self.original_line(id) {
            return original;
        }
        let Some(frame) = self.snapshot.stacks.frame(id) else { return String::new() };
        let name = self.snapshot.strings.get(frame.name);
        match self.kind(id) {
            FrameKind::Operator | FrameKind::Category => return clipped(name).to_owned(),
            FrameKind::NnModule => return format!("nn.Module: {}", clipped(name)),
            FrameKind::Backward => return BACKWARD.to_owned(),
            _ => {}
        }
        if !self.kind(id).is_python() {
            return clipped(&short_native_name(name)).to_owned();
        }
        line_label(self.snapshot.strings.get(frame.filename), frame.line, name, false)
    }

    /// The frames of a stack, innermost first: all of them, or only the informative ones if [`crate::model::View::fold`] is
    /// set.
    fn shown(&self, stack: StackId) -> Vec<FrameId> {
        let frames = self.snapshot.stacks.frame_ids(stack);
        if !self.snapshot.view.fold {
            return frames.to_vec();
        }
        let python = self.has_python(stack);
        let is_shown = |&frame: &FrameId| match self.kind(frame) {
            FrameKind::Plumbing => false,
            FrameKind::Native => !python,
            FrameKind::Torch => self.is_own(frame) || !self.calls_forward(frame),
            _ => true,
        };
        let shown: Vec<FrameId> = frames.iter().copied().filter(is_shown).collect();
        // A stack that consists only of plumbing is still a stack.
        if shown.is_empty() { frames.iter().copied().take(1).collect() } else { shown }
    }

    fn calls_forward(&self, id: FrameId) -> bool {
        let frame = self.snapshot.stacks.frame(id);
        frame.is_some_and(|frame| calls_forward(self.installed_path(id), self.snapshot.strings.get(frame.name)))
    }

    /// The frames of an allocation's stack as labels, innermost first, followed by those of the forward stack inferred for
    /// it. If there are more than `MOST_FRAMES`, or more than `longest` bytes of labels, the last label says how many are
    /// left out. Frames removed by [`crate::model::View::fold`] are neither shown nor counted.
    pub fn origin_labels(&self, origin: CodeOrigin, longest: usize) -> Vec<String> {
        let own = self.shown(origin.stack).into_iter().map(Some);
        let forward = origin.forward.map(|forward| self.shown(forward)).unwrap_or_default();
        let marked = origin.forward.map(|_| None).into_iter().chain(forward.into_iter().map(Some));
        let mut frames = own.chain(marked);
        let (mut labels, mut length) = (Vec::new(), 0);
        while let Some(frame) = frames.next() {
            let label = frame.map_or_else(|| origin.marker().to_owned(), |frame| self.label(frame));
            length += label.len();
            if labels.len() == MOST_FRAMES || length > longest {
                labels.push(format!("({} more frames)", frames.count() + 1));
                break;
            }
            labels.push(label);
        }
        labels
    }

    /// A frame as a place in the code: its function, file and line. Generated code is replaced by the user's line that it was
    /// generated from, if the recording has that line.
    pub(crate) fn place(&self, id: FrameId) -> Place {
        let Some(frame) = self.snapshot.stacks.frame(id) else { return Place::default() };
        let strings = &self.snapshot.strings;
        let (file, line, name) = original_trace(self.snapshot, frame)
            .unwrap_or_else(|| (strings.get(frame.filename), frame.line, strings.get(frame.name)));
        let is_python = self.kind(id).is_python();
        let function = if is_python { line_label(file, 0, name, false) } else { self.label(id) };
        // Operators, modules and C++ frames without symbols have something other than a file there.
        let has_file = is_python || !(file == "??" || file.starts_with('['));
        Place {
            function,
            name: clipped(name).to_owned(),
            file: if has_file { clipped(file).to_owned() } else { String::new() },
            line: Some(line).filter(|&line| is_python && has_line(line, file)),
        }
    }

    /// The function of a frame, without its line: `file.py function`.
    pub fn function(&self, id: FrameId) -> String {
        let Some(frame) = self.snapshot.stacks.frame(id) else { return String::new() };
        let name = self.snapshot.strings.get(frame.name);
        if self.kind(id).is_python() {
            line_label(self.snapshot.strings.get(frame.filename), 0, name, false)
        } else {
            self.label(id)
        }
    }

    /// The file of a stack's site.
    pub fn file(&self, stack: StackId) -> String {
        let frame =
            self.site_frame(stack).and_then(|frame| self.snapshot.stacks.frame(frame).map(|data| (frame, data)));
        match frame {
            None => NO_STACK.to_owned(),
            Some((id, frame)) => match original_trace(self.snapshot, frame) {
                Some((file, _, _)) => file.to_owned(),
                None if self.kind(id).is_python() => self.snapshot.strings.get(frame.filename).to_owned(),
                None => self.elsewhere(stack).to_owned(),
            },
        }
    }

    /// The Python package that allocates: that of the innermost frame that belongs neither to PyTorch nor to the standard
    /// library, since the innermost frames are always PyTorch's.
    pub fn module(&self, stack: StackId) -> String {
        let frames = self.snapshot.stacks.frame_ids(stack);
        let owned = |&id: &FrameId| matches!(self.kind(id), FrameKind::User | FrameKind::Package);
        let python = |&id: &FrameId| self.kind(id).is_python();
        let frame = frames.iter().copied().find(owned).or_else(|| frames.iter().copied().find(python));
        match frame.and_then(|id| self.snapshot.stacks.frame(id)) {
            Some(frame) => package(self.snapshot.strings.get(frame.filename)).to_owned(),
            None if frames.is_empty() => NO_STACK.to_owned(),
            None => self.elsewhere(stack).to_owned(),
        }
    }

    /// The Python package that a frame's file belongs to.
    pub fn package_of(&self, frame: FrameId) -> &'s str {
        self.snapshot.stacks.frame(frame).map_or("", |frame| package(self.snapshot.strings.get(frame.filename)))
    }

    /// The label for the file of a stack without Python.
    fn elsewhere(&self, stack: StackId) -> &'static str {
        let is_native = |&frame: &FrameId| matches!(self.kind(frame), FrameKind::Native | FrameKind::Plumbing);
        if self.snapshot.stacks.frame_ids(stack).iter().any(is_native) { "(C++)" } else { NO_PYTHON }
    }

    /// Whether a stack has Python frames.
    pub fn has_python(&self, stack: StackId) -> bool {
        self.snapshot.stacks.frame_ids(stack).iter().any(|&frame| self.kind(frame).is_python())
    }

    /// The user's line that generated code comes from, if the recording has it (`augment_with_fx_traces`).
    pub fn original_line(&self, id: FrameId) -> Option<String> {
        let frame = self.snapshot.stacks.frame(id)?;
        let (file, line, name) = original_trace(self.snapshot, frame)?;
        Some(format!("{}:{line} {name}", short_path(file)))
    }
}

/// Whether [`crate::model::View::own`] names a Python frame's file or package.
fn is_named_own(snapshot: &Snapshot, frame: &Frame) -> bool {
    let file = snapshot.strings.get(frame.filename);
    snapshot.view.own.iter().any(|own| own.is_match(file) || own.is_match(package(file)))
}

/// The label of backward memory, from that of the forward line that caused it.
pub fn backward_of(label: &str) -> String {
    format!("backward of {label}")
}

/// The innermost entry of `fx_original_trace`, a Python traceback: `File "x.py", line 7, in forward`.
fn original_trace<'s>(snapshot: &'s Snapshot, frame: &Frame) -> Option<(&'s str, u64, &'s str)> {
    let trace = snapshot.strings.get(frame.fx?.original_trace);
    trace.lines().rev().find_map(traceback::location)
}

/// A line of Python code as `file.py:line function`, without the line number if there is none.
pub fn line_label(file: &str, line: u64, name: &str, whole_path: bool) -> String {
    let file = clipped(if whole_path { file } else { short_path(file) });
    let name = clipped(name);
    if has_line(line, file) { format!("{file}:{line} {name}") } else { format!("{file} {name}") }
}

/// The most frames in an example of a row's stacks: no program nests as deep, and every row has an example.
const MOST_FRAMES: usize = 512;
/// The most bytes of their labels; no program has names as long.
pub(crate) const LONGEST_STACK: usize = 64 << 10;
/// The same if a recording has so many long labels that they would fill the memory.
pub(crate) const SHORTENED_STACK: usize = 1 << 10;
/// From this many bytes of labels on, there are too many.
pub(crate) const LONG_STACKS: usize = 64 << 20;
/// The longest name that is shown, in bytes: in a malicious file, one name may be a million bytes long and be on every stack.
const LONGEST_NAME: usize = 2048;

/// The start of a name, if it is too long to be shown.
pub(crate) fn clipped(name: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

/// A path as people refer to it: relative to the package for installed code, otherwise the file's name.
fn short_path(file: &str) -> &str {
    installed_path(file).unwrap_or_else(|| file.rsplit(['/', '\\']).next().unwrap_or(file))
}
