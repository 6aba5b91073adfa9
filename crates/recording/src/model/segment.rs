//! The allocator's state at dump time: segments and their blocks.

use super::{DeviceId, StackId};

/// Identity of a memory pool: `(0, 0)` is the default pool, anything else a private one (CUDA graphs, `MemPool`).
pub type PoolId = (u64, u64);

/// The pool of requests that name no other pool.
pub const DEFAULT_POOL: PoolId = (0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// Blocks of up to 1 MiB.
    Small,
    /// Blocks over 1 MiB.
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    ActiveAllocated,
    /// Freed by the program, but still in use by another stream. PyTorch writes `active_pending_free` and documents
    /// `active_awaiting_free`.
    ActivePendingFree,
    /// Free.
    Inactive,
}

/// A range of device memory obtained from the driver.
#[derive(Clone, Debug)]
pub struct Segment {
    pub device: DeviceId,
    pub address: u64,
    pub total_size: u64,
    /// Bytes in allocated blocks, as PyTorch counted them.
    pub allocated_size: u64,
    /// Bytes in blocks that are allocated or pending free.
    pub active_size: u64,
    /// Bytes requested in active blocks; absent in the oldest files.
    pub requested_size: Option<u64>,
    /// CUDA stream, 0 for the default one.
    pub stream: u64,
    pub segment_type: SegmentType,
    /// Default or private pool; `None` in the oldest files, which do not record it.
    pub pool: Option<PoolId>,
    /// Whether it is a mapped range of an expandable segment.
    pub is_expandable: bool,
    pub stack: StackId,
    /// Its blocks in address order; they tile the segment.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address. If the file has none (PyTorch 2.0), it is the segment's address plus the sizes of the blocks before.
    pub address: u64,
    pub size: u64,
    /// The requested size; outdated in inactive blocks, where it must be ignored.
    pub requested_size: u64,
    pub state: BlockState,
    pub stack: StackId,
    /// `forward_frames` of the allocation: see [`super::EntryContext::forward`].
    pub forward: StackId,
}
