//! Checks whether a recording contains the data for a grouping.

use super::GroupBy;
use crate::error::{Error, Result};
use crate::facts::code::frames::{FrameKind, dispatched_operator};
use crate::facts::device::{Device, Devices};
use crate::facts::training::Phase;
use crate::model::{FrameId, StrId};

impl GroupBy {
    /// The groupings that a recording supports: those that [`crate::analysis::peak::PeakReport::of`] does not refuse.
    pub fn told(recording: &Devices<'_>) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|by| by.require_told(recording).is_ok())
    }

    /// Whether a recording shows these groups: without them, all memory would be a single row. Sites are the default, so a
    /// recording without them is reported in another way.
    ///
    /// # Errors
    /// If it does not, with what to record.
    pub(crate) fn require_told(self, recording: &Devices<'_>) -> Result<()> {
        let snapshot = recording.snapshot();
        let is_told = match self {
            Self::Stack | Self::Function | Self::File | Self::Module => snapshot.stacks.frame_count() > 0,
            Self::Annotation => !snapshot.annotations.is_empty(),
            Self::Stream => snapshot.notes.format.has_segments(),
            Self::Pool => has_pools(recording),
            Self::Metadata => snapshot.contexts.iter().any(|context| context.user_metadata != StrId::EMPTY),
            Self::Operator => has_operators(recording),
            Self::NnModule => has_kind(recording, FrameKind::NnModule),
            Self::Phase => has_phases(recording),
            Self::ModulePath => has_phases(recording) || calls_modules(recording),
            Self::Holder | Self::HolderRoot => snapshot.notes.holders.is_some(),
            _ => true,
        };
        let expected = match self {
            Self::Stack | Self::Function | Self::File | Self::Module => "stacks (context=\"all\" records them)",
            Self::Annotation => "record_function ranges",
            Self::Stream => "a snapshot (other files have no streams)",
            Self::Pool => "a snapshot of PyTorch 2.1 or later (others have no pools)",
            Self::Metadata => "metadata (torch.cuda.memory._set_memory_metadata sets it, PyTorch 2.11 and later)",
            Self::Operator => "a profiler trace, or a snapshot with C++ stacks (stacks=\"all\")",
            Self::NnModule => "a profiler trace with module calls (with_stack=True)",
            Self::Holder | Self::HolderRoot => "holders (torch_memviz.record and memviz rehearse record them)",
            _ => "forward, backward or optimizer code in stacks or annotations",
        };
        // An empty recording does not have a single row.
        if is_told || recording.all().is_empty() {
            return Ok(());
        }
        Err(Error::Request(format!("expected {expected}, which --by {} needs; found none", self.option())))
    }
}

/// Whether any segment or entry is known to be in a pool.
fn has_pools(recording: &Devices<'_>) -> bool {
    let snapshot = recording.snapshot();
    snapshot.segments.iter().any(|segment| segment.pool.is_some())
        || snapshot.contexts.iter().any(|context| context.pool.is_some())
}

fn has_kind(recording: &Devices<'_>, kind: FrameKind) -> bool {
    frames(recording).any(|id| recording.sites().kind(id) == kind)
}

/// Whether any stack names an operator: see [`crate::facts::code::sites::Sites::operator`].
fn has_operators(recording: &Devices<'_>) -> bool {
    let snapshot = recording.snapshot();
    let name = |id| snapshot.stacks.frame(id).map_or("", |frame| snapshot.strings.get(frame.name));
    frames(recording).any(|id| match recording.sites().kind(id) {
        FrameKind::Operator => true,
        FrameKind::Plumbing => dispatched_operator(name(id)).is_some(),
        _ => false,
    })
}

fn has_phases(recording: &Devices<'_>) -> bool {
    let spans = |device: &Device<'_>| device.phases().spans.iter().any(|span| span.phase != Phase::Other);
    recording.all().iter().any(spans) || has_kind(recording, FrameKind::NnModule)
}

/// Whether any stack contains a call of a module.
fn calls_modules(recording: &Devices<'_>) -> bool {
    frames(recording).any(|id| recording.roles().is_module_call(id))
}

fn frames(recording: &Devices<'_>) -> impl Iterator<Item = FrameId> {
    (0..recording.snapshot().stacks.frame_count() as u32).map(FrameId)
}
