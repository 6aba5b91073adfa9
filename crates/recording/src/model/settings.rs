//! Allocator settings that change how sizes are rounded and blocks are split.

/// `allocator_settings` of a snapshot (PyTorch 2.3 and later): what memviz uses, and the rest as text.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent settings, each by its own name")]
pub struct AllocatorSettings {
    /// False if the file has no settings; every field below is then a default.
    pub recorded: bool,
    /// The value of `PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`).
    pub alloc_conf: String,
    /// `max_split_size` in bytes: blocks of this size or larger are never split. `None` if unlimited (recorded as -1).
    pub max_split_size: Option<u64>,
    pub expandable_segments: bool,
    /// `garbage_collection_threshold`; 0 if off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions` for sizes of 1, 2, 4, ... 32768 MiB and for smaller sizes; 0 if off.
    pub roundup_power2_divisions: [u64; 16],
    /// `large_segment_size_mb` in the string, in bytes: the size of segments for requests of the large pool below 10 MiB, and
    /// of the pages of its expandable segments. `None` for PyTorch's default of 20 MiB.
    pub large_segment_size: Option<u64>,
    /// `max_non_split_rounding_mb` in the string, in bytes: a block that exceeds an oversize request by this many bytes is
    /// not used for it. `None` for the size of a large segment.
    pub max_non_split_rounding: Option<u64>,
    /// `per_process_memory_fraction` in the string: the fraction of the device's memory that the process may reserve. `None`
    /// if the string does not set it; `torch.cuda.set_per_process_memory_fraction` is not recorded.
    pub memory_fraction: Option<f64>,
    /// `throw_on_cudamalloc_oom` in the string: with a memory fraction, a request that exceeds it fails at once.
    pub throws_on_oom: bool,
    /// Whether the string selects another allocator than PyTorch's own (`backend:cudaMallocAsync`).
    pub other_backend: bool,
    /// `graph_capture_record_stream_reuse` in the string: blocks freed while a graph is captured are reused if the order of
    /// the graph allows it.
    pub record_stream_reuse: bool,
    /// `pinned_max_round_threshold_mb` in the string, in bytes: larger blocks of pinned host memory are not rounded up.
    pub pinned_max_round_threshold: Option<u64>,
    /// `pinned_max_cached_size_mb` in the string, in bytes: larger blocks of pinned host memory are neither rounded up nor
    /// cached when they are freed.
    pub pinned_max_cached_size: Option<u64>,
    /// Whether the allocator of the device adds bytes to each request, as that of Ascend NPUs does. No file states it: see
    /// [`crate::replay::InferredRule::Ascend`].
    pub pads_requests: bool,
    /// Every other setting as `(name, value)`, in file order.
    pub other: Vec<(String, String)>,
}

impl AllocatorSettings {
    /// These settings on the device of others, whose rules users cannot set.
    #[must_use]
    pub fn on_device_of(&self, others: &Self) -> Self {
        Self { pads_requests: others.pads_requests, ..self.clone() }
    }
}
