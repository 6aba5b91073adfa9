//! Formats that memviz both writes and reads, with each key in one place: JSON, and snapshots.
//!
//! In: text that memviz wrote earlier, or on another machine. Out: plain types, checked. Formats that are only written, such
//! as the answers of most commands, are next to the other formats of each answer in [`crate::report`]; [`crate::input`] reads
//! snapshots of any origin.

pub mod answers;
mod pickle;
pub mod rank_lines;
pub(crate) mod rank_table;
pub(crate) mod ranks;
pub mod snapshot;

/// Version of the keys in all JSON output: it changes when they do.
pub const SCHEMA_VERSION: u32 = 1;
