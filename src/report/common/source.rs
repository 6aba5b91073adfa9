//! What a report is about.

use crate::Recording;

/// The recording a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where it came from, as the user named it.
    pub path: &'a str,
    /// The recording itself, for what every report says about it.
    pub recording: &'a Recording,
}

/// The two recordings of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What is compared with.
    pub base: Source<'a>,
    /// What is compared.
    pub new: Source<'a>,
}

/// A share of a whole in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
