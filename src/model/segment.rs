//! The allocator's state at dump time: segments and their blocks.

use super::{DeviceId, StackId};

/// Identity of a memory pool: `(0, 0)` is the default pool, anything else a private one (CUDA graphs, `MemPool`).
pub type PoolId = (u64, u64);

/// The pool of whatever asks for no other.
pub const DEFAULT_POOL: PoolId = (0, 0);

/// Which of the allocator's two pools a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// Blocks of up to 1 MiB.
    Small,
    /// Blocks over 1 MiB.
    Large,
}

/// State of a block at dump time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Freed by the program, still in use by another stream. Written `active_pending_free`, documented as
    /// `active_awaiting_free`.
    ActivePendingFree,
    /// Free.
    Inactive,
}

/// A range of device memory obtained from the driver.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Device it lives on.
    pub device: DeviceId,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub total_size: u64,
    /// Bytes in blocks in use, as PyTorch counted them.
    pub allocated_size: u64,
    /// Bytes in blocks in use or pending free.
    pub active_size: u64,
    /// Bytes callers requested in active blocks; absent in the oldest files.
    pub requested_size: Option<u64>,
    /// CUDA stream, 0 for the default one.
    pub stream: u64,
    /// Small or large pool.
    pub segment_type: SegmentType,
    /// Default or private pool; `None` in the oldest files, which do not tell.
    pub pool: Option<PoolId>,
    /// Whether it is a mapped range of an expandable segment.
    pub is_expandable: bool,
    /// Stack of the request that created it.
    pub stack: StackId,
    /// Its blocks in address order; they tile the segment.
    pub blocks: Vec<Block>,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address. Where the file has none (PyTorch 2.0) it is the segment's address plus the sizes before.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
    /// What the caller requested; stale in inactive blocks, where it must be ignored.
    pub requested_size: u64,
    /// State at dump time.
    pub state: BlockState,
    /// Stack of the allocation.
    pub stack: StackId,
    /// `forward_frames` of the allocation: see [`super::EntryContext::forward`].
    pub forward: StackId,
}
