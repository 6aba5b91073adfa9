//! What `memviz peak --each` says: a line for each range.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;
