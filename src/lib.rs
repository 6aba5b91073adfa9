//! Exact analysis of PyTorch GPU memory recordings.
//!
//! Stages, each a module that reads only the ones before it:
//! [`model`] (facts) <- [`input`] (bytes to facts) <- [`replay`] (facts to allocator history).

pub mod error;
pub mod input;
pub mod model;
pub mod replay;

pub use error::{Error, Result};
