//! The allocator's segments at an instant: their blocks, their use, and the blocks that keep them reserved.

pub(crate) mod expandable;
pub mod figures;
pub mod layout;
pub mod pinning;
