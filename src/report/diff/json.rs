//! The JSON of `memviz diff`.

use crate::analysis::diff::{DeviceDiff, DiffInputDevice, DiffReport, DiffRow, Lives, SettingDiff, Unchanged};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::Figures;
use crate::replay::{Bound, Metric};
use crate::report::Sources;
use crate::report::common::json::{CounterBytes, InputHead, PeakInstant, keys};
use crate::report::peak::json::PeakDevice;
use crate::wire::SCHEMA_VERSION;
use indexmap::IndexMap;

keys! { schema
    /// The whole answer of `memviz diff`.
    pub struct Diff<'a>(sources: Sources<'a>, report: &'a DiffReport) {
        /// Version of the keys: see `memviz schema`.
        pub schema_version: u32 = SCHEMA_VERSION,
        /// The subcommand.
        pub command: &'static str = "diff",
        /// The files.
        pub input: DiffInput<'a> = DiffInput::of(sources),
        /// Whether nothing differs.
        pub identical: bool = report.is_empty(),
        /// Devices of both files.
        pub devices: Vec<DiffDevice<'a>> = report.devices.iter().map(DiffDevice::of).collect(),
        /// Devices that only the base has.
        pub only_base_devices: &'a [i32] = &report.only_base,
        /// Devices that only the new file has.
        pub only_new_devices: &'a [i32] = &report.only_new,
        /// Allocator settings that differ.
        pub settings: &'a [SettingDiff] = &report.settings,
    }
}

keys! { schema
    /// The two files.
    pub struct DiffInput<'a>(sources: Sources<'a>) {
        /// The file to compare with.
        pub base: InputHead<'a> = InputHead::of(sources.base),
        /// The compared file.
        pub new: InputHead<'a> = InputHead::of(sources.new),
    }
}

keys! { schema
    /// `memviz diff`, one device.
    pub struct DiffDevice<'a>(device: &'a DeviceDiff) {
        /// Device in the new file, -1 for pinned host memory, -2 for memory of the CPU.
        pub device: i32 = device.new.device(),
        /// Device in the base: may differ if each file has a single GPU.
        pub base_device: i32 = device.base.device(),
        /// The counter compared.
        pub metric: Metric = device.metric(),
        /// What rows represent.
        pub by: GroupBy = device.by(),
        /// Whether rows overlap, so that they do not sum to the delta.
        pub inclusive: bool = device.by().is_inclusive(),
        /// The base.
        pub base: DiffSide = DiffSide::of(&device.base),
        /// The new file.
        pub new: DiffSide = DiffSide::of(&device.new),
        /// Growth of the counter between the two selected instants.
        pub delta_bytes: i64 = device.delta_bytes,
        /// What changed, the largest change first. Rows sum to `delta_bytes`, unless they are inclusive.
        pub rows: &'a [DiffRow] = &device.rows,
        /// Rows that did not change.
        pub unchanged: Unchanged = device.unchanged,
        /// Rows that `--top` summed up in one labeled `(other)`; inclusive ones are left out.
        pub left_out: usize = device.left_out,
        /// The fate of all blocks. Left out unless both sides are instants of one recording.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub lives: Option<Lives> = device.lives,
    }
}

keys! { schema
    /// One side of a device.
    pub struct DiffSide(side: &DiffInputDevice) {
        let PeakDevice { baseline_bytes, complete_history, notes, bounds, peak, maxima, end, .. } = PeakDevice::of(&side.peak);
        let fragmentation = side.figures.as_ref().map(DiffFigures::of);
        /// Allocated before the first kept entry.
        pub baseline_bytes: i64 = baseline_bytes,
        /// Whether the history is complete.
        pub complete_history: bool = complete_history,
        /// What is missing, in words.
        pub notes: Vec<String> = notes,
        /// Numbers that are not exact, as in `memviz peak`. Left out when all are exact.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub bounds: IndexMap<String, Bound> = bounds,
        /// The selected instant.
        pub peak: PeakInstant = peak,
        /// Each counter's own maximum.
        pub maxima: CounterBytes = maxima,
        /// Counters at the end.
        pub end: CounterBytes = end,
        /// How the segments are used at the instant; null if the file has none.
        pub fragmentation: Option<DiffFigures> = fragmentation,
    }
}

keys! { schema
    /// Sums over the segments.
    pub struct DiffFigures(figures: &Figures) {
        /// Bytes of free blocks.
        pub inactive_bytes: u64 = figures.inactive,
        /// Their share of reserved memory, from 0 to 1.
        pub inactive_share: f64 = figures.inactive_share(),
        /// Bytes of active blocks beyond the requested bytes.
        pub rounding_bytes: i64 = figures.rounding(),
        /// The largest free block.
        pub largest_free_block_bytes: u64 = figures.largest_free_block,
        /// Free bytes that `empty_cache` releases.
        pub releasable_bytes: u64 = figures.releasable,
        /// Free bytes that live blocks keep from being released.
        pub pinned_free_bytes: u64 = figures.pinned_free,
        /// Number of segments.
        pub segments: u64 = figures.segments,
    }
}
