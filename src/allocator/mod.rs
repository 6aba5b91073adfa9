//! PyTorch's caching allocator: its rules, and a model of it that serves requests.
//!
//! [`SizeRules`] says how requests become blocks and blocks become segments; [`crate::replay`] rebuilds histories by
//! it.

mod rules;

pub use rules::{MIN_BLOCK, SMALL_BUFFER, SMALL_SIZE, SizeRules};
