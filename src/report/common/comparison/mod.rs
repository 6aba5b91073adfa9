//! How devices compare: part of the answers about peaks.

pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod words;
