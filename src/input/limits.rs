//! Limits for files from strangers.

/// Bounds on what reading may cost. The defaults let every real recording through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for the pickle machine's own objects may reach this many bytes for each byte read, plus
    /// [`Limits::base_memory`]. Real snapshots stay below 2.
    pub memory_per_byte: u64,
    /// See [`Limits::memory_per_byte`], in bytes.
    pub base_memory: u64,
    /// Longest single string, in bytes.
    pub string_bytes: u64,
    /// Decompressed bytes may reach this many times the compressed bytes, plus [`Limits::base_memory`]. Snapshots
    /// compress 20 to 60 times.
    pub expansion: u64,
    /// Memory for everything that is read, in bytes: objects of the pickle machine, and trace entries with what a replay
    /// makes of each.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_per_byte: 4, base_memory: 16 << 20, string_bytes: 1 << 20, expansion: 256, memory: 4 << 30 }
    }
}
