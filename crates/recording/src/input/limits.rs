//! Limits for files from strangers.

/// Limits on the cost of reading. The defaults allow every real recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for the pickle machine's own objects may reach this many bytes for each byte read, plus
    /// [`Limits::base_memory`]. Real snapshots need less than 2.
    pub memory_per_byte: u64,
    /// See [`Limits::memory_per_byte`], in bytes.
    pub base_memory: u64,
    /// Longest single string, in bytes: the holders of a large model are one of a few MiB.
    pub string_bytes: u64,
    /// Decompressed bytes may reach this many times the compressed bytes, plus [`Limits::base_memory`]. Snapshots compress by
    /// a factor of 20 to 60.
    pub expansion: u64,
    /// Memory for everything that is read, in bytes: objects of the pickle machine, trace entries, and the replay of each
    /// entry.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_per_byte: 4, base_memory: 16 << 20, string_bytes: 64 << 20, expansion: 256, memory: 4 << 30 }
    }
}
