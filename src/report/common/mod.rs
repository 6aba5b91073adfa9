//! Code that all reports share: words, styles and shapes.

pub(crate) mod advice;
pub mod answer;
pub(crate) mod code_change;
pub(crate) mod comparison;
pub mod csv;
pub(crate) mod cures;
pub mod document;
pub(crate) mod fit;
pub(crate) mod gauges;
pub mod json;
pub mod markdown;
pub(crate) mod next;
pub mod no_commands;
pub mod notes;
pub(crate) mod palette;
#[cfg(feature = "plot")]
pub mod picture;
mod rehearsed;
pub mod source;
pub mod text;
pub(crate) mod training;
pub(crate) mod words;
