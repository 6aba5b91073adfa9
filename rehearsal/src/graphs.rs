//! CUDA graphs: captured work is done while it is captured, and nothing is done when a graph is launched.

use crate::exports::put;
use crate::state::status;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// What handles of graphs, of what is made of them, and of their nodes point to. One is as good as many: nothing is in them.
#[repr(C)]
pub struct Graph([u64; 8]);

static GRAPH: Graph = Graph([0; 8]);
static CAPTURES: AtomicU64 = AtomicU64::new(0);

/// The graph of any capture.
pub fn capture_graph() -> *mut Graph {
    (&raw const GRAPH).cast_mut()
}

/// A number for a capture that begins.
pub fn begin_capture() -> u64 {
    CAPTURES.fetch_add(1, Ordering::Relaxed) + 1
}

exports! {
    fn cudaGraphCreate(to: *mut *mut Graph, _flags: u32) -> i32 {
        put(to, capture_graph());
        status::SUCCESS
    }
    fn cudaGraphGetNodes(_graph: *mut Graph, nodes: *mut *mut Graph, count: *mut usize) -> i32 {
        // A graph without nodes makes PyTorch warn that nothing was captured.
        put(nodes, capture_graph());
        put(count, 1);
        status::SUCCESS
    }
    fn cudaGraphInstantiate(to: *mut *mut Graph, _graph: *mut Graph, _flags: u64) -> i32 {
        put(to, capture_graph());
        status::SUCCESS
    }
    fn cudaGraphInstantiateWithFlags(to: *mut *mut Graph, _graph: *mut Graph, _flags: u64) -> i32 {
        put(to, capture_graph());
        status::SUCCESS
    }
    fn cudaGraphNodeGetDependencies(
        _node: *mut c_void, _nodes: *mut c_void, _edges: *mut usize, _count: *mut usize,
    ) -> i32 {
        status::NOT_SUPPORTED
    }
}
