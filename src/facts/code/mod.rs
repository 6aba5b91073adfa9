//! The owner and name of a frame's code, and the line that a stack is attributed to.

pub mod frames;
mod libraries;
mod passing;
pub mod paths;
pub mod shown_frames;
pub mod sites;
