//! What `memviz info` says.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;
