//! Code that all reports share: words, styles and shapes.

pub(crate) mod advice;
pub(crate) mod answer;
pub(crate) mod code_change;
pub(crate) mod comparison;
pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod fit;
pub(crate) mod fixes;
pub(crate) mod gauges;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod need;
pub(crate) mod next;
pub(crate) mod no_commands;
pub(crate) mod notes;
pub(crate) mod palette;
#[cfg(feature = "plot")]
pub(crate) mod picture;
mod rehearsed;
pub(crate) mod rescue;
pub(crate) mod source;
pub(crate) mod text;
pub(crate) mod training;
pub(crate) mod words;
