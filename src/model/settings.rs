//! Allocator settings that change how sizes are rounded and blocks are split.

/// `allocator_settings` of a snapshot (PyTorch 2.3 and later), as far as memviz uses them, plus the rest as text.
#[derive(Clone, Debug, Default)]
pub struct AllocatorSettings {
    /// False when the file holds no settings, so that every field below is a default.
    pub recorded: bool,
    /// `PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`) as it was.
    pub alloc_conf: String,
    /// `max_split_size` in bytes: blocks this large are never split. `None` when unlimited (recorded as -1).
    pub max_split_size: Option<u64>,
    /// Whether segments grow in place.
    pub expandable_segments: bool,
    /// `garbage_collection_threshold`, 0 when off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions` for sizes of 1, 2, 4, ... 32768 MiB and below the first; 0 when off.
    pub roundup_power2_divisions: [u64; 16],
    /// Every other setting as `(name, value)`, in file order.
    pub other: Vec<(String, String)>,
}
