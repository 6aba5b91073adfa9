//! Allocator settings that change how sizes are rounded and blocks are split.

/// `allocator_settings` of a snapshot (PyTorch 2.3 and later), as far as memviz uses them, plus the rest as text.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent settings, each by its own name")]
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
    /// `large_segment_size_mb` of the string, in bytes: segments for requests of the large pool below 10 MiB, and pages
    /// of its expandable segments. `None` for PyTorch's default of 20 MiB.
    pub large_segment_size: Option<u64>,
    /// `max_non_split_rounding_mb` of the string, in bytes: a block that exceeds an oversize request by this many is not
    /// used for it. `None` for as much as a large segment.
    pub max_non_split_rounding: Option<u64>,
    /// `per_process_memory_fraction` of the string: the share of the device's memory that the process may reserve.
    /// `None` where the string does not set it; `torch.cuda.set_per_process_memory_fraction` leaves no trace.
    pub memory_fraction: Option<f64>,
    /// `throw_on_cudamalloc_oom` of the string: under a memory fraction, a request that exceeds it fails at once.
    pub throws_on_oom: bool,
    /// Whether the string asks for another allocator than PyTorch's own (`backend:cudaMallocAsync`).
    pub other_backend: bool,
    /// `graph_capture_record_stream_reuse` of the string: what is freed in the capture of a graph is used again as its
    /// order allows.
    pub record_stream_reuse: bool,
    /// `pinned_max_round_threshold_mb` of the string, in bytes: larger blocks of pinned host memory are not rounded up.
    pub pinned_max_round_threshold: Option<u64>,
    /// `pinned_max_cached_size_mb` of the string, in bytes: larger blocks of pinned host memory are neither rounded up nor
    /// kept when they are freed.
    pub pinned_max_cached_size: Option<u64>,
    /// Every other setting as `(name, value)`, in file order.
    pub other: Vec<(String, String)>,
}
