//! What `memviz peak --each` says: a line for each range.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;
pub(crate) mod words;
