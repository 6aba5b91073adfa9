//! How devices compare: part of the answers about peaks.

pub mod json;
pub(crate) mod markdown;
pub(crate) mod text;
pub(crate) mod words;
