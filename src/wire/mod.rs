//! What memviz writes and reads again, each key in one place: JSON, and snapshots.
//!
//! In: text that memviz wrote earlier, or elsewhere. Out: plain types, checked. What is written only, the answers of most
//! commands, is beside the other formats of each answer in [`crate::report`]; snapshots are read by [`crate::input`], whoever
//! wrote them.

pub mod answers;
mod pickle;
pub mod rank_lines;
pub mod rank_table;
pub mod ranks;
pub mod snapshot;

/// Version of the keys of everything that is written as JSON: it changes when they do.
pub const SCHEMA_VERSION: u32 = 1;
