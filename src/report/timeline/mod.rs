//! What `memviz timeline` draws.

#[cfg(feature = "plot")]
pub(crate) mod picture;
#[cfg(feature = "plot")]
mod ribbons;

#[cfg(feature = "plot")]
pub use picture::draw;
