//! Two recordings side by side.

pub mod matching;

pub use matching::{CodePlace, Match, Name, match_rows};
