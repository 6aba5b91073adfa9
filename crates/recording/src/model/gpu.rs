//! What a recording says about its GPU.

/// How many threads a GPU runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Streaming multiprocessors.
    pub processors: u64,
    /// Threads that each multiprocessor runs.
    pub each: u64,
}
