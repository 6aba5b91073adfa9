//! PyTorch's caching allocator: its rules, and a model of it that serves requests.
//!
//! [`SizeRules`] defines how requests become blocks and blocks become segments; [`crate::replay`] reconstructs histories with
//! it. [`Allocator`] simulates requests: it decides where blocks are placed, what is requested from the driver and what is
//! released, for regular and expandable segments, small and large pools, streams, private pools, and every setting that
//! affects memory.

mod addresses;
mod blocks;
mod expandable;
#[cfg(test)]
mod invariants;
mod limits;
mod model;
mod release;
mod restore;
mod rules;
mod state;
mod warnings;

pub use addresses::Placement;
pub use blocks::{BlockId, PoolIndex};
pub use limits::{Limits, Threshold};
pub use model::{Allocator, Request, SegmentEvent, Stats};
pub use restore::Restored;
pub use rules::{MIN_BLOCK, SMALL_BUFFER, SMALL_SIZE, SizeRules};
#[doc(hidden)]
pub use state::AllocatorState;
pub use warnings::SettingsWarning;
