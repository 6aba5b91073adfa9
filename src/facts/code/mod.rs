//! Whose code a frame is, what it is called, and which line a stack is charged to.

pub mod frames;
mod libraries;
mod passing;
pub mod paths;
pub mod shown_frames;
pub mod sites;
