//! The backward pass as a list of autograd nodes, as far as the allocator shows them.
//!
//! The engine runs one node after the other. A node allocates the gradients of its inputs; then the engine frees the incoming
//! gradient and the tensors that the node had saved. So a new node starts with an allocation that follows such frees. Two
//! nodes without frees in between count as one, and so do a node and following nodes that allocate nothing.

use super::forward_operators::ForwardOperators;
use super::role::{Role, Roles};
use crate::model::{Action, StackId};
use crate::replay::Track;
use std::ops::Range;

/// The allocations and frees of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node<'a> {
    /// Allocations without Python frames, by index into [`crate::replay::History::allocations`], in order.
    pub made: &'a [u32],
    /// The operators of the tensors that it had saved and that are freed after it, by index into the operators.
    pub saved: &'a [usize],
    /// Bytes of gradients of earlier nodes that it freed.
    pub incoming: &'a [u64],
    /// Bytes of its own allocations that it freed.
    pub temporary: &'a [u64],
}

/// Nodes that ran without an operator in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Allocations of all nodes, in order; the following lists contain their frees. A pass has tens of thousands of nodes
    /// with a few items each, so they share four lists.
    made: Vec<u32>,
    saved: Vec<usize>,
    incoming: Vec<u64>,
    temporary: Vec<u64>,
    /// Where each node's items start in the lists.
    starts: Vec<Starts>,
    /// The number of operators when the nodes ran: the engine starts at the last operator.
    pub operator_count: usize,
    /// The number of operators at the previous run of the engine.
    pub first_operator: usize,
    /// Whether the last operators are recomputed ones.
    pub is_recomputed: bool,
}

/// Where a node's items start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Starts {
    made: usize,
    saved: usize,
    incoming: usize,
    temporary: usize,
}

impl Run {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        (0..self.len()).filter_map(|index| self.node(index))
    }

    pub fn node(&self, index: usize) -> Option<Node<'_>> {
        let start = self.starts.get(index)?;
        let end = self.starts.get(index + 1).copied().unwrap_or_else(|| self.ends());
        Some(Node {
            made: self.made.get(start.made..end.made)?,
            saved: self.saved.get(start.saved..end.saved)?,
            incoming: self.incoming.get(start.incoming..end.incoming)?,
            temporary: self.temporary.get(start.temporary..end.temporary)?,
        })
    }

    /// Where the items of the next node would start.
    fn ends(&self) -> Starts {
        Starts {
            made: self.made.len(),
            saved: self.saved.len(),
            incoming: self.incoming.len(),
            temporary: self.temporary.len(),
        }
    }

    /// Adds an allocation: to a new node, if the last one has already freed something.
    fn make(&mut self, allocation: u32) {
        let goes_on = |start: &Starts| start.saved == self.saved.len() && start.incoming == self.incoming.len();
        if !self.starts.last().is_some_and(goes_on) {
            self.starts.push(self.ends());
        }
        self.made.push(allocation);
    }
}

/// Reads the entries of one device as nodes.
pub(super) struct NodeReader<'a> {
    pub track: Track<'a>,
    pub roles: &'a Roles,
    pub operators: &'a ForwardOperators,
}

impl NodeReader<'_> {
    fn stack(&self, entry: u32) -> StackId {
        self.track.stack(entry)
    }

    fn action(&self, entry: u32) -> Action {
        self.track.action(entry).unwrap_or(Action::Unknown)
    }

    /// The nodes that ran in a backward pass.
    pub fn runs(&self, pass: Range<u32>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut starts_anew, mut is_recomputed) = (true, false);
        for entry in pass {
            let Some(&allocation) = self.track.history.links.get(entry as usize) else { break };
            let stack = self.stack(entry);
            match self.action(entry) {
                Action::Alloc if self.roles.is_engine(stack) => {
                    if starts_anew {
                        let first_operator = runs.last().map_or(0, |run| run.operator_count);
                        let operator_count = self.operators.len_at(allocation);
                        runs.push(Run { operator_count, first_operator, is_recomputed, ..Run::default() });
                        starts_anew = false;
                    }
                    if let Some(run) = runs.last_mut() {
                        run.make(allocation);
                    }
                }
                Action::Alloc if self.roles.role(stack) == Role::Recompute => {
                    (starts_anew, is_recomputed) = (true, true);
                }
                Action::Alloc if self.roles.makes_first_gradients(stack) => {
                    (starts_anew, is_recomputed) = (true, false);
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(run) = runs.last_mut() {
                        self.free(run, allocation, entry);
                    }
                }
                _ => {}
            }
        }
        runs
    }

    /// Adds a free to the last node of a run.
    fn free(&self, run: &mut Run, allocation: u32, entry: u32) {
        let freed = self.track.allocation(allocation as usize);
        // A free is recorded twice: when it is requested, and when it is completed.
        let Some(freed) = freed.filter(|freed| freed.freed == entry + 1) else { return };
        let made_by = self.track.stack_of(allocation as usize);
        // A variable went out of scope. PyTorch 2.0 records the stack of the allocation with every free.
        let stack = self.stack(entry);
        if stack != made_by && self.roles.is_outside(stack) {
            return;
        }
        if let Some(maker) = self.operators.maker(allocation) {
            run.saved.push(maker);
        } else if self.roles.is_engine(made_by) {
            // Blocks allocated since the node's first allocation are its own.
            let first = run.starts.last().and_then(|start| run.made.get(start.made));
            let own = first.is_some_and(|&first| first <= allocation);
            if own { &mut run.temporary } else { &mut run.incoming }.push(freed.requested);
        }
    }
}
