#![doc = include_str!("../README.md")]

#[macro_use]
mod names;
#[macro_use]
mod options;

pub mod allocator;
pub mod error;
pub mod input;
pub mod model;
#[doc(hidden)]
pub mod parallel;
pub mod replay;
#[doc(hidden)]
pub mod sorting;

pub use error::{Error, Result};
