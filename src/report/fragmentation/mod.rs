//! What `memviz fragmentation` says and draws.

pub(crate) mod csv;
pub mod json;
pub(crate) mod markdown;
#[cfg(feature = "plot")]
pub(crate) mod picture;
pub(crate) mod text;

#[cfg(feature = "plot")]
pub use picture::{BlockColor, draw};
