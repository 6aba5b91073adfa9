//! The JSON of `memviz diff`.

use crate::analysis::diff::{DeviceDiff, DiffInputDevice, DiffReport, DiffRow, Lives, SettingDiff, Unchanged};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::figures::Figures;
use crate::replay::{Bound, Metric};
use crate::report::Sources;
use crate::report::common::json::{CounterBytes, InputHead, PeakInstant};
use crate::report::peak::json::PeakDevice;
use crate::wire::SCHEMA_VERSION;
use indexmap::IndexMap;
use serde::Serialize;

/// The whole answer of `memviz diff`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff<'a> {
    /// Version of the keys: see `memviz schema`.
    pub schema_version: u32,
    /// The subcommand.
    pub command: &'static str,
    /// The files.
    pub input: DiffInput<'a>,
    /// Whether nothing differs.
    pub identical: bool,
    /// Devices of both files.
    pub devices: Vec<DiffDevice<'a>>,
    /// Devices that only the base has.
    pub only_base_devices: &'a [i32],
    /// Devices that only the new file has.
    pub only_new_devices: &'a [i32],
    /// Allocator settings that differ.
    pub settings: &'a [SettingDiff],
}

/// The two files.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffInput<'a> {
    /// The file to compare with.
    pub base: InputHead<'a>,
    /// The compared file.
    pub new: InputHead<'a>,
}

/// `memviz diff`, one device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffDevice<'a> {
    /// Device in the new file, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: i32,
    /// Device in the base: may differ if each file has a single GPU.
    pub base_device: i32,
    /// The counter compared.
    pub metric: Metric,
    /// What rows represent.
    pub by: GroupBy,
    /// Whether rows overlap, so that they do not sum to the delta.
    pub inclusive: bool,
    /// The base.
    pub base: DiffSide,
    /// The new file.
    pub new: DiffSide,
    /// Growth of the counter between the two selected instants.
    pub delta_bytes: i64,
    /// What changed, the largest change first. Rows sum to `delta_bytes`, unless they are inclusive.
    pub rows: &'a [DiffRow],
    /// Rows that did not change.
    pub unchanged: Unchanged,
    /// Rows that `--top` summed up in one labeled `(other)`; inclusive ones are left out.
    pub left_out: usize,
    /// The fate of all blocks. Left out unless both sides are instants of one recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<Lives>,
}

/// One side of a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffSide {
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Whether the history is complete.
    pub complete_history: bool,
    /// What is missing, in words.
    pub notes: Vec<String>,
    /// Numbers that are not exact, as in `memviz peak`. Left out when all are exact.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<String, Bound>,
    /// The selected instant.
    pub peak: PeakInstant,
    /// Each counter's own maximum.
    pub maxima: CounterBytes,
    /// Counters at the end.
    pub end: CounterBytes,
    /// How the segments are used at the instant; null if the file has none.
    pub fragmentation: Option<DiffFigures>,
}

/// Sums over the segments.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffFigures {
    /// Bytes of free blocks.
    pub inactive_bytes: u64,
    /// Their share of reserved memory, from 0 to 1.
    pub inactive_share: f64,
    /// Bytes of active blocks beyond the requested bytes.
    pub rounding_bytes: i64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
    /// Free bytes that `empty_cache` releases.
    pub releasable_bytes: u64,
    /// Free bytes that live blocks keep from being released.
    pub pinned_free_bytes: u64,
    /// Number of segments.
    pub segments: u64,
}

impl From<&Figures> for DiffFigures {
    fn from(figures: &Figures) -> Self {
        Self {
            inactive_bytes: figures.inactive,
            inactive_share: figures.inactive_share(),
            rounding_bytes: figures.rounding(),
            largest_free_block_bytes: figures.largest_free_block,
            releasable_bytes: figures.releasable,
            pinned_free_bytes: figures.pinned_free,
            segments: figures.segments,
        }
    }
}

impl From<&DiffInputDevice> for DiffSide {
    fn from(side: &DiffInputDevice) -> Self {
        let PeakDevice { baseline_bytes, complete_history, notes, bounds, peak, maxima, end, .. } = (&side.peak).into();
        let fragmentation = side.figures.as_ref().map(DiffFigures::from);
        Self { baseline_bytes, complete_history, notes, bounds, peak, maxima, end, fragmentation }
    }
}

impl<'a> From<&'a DeviceDiff> for DiffDevice<'a> {
    fn from(device: &'a DeviceDiff) -> Self {
        Self {
            device: device.new.device(),
            base_device: device.base.device(),
            metric: device.metric(),
            by: device.by(),
            inclusive: device.by().is_inclusive(),
            base: (&device.base).into(),
            new: (&device.new).into(),
            delta_bytes: device.delta_bytes,
            rows: &device.rows,
            unchanged: device.unchanged,
            left_out: device.left_out,
            lives: device.lives,
        }
    }
}

/// The whole answer of `memviz diff`.
pub fn diff<'a>(sources: Sources<'a>, report: &'a DiffReport) -> Diff<'a> {
    Diff {
        schema_version: SCHEMA_VERSION,
        command: "diff",
        input: DiffInput { base: InputHead::of(sources.base), new: InputHead::of(sources.new) },
        identical: report.is_empty(),
        devices: report.devices.iter().map(DiffDevice::from).collect(),
        only_base_devices: &report.only_base,
        only_new_devices: &report.only_new,
        settings: &report.settings,
    }
}
