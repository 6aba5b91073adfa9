//! What `memviz peak` says.

pub(crate) mod csv;
pub mod each;
pub mod json;
pub(crate) mod markdown;
pub(crate) mod operators;
pub(crate) mod text;
