//! The JSON of `memviz diff`.

use crate::analysis::diff as analysis;
use crate::analysis::diff::{DeviceDiff, DiffReport};
use crate::analysis::diff::{DiffInputDevice, Fate, Lives, SettingDiff};
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
    pub devices: Vec<DiffDevice>,
    /// Devices that only the base has.
    pub only_base_devices: Vec<i32>,
    /// Devices that only the new file has.
    pub only_new_devices: Vec<i32>,
    /// Allocator settings that differ.
    pub settings: Vec<SettingValues>,
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
pub struct DiffDevice {
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
    pub rows: Vec<DiffRow>,
    /// Rows that did not change.
    pub unchanged: Unchanged,
    /// Rows that `--top` summed up in one labeled `(other)`; inclusive ones are left out.
    pub left_out: usize,
    /// The fate of all blocks. Left out unless both sides are instants of one recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<BlockLives>,
}

/// The fate of blocks from one instant of a recording to a later one: `born` and `survived` sum to the live blocks of
/// the later one, `freed` and `survived` to those of the earlier one.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlockLives {
    /// Bytes that are live only at the later instant.
    pub born_bytes: u64,
    /// Blocks of them.
    pub born_blocks: u64,
    /// Bytes that are live only at the earlier instant.
    pub freed_bytes: u64,
    /// Blocks of them.
    pub freed_blocks: u64,
    /// Bytes that are live at both.
    pub survived_bytes: u64,
    /// Blocks of them.
    pub survived_blocks: u64,
}

impl From<&Lives> for BlockLives {
    fn from(lives: &Lives) -> Self {
        let Lives { born, freed, survived } = lives;
        Self {
            born_bytes: born.bytes,
            born_blocks: born.blocks,
            freed_bytes: freed.bytes,
            freed_blocks: freed.blocks,
            survived_bytes: survived.bytes,
            survived_blocks: survived.blocks,
        }
    }
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

/// A group on both sides.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffRow {
    /// The group, as the new file names it; as the base names it if it has vanished.
    pub label: String,
    /// Its label in the base, if it differs because the line has moved; otherwise null.
    pub base_label: Option<String>,
    /// Whether it is on both sides.
    pub status: RowStatus,
    /// Its bytes in the base.
    pub base_bytes: i64,
    /// Its bytes in the new file.
    pub new_bytes: i64,
    /// The difference.
    pub delta_bytes: i64,
    /// Its blocks in the base.
    pub base_blocks: u64,
    /// Its blocks in the new file.
    pub new_blocks: u64,
    /// Whether the label is inferred, in either file.
    pub inferred: bool,
    /// The stack with the most bytes in the group, innermost frame first; of the base if it has vanished.
    pub stack: Vec<String>,
    /// The fate of its blocks. Left out unless both sides are instants of one recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<BlockLives>,
}

/// The files that contain a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// On both sides.
    Changed,
    /// Only in the new file.
    New,
    /// Only in the base.
    Vanished,
}

/// Rows that did not change.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unchanged {
    /// Their number.
    pub rows: usize,
    /// Their bytes on either side.
    pub bytes: i64,
}

/// A setting with two values.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingValues {
    /// Its name.
    pub name: String,
    /// Its value in the base as text; null if not recorded.
    pub base: Option<String>,
    /// Its value in the new file as text; null if not recorded.
    pub new: Option<String>,
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

impl From<&analysis::DiffRow> for DiffRow {
    fn from(row: &analysis::DiffRow) -> Self {
        Self {
            label: row.label.clone(),
            base_label: row.base_label.clone(),
            status: match row.fate {
                Fate::Changed => RowStatus::Changed,
                Fate::New => RowStatus::New,
                Fate::Vanished => RowStatus::Vanished,
            },
            base_bytes: row.base_bytes,
            new_bytes: row.new_bytes,
            delta_bytes: row.delta_bytes(),
            base_blocks: row.base_blocks,
            new_blocks: row.new_blocks,
            inferred: row.inferred,
            stack: row.stack.clone(),
            lives: row.lives.as_ref().map(BlockLives::from),
        }
    }
}

impl From<&DeviceDiff> for DiffDevice {
    fn from(device: &DeviceDiff) -> Self {
        Self {
            device: device.new.device(),
            base_device: device.base.device(),
            metric: device.metric(),
            by: device.by(),
            inclusive: device.by().is_inclusive(),
            base: (&device.base).into(),
            new: (&device.new).into(),
            delta_bytes: device.delta_bytes,
            rows: device.rows.iter().map(DiffRow::from).collect(),
            unchanged: Unchanged { rows: device.unchanged.rows, bytes: device.unchanged.bytes },
            left_out: device.left_out,
            lives: device.lives.as_ref().map(BlockLives::from),
        }
    }
}

impl From<&SettingDiff> for SettingValues {
    fn from(setting: &SettingDiff) -> Self {
        Self { name: setting.name.clone(), base: setting.base.clone(), new: setting.new.clone() }
    }
}

/// The whole answer of `memviz diff`.
pub fn diff<'a>(sources: Sources<'a>, report: &DiffReport) -> Diff<'a> {
    Diff {
        schema_version: SCHEMA_VERSION,
        command: "diff",
        input: DiffInput { base: InputHead::of(sources.base), new: InputHead::of(sources.new) },
        identical: report.is_empty(),
        devices: report.devices.iter().map(DiffDevice::from).collect(),
        only_base_devices: report.only_base.clone(),
        only_new_devices: report.only_new.clone(),
        settings: report.settings.iter().map(SettingValues::from).collect(),
    }
}
