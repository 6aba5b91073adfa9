//! The backward pass as a list of autograd nodes, as far as the allocator sees them.
//!
//! The engine runs one node after the other. A node allocates the gradients of its inputs; then the engine drops the
//! gradient that came in and the tensors that the node had saved. So a new node begins with an allocation that follows
//! such frees. Two nodes that free nothing in between count as one, and so do a node and the ones after it that
//! allocate nothing.

use super::role::{Role, Roles};
use super::tape::Tape;
use crate::model::{Action, Snapshot, StackId};
use crate::replay::History;
use std::ops::Range;

/// What a node allocated and freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Allocations without Python frames, by index into [`History::allocations`], in order.
    pub made: Vec<u32>,
    /// Makers of the tensors that it had saved and that are gone after it, by index into the tape.
    pub saved: Vec<usize>,
    /// Bytes of gradients of earlier nodes that it freed.
    pub incoming: Vec<u64>,
    /// Bytes of allocations of its own that it freed.
    pub temporary: Vec<u64>,
}

/// Nodes that ran without anything being added to the tape in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// In order.
    pub nodes: Vec<Node>,
    /// The tape's length when they ran: the engine starts at its end.
    pub tape_len: usize,
    /// The tape's length when the engine ran before that.
    pub tape_start: usize,
    /// Whether the tape ends with operators that ran again.
    pub is_recomputed: bool,
}

/// Reads the entries of one device as nodes.
pub(super) struct NodeReader<'a> {
    pub snapshot: &'a Snapshot,
    pub history: &'a History,
    pub roles: &'a Roles,
    pub tape: &'a Tape,
}

impl NodeReader<'_> {
    fn stack(&self, entry: u32) -> StackId {
        self.snapshot.entries.stack(self.history.rows.start + entry as usize)
    }

    fn action(&self, entry: u32) -> Action {
        let row = self.history.rows.start + entry as usize;
        self.snapshot.entries.actions().get(row).copied().unwrap_or(Action::Unknown)
    }

    /// Whether a stack is one of Python code that is no part of backward.
    fn is_outside(&self, stack: StackId) -> bool {
        self.roles.has_python(stack) && !matches!(self.roles.role(stack), Role::Backward | Role::Recompute)
    }

    /// The entries of the backward pass around one of its entries: those between two allocations outside.
    pub fn pass_around(&self, entry: u32) -> Range<u32> {
        let ends = |&entry: &u32| self.action(entry) == Action::Alloc && self.is_outside(self.stack(entry));
        let start = (0..entry).rev().find(ends).map_or(0, |outside| outside + 1);
        start..(entry..self.history.entries()).find(ends).unwrap_or(self.history.entries())
    }

    /// The nodes that ran in a backward pass.
    pub fn runs(&self, pass: Range<u32>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut starts_anew, mut is_recomputed) = (true, false);
        for entry in pass {
            let Some(&allocation) = self.history.links.get(entry as usize) else { break };
            let stack = self.stack(entry);
            match self.action(entry) {
                Action::Alloc if self.roles.is_engine(stack) => {
                    if starts_anew {
                        let tape_start = runs.last().map_or(0, |run| run.tape_len);
                        let tape_len = self.tape.len_at(allocation);
                        runs.push(Run { nodes: Vec::new(), tape_len, tape_start, is_recomputed });
                        starts_anew = false;
                    }
                    let Some(run) = runs.last_mut() else { continue };
                    match run.nodes.last_mut().filter(|node| node.saved.is_empty() && node.incoming.is_empty()) {
                        Some(node) => node.made.push(allocation),
                        None => run.nodes.push(Node { made: vec![allocation], ..Node::default() }),
                    }
                }
                Action::Alloc if self.roles.role(stack) == Role::Recompute => {
                    (starts_anew, is_recomputed) = (true, true);
                }
                Action::Alloc if self.roles.makes_first_gradients(stack) => {
                    (starts_anew, is_recomputed) = (true, false);
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(node) = runs.last_mut().and_then(|run| run.nodes.last_mut()) {
                        self.free(node, allocation, entry);
                    }
                }
                _ => {}
            }
        }
        runs
    }

    /// Adds to a node what it freed.
    fn free(&self, node: &mut Node, allocation: u32, entry: u32) {
        let freed = self.history.allocations.get(allocation as usize);
        // A free is recorded twice: when it is requested, and when it is completed.
        let Some(freed) = freed.filter(|freed| freed.freed == entry + 1) else { return };
        let made_by = self.history.stack_of(self.snapshot, allocation as usize);
        // A variable that goes out of scope. PyTorch 2.0 records with every free the stack of the allocation.
        let stack = self.stack(entry);
        if stack != made_by && self.is_outside(stack) {
            return;
        }
        if let Some(maker) = self.tape.maker(allocation) {
            node.saved.push(maker);
        } else if self.roles.is_engine(made_by) {
            // Whatever was allocated since the node's first allocation is its own.
            let own = node.made.first().is_some_and(|&first| first <= allocation);
            if own { &mut node.temporary } else { &mut node.incoming }.push(freed.requested);
        }
    }
}
