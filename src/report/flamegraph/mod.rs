//! What `memviz flamegraph` draws, or writes for other tools.

#[cfg(feature = "plot")]
pub(crate) mod colors;
pub mod folded;
#[cfg(feature = "plot")]
pub(crate) mod picture;

#[cfg(feature = "plot")]
pub use picture::draw;
