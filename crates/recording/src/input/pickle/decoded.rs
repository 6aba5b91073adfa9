//! The result of reading a pickle.

use super::findings::Findings;
use super::value::{Heap, Value};
use crate::error::Error;
use std::collections::HashSet;

#[derive(Debug)]
pub struct DecodedPickle {
    pub heap: Heap,
    pub findings: Findings,
    pub root: Value,
    /// Bytes read up to the end of the pickle.
    pub bytes: u64,
    pub protocol: u8,
    /// Offset of the cut, and the lists that it was in, for a file that was cut off.
    pub cut: Option<Cut>,
    /// Offset of a cut after the end of the pickle.
    pub cut_behind: Option<u64>,
    /// Whether anything follows the end, as far as was read.
    pub followed: bool,
    /// The error of the stream after the pickle, if it is already known.
    pub failed_behind: Option<Error>,
}

/// Where a truncated pickle was cut.
#[derive(Clone, Debug)]
pub struct Cut {
    pub at: u64,
    /// Lists that were still open, so that their ends are missing.
    pub open_lists: HashSet<u32>,
}
