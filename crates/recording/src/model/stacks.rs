//! Interned stack frames and stacks.
//!
//! A million trace entries refer to a few hundred stacks with a few hundred frames, so both are stored once. A stack is a
//! flat list of frame IDs, innermost first as PyTorch records it; analyses walk it in that order.

use super::StrId;
use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// ID of a frame in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(#[doc(hidden)] pub u32);

/// ID of a stack in [`Stacks`]. ID 0 is the empty stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(#[doc(hidden)] pub u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(0);

    /// Position in the table, usable as an index into a side table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// Position in the table, usable as an index into a side table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Source file; a shared object, `??` or empty for C++ frames.
    pub filename: StrId,
    pub name: StrId,
    /// Line number; `u64::MAX` for compiled code; a byte offset for C++ frames of PyTorch 2.15.
    pub line: u64,
    /// The FX node of the frame, if recorded with `augment_with_fx_traces`.
    pub fx: Option<FxNode>,
}

/// What `augment_with_fx_traces` adds to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FxNode {
    /// `fx_node_op`, for instance `call_function`.
    pub op: StrId,
    pub name: StrId,
    pub target: StrId,
    /// `fx_original_trace`: the user's source lines that the node was traced from.
    pub original_trace: StrId,
}

/// Placeholders for file names: what a profiler trace has on its stacks besides Python functions.
pub mod special {
    /// An operator or autograd node, named by [`super::Frame::name`].
    pub const OPERATOR: &str = "[operator]";
    /// A call of an `nn.Module`, such as `Linear_0`.
    pub const MODULE: &str = "[nn.Module]";
    /// Frames outside this one belong to the forward operator of the backward frames inside it.
    pub const BACKWARD: &str = "[backward]";
    /// A category of `export_memory_timeline`.
    pub const CATEGORY: &str = "[category]";
}

#[derive(Clone, Debug)]
pub struct Stacks {
    frames: IndexSet<Frame, RandomState>,
    stacks: IndexSet<Box<[FrameId]>, RandomState>,
}

impl Default for Stacks {
    fn default() -> Self {
        let mut stacks = IndexSet::default();
        stacks.insert(Box::default());
        Self { frames: IndexSet::default(), stacks }
    }
}

impl Stacks {
    pub fn intern_frame(&mut self, frame: Frame) -> FrameId {
        FrameId(self.frames.insert_full(frame).0 as u32)
    }

    /// The ID of the stack of `frames`, innermost first, added if it is new.
    pub fn intern_stack(&mut self, frames: &[FrameId]) -> StackId {
        if let Some(index) = self.stacks.get_index_of(frames) {
            return StackId(index as u32);
        }
        StackId(self.stacks.insert_full(frames.into()).0 as u32)
    }

    /// The frame with this ID; `None` for an ID of another table.
    pub fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get_index(id.index())
    }

    pub fn frame_ids(&self, id: StackId) -> &[FrameId] {
        self.stacks.get_index(id.index()).map_or(&[], |frames| frames)
    }

    pub fn frames(&self, id: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frame_ids(id).iter().filter_map(|&frame| self.frame(frame))
    }

    /// Every frame, in order of first use.
    pub fn all_frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }

    /// Number of distinct stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Always false: the empty stack is always there.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}

/// Whether a frame's file is a binary (`libtorch_cpu.so`, `libcudart.so.12`, a DLL), so that its line is an offset.
pub fn is_shared_object(file: &str) -> bool {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file).to_ascii_lowercase();
    name.split('.').skip(1).any(|extension| matches!(extension, "so" | "dll" | "pyd" | "dylib"))
}
