//! The scratch memory of cuBLAS and cuBLASLt.
//!
//! PyTorch allocates a block for each of their handles (one for each thread and stream) when the handle is first used, and
//! never frees it. `CUBLAS_WORKSPACE_CONFIG` and `CUBLASLT_WORKSPACE_SIZE` change the sizes; such workspaces are not
//! recognized without C++ frames.

use super::periods::{Cursor, Periods};
use super::phases::Phase;
use super::role::{Role, Roles};
use crate::model::StackId;
use crate::replay::{Allocation, History, NEVER, Track};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// `:4096:2:16:8`, in KiB: cuBLAS below compute capability 9.0. No other block is likely to have this size.
const DISTINCT: u64 = (4096 * 2 + 16 * 8) * 1024;
/// cuBLAS from compute capability 9.0 on.
const LARGE: u64 = 32 << 20;
/// cuBLASLt below compute capability 9.0.
const SMALL: u64 = 1 << 20;

/// Whether a workspace may have this size.
pub(crate) fn is_workspace_size(requested: u64) -> bool {
    [DISTINCT, LARGE, SMALL].contains(&requested)
}

/// Whether a workspace may have this size, and hardly any other block has it.
pub(super) fn is_distinct_size(requested: u64) -> bool {
    requested == DISTINCT
}

/// How many blocks are allocated, and how many of them are never freed.
#[derive(Clone, Copy, Default)]
struct Count {
    made: u32,
    kept: u32,
}

/// The blocks of a device that have the size of a workspace.
pub(super) struct Workspaces {
    by_stack: HashMap<(StackId, u64), Count, RandomState>,
    /// Those that outlive the backward period with this index, in which they were allocated, except for recomputation.
    by_backward: HashMap<(usize, u64), Count, RandomState>,
}

impl Workspaces {
    pub(super) fn of(track: Track<'_>, periods: &Periods, roles: &Roles) -> Self {
        let history = track.history;
        let mut workspaces = Self { by_stack: HashMap::default(), by_backward: HashMap::default() };
        let mut cursor = Cursor::new(periods);
        for (index, &Allocation { requested, born, freed, .. }) in history.allocations.iter().enumerate() {
            if !is_workspace_size(requested) {
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

    /// Whether a block with a specific stack is a workspace: never freed, unlike other blocks with its stack. A leak is
    /// allocated again and again. `None` if it is not decided yet, since no step ran to its end without freeing it.
    pub(super) fn has(&self, stack: StackId, allocation: &Allocation, outlives_step: bool) -> Option<bool> {
        let &Allocation { requested, freed, .. } = allocation;
        // Nearly every block is freed, so this check avoids looking at the other blocks.
        if freed != NEVER {
            return Some(false);
        }
        let Count { made, kept } = self.by_stack.get(&(stack, requested)).copied().unwrap_or_default();
        if kept != 1 {
            Some(false)
        } else if outlives_step || is_distinct_size(requested) {
            Some(true)
        } else if made > 1 {
            // Allocated in the last step like in earlier ones.
            Some(false)
        } else {
            None
        }
    }

    /// Whether a block that outlives its backward period is a workspace, if there are this many parameters of its size: all
    /// stacks of backward are alike. `None` if it cannot be distinguished from a gradient.
    pub(super) fn has_in_backward(&self, number: usize, allocation: &Allocation, parameters: u32) -> Option<bool> {
        let &Allocation { requested, freed, .. } = allocation;
        let Count { made, kept } = self.by_backward.get(&(number, requested)).copied().unwrap_or_default();
        match made.checked_sub(parameters) {
            None | Some(0) => Some(false),
            _ if freed != NEVER => Some(false),
            // One backward thread takes one for its stream: further ones are gradients of parameters that were not
            // recognized.
            Some(surplus) if surplus == kept && (surplus == 1 || is_distinct_size(requested)) => Some(true),
            Some(_) => None,
        }
    }
}
