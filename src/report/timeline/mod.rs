//! The pictures of `memviz timeline`, and its curve as data.

#[cfg(feature = "plot")]
pub(crate) mod csv;
#[cfg(feature = "plot")]
pub(crate) mod json;
#[cfg(feature = "plot")]
mod legend;
#[cfg(feature = "plot")]
mod marks;
#[cfg(feature = "plot")]
mod names;
#[cfg(feature = "plot")]
pub(crate) mod picture;
#[cfg(feature = "plot")]
mod ribbons;
#[cfg(feature = "plot")]
mod scale;
#[cfg(feature = "plot")]
mod stack;
#[cfg(feature = "plot")]
mod stacked;
#[cfg(feature = "plot")]
mod strip;
#[cfg(feature = "plot")]
mod ticks;

#[cfg(feature = "plot")]
pub use picture::draw;
