//! Engine runs inside of a forward pass: `torch.autograd.grad`, `jvp`, `vjp` and `torch.func`, called by a model.
//!
//! The engine's threads have no Python frames, so the stacks of such a run look like those of a step's backward pass. It is none
//! if the same call of the model goes on with code that it has not run yet, and no block has the size of a parameter, as
//! gradients of parameters have.

use super::phases::{Phase, PhaseSpan};
use super::role::{Role, Roles};
use crate::model::{Action, FrameId, StackId};
use crate::replay::Track;
use std::collections::HashSet;
use std::ops::Range;

/// Makes each backward span inside of a forward pass a part of it.
pub(super) fn join(spans: Vec<PhaseSpan>, track: Track<'_>, roles: &Roles) -> Vec<PhaseSpan> {
    // Of a recording that starts late, the first forward pass may be cut, so that the next one starts with other code.
    if track.history.completeness.has_baseline {
        return spans;
    }
    let search = Search { track, roles };
    // The code with which forward goes on.
    let mut goes_on: HashSet<StackId> = HashSet::new();
    let mut joined: Vec<PhaseSpan> = Vec::with_capacity(spans.len());
    for (index, &span) in spans.iter().enumerate() {
        let after = spans.get(index + 1).filter(|after| after.phase == Phase::Forward && !after.recorded);
        match (joined.last_mut().filter(|last| !last.recorded && !span.recorded), after) {
            (Some(last), _) if last.phase == span.phase => last.end = span.end,
            (Some(last), Some(after))
                if last.phase == Phase::Forward
                    && span.phase == Phase::Backward
                    && search.is_inner(*last, span, *after, &mut goes_on) =>
            {
                last.end = span.end;
            }
            _ => joined.push(span),
        }
    }
    joined
}

struct Search<'a> {
    track: Track<'a>,
    roles: &'a Roles,
}

impl Search<'_> {
    fn is_inner(&self, before: PhaseSpan, span: PhaseSpan, after: PhaseSpan, goes_on: &mut HashSet<StackId>) -> bool {
        let Some(next) = self.modules(after.start..after.end).next() else { return false };
        if goes_on.contains(&next) {
            return true;
        }
        let mut known = self.modules(before.start..before.end);
        let Some(last) = known.next_back() else { return false };
        let is_new = last != next && !known.any(|stack| stack == next);
        if !is_new || self.callers(last) != self.callers(next) || self.has_gradients(before, span) {
            return false;
        }
        goes_on.insert(next);
        true
    }

    /// The stacks of allocations in modules.
    fn modules(&self, entries: Range<u32>) -> impl DoubleEndedIterator<Item = StackId> {
        let is_alloc = |entry: &u32| self.track.action(*entry) == Some(Action::Alloc);
        let stacks = entries.filter(is_alloc).map(|entry| self.track.stack(entry));
        stacks.filter(|&stack| self.roles.role(stack) == Role::Module)
    }

    /// The frames that call the model.
    fn callers(&self, stack: StackId) -> &[FrameId] {
        let frames = self.track.snapshot.stacks.frame_ids(stack);
        let outermost = frames.iter().rposition(|&frame| self.roles.is_module_call(frame));
        outermost.map_or(&[], |call| &frames[call + 1..])
    }

    /// Whether a block of the span has the size of one that was there before forward, such as a parameter; also if nothing was.
    fn has_gradients(&self, before: PhaseSpan, span: PhaseSpan) -> bool {
        let history = self.track.history;
        let [forward, start, end] = [before.start, span.start, span.end].map(|entry| history.born_after(entry));
        let old = history.allocations[..forward].iter().filter(|block| block.allocated_at(span.end));
        let old: HashSet<u64> = old.map(|block| block.requested).collect();
        old.is_empty() || history.allocations[start..end].iter().any(|block| old.contains(&block.requested))
    }
}
