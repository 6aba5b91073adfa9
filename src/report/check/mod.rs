//! What `memviz check` says.

pub mod github;
pub mod json;
pub mod junit;
pub(crate) mod markdown;
pub(crate) mod text;
pub mod words;
