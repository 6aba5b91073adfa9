//! Whose code a frame is, what it is called, and which line a stack is charged to.

pub mod frames;
mod libraries;
pub mod paths;
pub mod sites;
