//! CUDA graphs: captured work runs during the capture, and launching a graph does nothing.

use crate::exports::put;
use crate::state::status;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// The target of all handles of graphs, executable graphs and nodes. One is enough, since it has no contents.
#[repr(C)]
pub struct Graph([u64; 8]);

static GRAPH: Graph = Graph([0; 8]);
static CAPTURES: AtomicU64 = AtomicU64::new(0);

/// The graph of any capture.
pub fn capture_graph() -> *mut Graph {
    (&raw const GRAPH).cast_mut()
}

/// Returns the number of a new capture.
pub fn begin_capture() -> u64 {
    CAPTURES.fetch_add(1, Ordering::Relaxed) + 1
}

exports! {
    fn cudaGraphCreate(to: *mut *mut Graph, _flags: u32) -> i32 {
        put(to, capture_graph());
        status::SUCCESS
    }
    fn cudaGraphGetNodes(_graph: *mut Graph, nodes: *mut *mut Graph, count: *mut usize) -> i32 {
        // PyTorch warns that nothing was captured if a graph has no nodes.
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
