//! The owner and name of a frame's code, and the line that a stack is attributed to.

pub(crate) mod frames;
mod libraries;
mod passing;
pub(crate) mod paths;
pub(crate) mod shown_frames;
pub mod sites;
