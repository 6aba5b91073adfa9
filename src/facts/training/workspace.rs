//! The scratch memory of cuBLAS and cuBLASLt.
//!
//! PyTorch gives each of their handles, one for each thread and stream, a block when it is first used, and never takes it
//! back. `CUBLAS_WORKSPACE_CONFIG` and `CUBLASLT_WORKSPACE_SIZE` change the sizes; such workspaces are not recognized
//! without C++ frames.

use super::periods::{Cursor, Periods};
use super::phases::Phase;
use super::role::{Role, Roles};
use crate::model::StackId;
use crate::replay::{Allocation, History, NEVER, Track};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// `:4096:2:16:8`, in KiB: that of cuBLAS below compute capability 9.0. Nothing else is likely to have this size.
const DISTINCT: u64 = (4096 * 2 + 16 * 8) * 1024;
/// From compute capability 9.0 on.
const LARGE: u64 = 32 << 20;
/// That of cuBLASLt below.
const SMALL: u64 = 1 << 20;

/// Whether a workspace may have this size.
pub(super) fn is_size(requested: u64) -> bool {
    [DISTINCT, LARGE, SMALL].contains(&requested)
}

/// Whether a workspace may have this size, and hardly anything else.
pub(super) fn is_distinct_size(requested: u64) -> bool {
    requested == DISTINCT
}

/// How many blocks are made, and how many of them are never freed.
#[derive(Clone, Copy, Default)]
struct Count {
    made: u32,
    kept: u32,
}

/// The blocks of a device that have the size of a workspace.
pub(super) struct Workspaces {
    by_stack: HashMap<(StackId, u64), Count, RandomState>,
    /// Those that outlive the backward period with this index, which made them, but for what it ran again.
    by_backward: HashMap<(usize, u64), Count, RandomState>,
}

impl Workspaces {
    pub(super) fn of(track: Track<'_>, periods: &Periods, roles: &Roles) -> Self {
        let history = track.history;
        let mut workspaces = Self { by_stack: HashMap::default(), by_backward: HashMap::default() };
        let mut cursor = Cursor::new(periods);
        for (index, &Allocation { requested, born, freed, .. }) in history.allocations.iter().enumerate() {
            if !is_size(requested) {
                continue;
            }
            let add = |count: &mut Count| {
                count.made += 1;
                count.kept += u32::from(freed == NEVER);
            };
            let stack = track.stack_of(index);
            add(workspaces.by_stack.entry((stack, requested)).or_default());
            let place = History::entry_before(born).and_then(|entry| cursor.find(entry));
            if let Some((number, period)) = place
                && period.phase == Phase::Backward
                && period.outlived_by(freed)
                && roles.role(stack) != Role::Recompute
            {
                add(workspaces.by_backward.entry((number, requested)).or_default());
            }
        }
        workspaces
    }

    /// Whether a block whose stack tells calls apart is a workspace: never freed, unlike whatever else its stack makes. A
    /// leak is made again. `None` where it remains to be seen, as no step went on without freeing it.
    pub(super) fn has(&self, stack: StackId, allocation: &Allocation, outlives_step: bool) -> Option<bool> {
        let &Allocation { requested, freed, .. } = allocation;
        // Nearly every block goes, and is asked about: that needs no look at the others.
        if freed != NEVER {
            return Some(false);
        }
        let Count { made, kept } = self.by_stack.get(&(stack, requested)).copied().unwrap_or_default();
        match () {
            () if kept != 1 => Some(false),
            () if outlives_step || is_distinct_size(requested) => Some(true),
            // What the last step made, as those before.
            () if made > 1 => Some(false),
            () => None,
        }
    }

    /// Whether a block that outlives the backward period which made it is a workspace, where there are so many
    /// parameters of its size: all stacks of backward are alike. `None` where nobody can tell it from a gradient.
    pub(super) fn has_in_backward(&self, number: usize, allocation: &Allocation, parameters: u32) -> Option<bool> {
        let &Allocation { requested, freed, .. } = allocation;
        let Count { made, kept } = self.by_backward.get(&(number, requested)).copied().unwrap_or_default();
        match made.checked_sub(parameters) {
            None | Some(0) => Some(false),
            _ if freed != NEVER => Some(false),
            // One thread of backward takes one for its stream: more are gradients whose parameters nobody saw.
            Some(surplus) if surplus == kept && (surplus == 1 || is_distinct_size(requested)) => Some(true),
            Some(_) => None,
        }
    }
}
