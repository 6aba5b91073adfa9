//! The allocator's segments at an instant: what is in them, how they are used, and who keeps them.

pub(crate) mod expandable;
pub mod figures;
pub mod layout;
pub mod pinning;
