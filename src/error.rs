//! What can go wrong while a recording is read.

use std::io;

/// Result of reading and analyzing.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an input could not be used.
///
/// Messages are one line: what was expected, what was found, and where. Byte offsets count decompressed bytes. The
/// file's name is not part of the message; whoever opened the file puts it in front.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The input has no bytes at all.
    #[error("the input is empty")]
    Empty,
    /// The bytes are no snapshot, or none that memviz knows.
    #[error("not a memory snapshot: {0}")]
    NotASnapshot(String),
    /// A profiler trace that says nothing on memory.
    #[error(
        "a profiler trace without memory events; torch.profiler.profile(profile_memory=True) records them, and \
         with_stack=True the lines of code"
    )]
    NoMemoryEvents,
    /// The file is something else that memviz recognizes: what it is, and what to do.
    #[error("{0}")]
    Foreign(String),
    /// The JSON is something else altogether.
    #[error("{0}")]
    UnknownJson(String),
    /// The compressed container is damaged.
    #[error("damaged {format} data after {at} decompressed bytes: {message}")]
    Compression {
        /// `gzip`, `zstd` or `zip`.
        format: &'static str,
        /// Decompressed bytes before the damage.
        at: u64,
        /// What the decoder said.
        message: String,
    },
    /// The bytes at an offset are not what the format asks for.
    #[error("byte {at}: {message}")]
    Malformed {
        /// Offset in the decompressed input.
        at: u64,
        /// What was expected and what was found.
        message: String,
    },
    /// The input ends too early.
    #[error("byte {at}: the file ends in the middle of {within}; --allow-truncated analyzes the part before")]
    Truncated {
        /// Length of the input.
        at: u64,
        /// What was being read.
        within: String,
    },
    /// A limit for untrusted input was reached.
    #[error("byte {at}: {message}")]
    Limit {
        /// Offset in the decompressed input.
        at: u64,
        /// Which limit, and what was asked.
        message: String,
    },
    /// A request that the recording cannot answer, for instance an entry past the end.
    #[error("{0}")]
    Request(String),
}

impl Error {
    pub(crate) fn malformed(at: u64, message: impl Into<String>) -> Self {
        Self::Malformed { at, message: message.into() }
    }
}
