//! The errors of reading and analyzing recordings.

use std::io;

pub type Result<T> = std::result::Result<T, Error>;

/// Why an input could not be used.
///
/// Messages are one line: what was expected, what was found, and where. Byte offsets count decompressed bytes. The
/// message does not contain the file's name; the code that opened the file adds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the input is empty")]
    Empty,
    /// The bytes are not a snapshot, or not in a version that memviz knows.
    #[error("not a memory snapshot: {0}")]
    NotASnapshot(String),
    /// A profiler trace without memory events.
    #[error(
        "a profiler trace without memory events; torch.profiler.profile(profile_memory=True) records them, and \
         with_stack=True records the lines of code"
    )]
    NoMemoryEvents,
    /// A file of another kind that memviz recognizes: what it is, and what to do.
    #[error("{0}")]
    Foreign(String),
    #[error("{0}")]
    UnknownJson(String),
    /// The compressed container is damaged.
    #[error("damaged {format} data after {at} decompressed bytes: {message}")]
    Compression {
        /// `gzip`, `zstd` or `zip`.
        format: &'static str,
        /// Decompressed bytes before the damage.
        at: u64,
        message: String,
    },
    /// The bytes at an offset violate the format.
    #[error("byte {at}: {message}")]
    Malformed {
        /// Offset in the decompressed input.
        at: u64,
        message: String,
    },
    /// The input ends too early.
    #[error("byte {at}: the file ends in the middle of {within}; --allow-truncated analyzes the readable part")]
    Truncated {
        /// Length of the input.
        at: u64,
        /// The part that was being read.
        within: String,
    },
    /// A limit for untrusted input was reached.
    #[error("byte {at}: {message}")]
    Limit {
        /// Offset in the decompressed input.
        at: u64,
        message: String,
    },
    /// A request that the recording cannot answer, such as an entry past the end.
    #[error("{0}")]
    Request(String),
}

impl Error {
    #[doc(hidden)]
    pub fn malformed(at: u64, message: impl Into<String>) -> Self {
        Self::Malformed { at, message: message.into() }
    }
}
