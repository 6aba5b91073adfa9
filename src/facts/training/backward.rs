//! Infers the forward line that an allocation of backward belongs to.
//!
//! The engine's threads have no Python frames, so a snapshot does not show the line. But the engine runs the nodes of the
//! autograd graph in the reverse order of forward (by sequence number, the highest first), and what a node frees shows where
//! in forward it belongs: the tensors that it had saved carry their forward stacks. `nodes` divides backward into nodes,
//! `operators` lists the operators of forward; `Alignment` here matches the two.

use super::forward_operators::ForwardOperators;
use super::nodes::{Node, NodeReader, Run};
use super::role::{Role, Roles};
use crate::model::StackId;
use crate::replay::{History, Track};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// The forward stacks of allocations that backward made without Python frames, as far as they can be inferred. Each backward
/// pass is processed when one of its allocations is first requested.
#[derive(Clone, Debug, Default)]
pub struct BackwardSites {
    operators: ForwardOperators,
    /// In order.
    passes: Vec<Pass>,
}

/// A backward pass.
#[derive(Clone, Debug)]
struct Pass {
    entries: Range<u32>,
    /// Its allocations, as indexes into [`History::allocations`].
    made: Range<u32>,
    /// The forward stack of each of them; the empty stack if unknown.
    stacks: OnceLock<Vec<StackId>>,
}

impl BackwardSites {
    /// Finds the backward passes of a device, in time linear in its entries. This infers nothing yet.
    pub fn of(track: Track<'_>, roles: &Roles) -> Self {
        let stacks = (0..track.snapshot.stacks.len() as u32).map(StackId);
        let kinds: Vec<Kind> = stacks.map(|stack| Kind::of(stack, roles)).collect();
        let mut passes = PassReader { history: track.history, start: 0, is_backward: false, passes: Vec::new() };
        let mut operators = ForwardOperators::for_allocations(track.history.allocations.len());
        // One loop for both: finding the entries that allocate takes longer than what either does with them.
        for (entry, allocation, stack) in track.births() {
            let kind = kinds.get(stack.index()).copied().unwrap_or_default();
            passes.read(entry, kind);
            operators.read(allocation, stack, kind.is_forward);
        }
        let passes = passes.finish();
        if passes.is_empty() || operators.is_empty() { Self::default() } else { Self { operators, passes } }
    }

    /// The forward stack of the allocation with this index. `track` and `roles` must be those that the passes were found
    /// with.
    pub fn forward_stack(&self, track: Track<'_>, roles: &Roles, allocation: usize) -> Option<StackId> {
        if !roles.is_engine(track.stack_of(allocation)) {
            return None;
        }
        let index = u32::try_from(allocation).ok()?;
        let pass = self.passes.get(self.passes.partition_point(|pass| pass.made.end <= index))?;
        let place = index.checked_sub(pass.made.start)?;
        let stacks = pass.stacks.get_or_init(|| self.stacks(track, roles, pass));
        stacks.get(place as usize).copied().filter(|&stack| stack != StackId::EMPTY)
    }

    /// Infers the forward stack of each allocation of a pass, in time linear in its entries.
    fn stacks(&self, track: Track<'_>, roles: &Roles, pass: &Pass) -> Vec<StackId> {
        let (history, operators) = (track.history, &self.operators);
        let mut stacks = vec![StackId::EMPTY; pass.made.len()];
        for run in (NodeReader { track, roles, operators }).runs(pass.entries.clone()) {
            let found = Alignment { history, operators, run: &run }.operators();
            for (node, operator) in run.nodes().zip(found) {
                let Some(operator) = operator.and_then(|operator| operators.get(operator)) else { continue };
                for &made in node.made {
                    let place = made.checked_sub(pass.made.start);
                    if let Some(stack) = place.and_then(|place| stacks.get_mut(place as usize)) {
                        *stack = operator.stack;
                    }
                }
            }
        }
        stacks
    }
}

/// What the stack of an allocation says about it.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// The autograd engine allocated it.
    is_engine: bool,
    /// It is from outside backward.
    is_outside: bool,
    /// Backward can refer to it, as [`ForwardOperators`] describes.
    is_forward: bool,
}

impl Kind {
    fn of(stack: StackId, roles: &Roles) -> Self {
        Self {
            is_engine: roles.is_engine(stack),
            is_outside: roles.is_outside(stack),
            is_forward: matches!(roles.role(stack), Role::Module | Role::Plain | Role::Recompute),
        }
    }
}

/// Finds the backward passes: allocations by the engine, up to the next allocation outside backward.
struct PassReader<'a> {
    history: &'a History,
    /// The entry after the last allocation outside backward.
    start: u32,
    /// Whether the engine has allocated since then.
    is_backward: bool,
    passes: Vec<Pass>,
}

impl PassReader<'_> {
    /// Reads the next entry that allocates.
    #[inline]
    fn read(&mut self, entry: u32, kind: Kind) {
        self.is_backward |= kind.is_engine;
        if kind.is_outside {
            if self.is_backward {
                self.end_pass(entry);
            }
            (self.start, self.is_backward) = (entry + 1, false);
        }
    }

    fn end_pass(&mut self, end: u32) {
        let behind = |entry: u32| self.history.born_after(entry) as u32;
        let (entries, made) = (self.start..end, behind(self.start)..behind(end));
        self.passes.push(Pass { entries, made, stacks: OnceLock::new() });
    }

    /// The passes, after the last entry.
    fn finish(mut self) -> Vec<Pass> {
        if self.is_backward {
            self.end_pass(self.history.entries());
        }
        self.passes
    }
}

/// The most operators compared with one node, and the most sizes of each kind. This bounds the time for a malicious file.
const WINDOW: usize = 32;
/// Score if the incoming gradient has the size of an operator's output; each input scores 1.
const FITS: usize = 2;

/// Matches nodes to operators.
struct Alignment<'a> {
    history: &'a History,
    operators: &'a ForwardOperators,
    run: &'a Run,
}

impl Alignment<'_> {
    /// The operator of each node.
    fn operators(&self) -> Vec<Option<usize>> {
        let mut operators = Vec::with_capacity(self.run.len());
        // Operators from here on are finished.
        let mut done = self.run.operator_count;
        for index in 0..self.run.len() {
            let operator = self.by_saved_tensors(index, done);
            // Recomputing stops as soon as everything is restored, so the last operators may be missing: their nodes then
            // seem to belong to the last operator that was recomputed, whose own node is still to come.
            let is_open = |&operator: &usize| self.run.is_recomputed && operator + 1 == self.run.operator_count;
            done = operator.filter(|operator| !is_open(operator)).unwrap_or(done);
            operators.push(operator);
        }
        if operators.iter().any(Option::is_some) {
            self.fill_gaps(&mut operators);
        }
        operators
    }

    /// The operator of a node that freed saved tensors.
    ///
    /// A saved tensor is an input of the operator or its own output, so the operator is the one that allocated the latest
    /// saved tensor, or one that ran after it and before the operator of the previous node. (A tensor saved by several
    /// operators is freed with the first of their nodes.) Sizes decide: the incoming gradient is as large as the operator's
    /// output; the gradients that the node allocates are as large as its inputs, which the operator or the one before it
    /// allocated.
    fn by_saved_tensors(&self, index: usize, done: usize) -> Option<usize> {
        let node = self.run.node(index)?;
        let latest = |end: usize| node.saved.iter().copied().filter(|&maker| maker <= end).max();
        // A later tensor belongs to a variable that went out of scope, unless there is no other: then a second pass goes
        // through the same graph.
        let (maker, last) = match latest(done) {
            Some(maker) => (maker, done),
            None => (latest(self.run.operator_count)?, self.run.operator_count),
        };
        let last = last.min(maker + WINDOW);
        let from_maker = node.saved.iter().filter(|&&saved| saved == maker).count();
        // The mean and deviation of a norm, or copies for a matrix product: only the operator itself saves two tensors that
        // it allocated.
        if from_maker > 1 {
            return Some(maker);
        }
        // On a tie, the next operator is chosen, since the tensor is most likely its input. This does not hold if the tensor
        // is one of several that its operator allocated while another tensor was saved, too: then the other one is the input,
        // and this one is a mask or a cast weight.
        let other_input = from_maker < node.saved.len() && self.operators.blocks(maker) > 1;
        let first = other_input.then_some(maker);
        let candidates = first.into_iter().chain(maker + 1..last).chain([maker, last]);
        let incoming = self.incoming(index);
        // The first of equal scores counts.
        let most = self.sizes(&node).count() + FITS;
        let mut best = None;
        for candidate in candidates {
            let score = self.score(&node, &incoming, candidate);
            if best.is_none_or(|(known, _)| score > known) {
                best = Some((score, candidate));
            }
            if score == most {
                break;
            }
        }
        best.map(|(_, operator)| operator)
    }

    /// How well the sizes of a node match an operator.
    fn score(&self, node: &Node<'_>, incoming: &[u64], operator: usize) -> usize {
        // If the node consists of two actual nodes, the gradient between them looks like a temporary.
        let gradients = incoming.iter().chain(node.temporary).take(WINDOW);
        let fits = gradients.into_iter().any(|&bytes| self.makes(operator, bytes));
        let is_input = |&bytes: &u64| {
            self.makes(operator, bytes) || operator.checked_sub(1).is_some_and(|before| self.makes(before, bytes))
        };
        let inputs = self.sizes(node).filter(is_input).count();
        inputs + if fits { FITS } else { 0 }
    }

    /// Finds the operators of nodes that freed no saved tensor: they are between those of the neighboring nodes.
    fn fill_gaps(&self, operators: &mut [Option<usize>]) {
        let mut start = 0;
        while start < operators.len() {
            let length = operators[start..].iter().take_while(|operator| operator.is_none()).count();
            let end = start + length;
            let before = start.checked_sub(1).and_then(|before| operators[before]);
            let after = operators.get(end).copied().flatten();
            let mut upper = before.unwrap_or(self.run.operator_count);
            for (offset, operator) in operators[start..end].iter_mut().enumerate() {
                *operator = self.between(start + offset, upper, before, after);
                upper = operator.unwrap_or(upper);
            }
            start = end + 1;
        }
    }

    /// The operator of a node that freed no saved tensor, below `upper`, between those of the nodes `before` and `after` it.
    fn between(&self, index: usize, upper: usize, before: Option<usize>, after: Option<usize>) -> Option<usize> {
        let node = self.run.node(index)?;
        let incoming = self.incoming(index);
        // The gradients of views of a split tensor are combined into one of the tensor's size.
        let total = incoming.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
        let joins = |&after: &usize| self.sizes(&node).any(|bytes| bytes == total && self.makes(after, bytes));
        if let Some(after) = after.filter(|_| incoming.len() > 1).filter(joins) {
            return Some(after);
        }
        let lower = after.unwrap_or(self.run.first_operator).max(upper.saturating_sub(WINDOW));
        let fits = |&operator: &usize| incoming.iter().take(WINDOW).any(|&bytes| self.makes(operator, bytes));
        let fitting = (lower..upper).rev().find(fits);
        // Between two known nodes, the order alone is enough; at the ends, nothing bounds the operator.
        fitting.or(before.filter(|_| after.is_some()))
    }

    /// Sizes of the incoming gradients: those that the node freed; otherwise those that the previous node allocated and that
    /// another node still needs.
    fn incoming(&self, index: usize) -> Cow<'_, [u64]> {
        let incoming = self.run.node(index).map_or(&[][..], |node| node.incoming);
        match index.checked_sub(1).and_then(|before| self.run.node(before)) {
            Some(before) if incoming.is_empty() => self.sizes(&before).collect(),
            _ => Cow::Borrowed(incoming),
        }
    }

    /// Bytes of the blocks that a node allocated.
    fn sizes<'n>(&'n self, node: &Node<'n>) -> impl Iterator<Item = u64> + use<'n> {
        let size = |&made: &u32| self.history.allocations.get(made as usize).map(|made| made.requested);
        node.made.iter().take(WINDOW).filter_map(size)
    }

    fn makes(&self, operator: usize, bytes: u64) -> bool {
        self.operators.makes(self.history, operator, bytes)
    }
}
