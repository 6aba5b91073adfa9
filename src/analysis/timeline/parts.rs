//! What a timeline consists of.

use crate::facts::training::Category;
use crate::model::Action;
use crate::replay::{Counters, Instant, Track};

/// What the x axis shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum XAxis {
    /// Seconds since the first entry.
    ///
    /// Entries of the trace where the recording has no times (PyTorch 2.0).
    #[default]
    Time,
    /// Entries of the trace.
    Entry,
}

/// Label of the band on top of all others for what is reserved and in no active block, `reserved - active`. It is no part
/// of the metric.
pub const INACTIVE: &str = "(inactive)";

/// Label of the band of everything that leaks, where other bands are categories.
pub const LEAKS: &str = "(leaks)";

/// A sample: the instant within a period of the x axis at which memory is highest, so that no peak is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The instant; that of the column before when nothing happens in this one.
    pub instant: Instant,
    /// Counters at that instant.
    pub counters: Counters,
    /// The highest `reserved` of the period, which may lie at another instant.
    pub max_reserved: i64,
}

/// Bytes of a group over time; of all groups of a category without a band of their own, where the label is
/// [`crate::facts::grouping::attribution::OTHER`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Band {
    /// The group, as in the rows of [`super::DeviceTimeline::peak`].
    pub label: String,
    /// What its memory is for, where bands are sites, or where they are categories. A site may have several bands.
    pub category: Option<Category>,
    /// Number of groups in it.
    pub groups: usize,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// Bytes in each column.
    pub bytes: Vec<u64>,
    /// Bytes at the instant that is looked at.
    pub bytes_there: u64,
    /// Blocks at that instant.
    pub blocks_there: u64,
    /// Bytes that each step leaves behind here for good.
    pub leak: Option<i64>,
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomMark {
    /// Where it is on the x axis.
    pub x: i64,
    /// The entry, counted within the device's trace.
    pub entry: u32,
    /// Requested bytes, rounded as the allocator does.
    pub requested: u64,
    /// Bytes the device had free; profiler traces do not tell.
    pub device_free: Option<u64>,
    /// Counters then.
    pub counters: Counters,
}

impl OomMark {
    /// All of a device, with their instants for x.
    pub fn all(track: Track<'_>) -> Vec<Self> {
        let mut ooms = Vec::new();
        if track.actions().contains(&Action::Oom) {
            track.walk(|instant, counters| ooms.extend(Self::at(track, instant, i64::from(instant), counters)));
        }
        ooms
    }

    /// The one that leads to an instant, if there is one.
    pub(super) fn at(track: Track<'_>, instant: Instant, x: i64, counters: &Counters) -> Option<Self> {
        let entry = instant.checked_sub(1).filter(|&entry| track.action(entry) == Some(Action::Oom))?;
        let found = track.entry(entry)?;
        let device_free = track.snapshot.notes.format.has_segments().then_some(found.addr);
        Some(Self { x, entry, requested: found.size, device_free, counters: *counters })
    }

    /// What this process could reserve at most then: what it had, and what was free.
    pub fn capacity(&self) -> Option<u64> {
        Some(u64::try_from(self.counters.reserved).unwrap_or(0).saturating_add(self.device_free?))
    }
}

/// A `record_function` range on the x axis, cut at the ends of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ribbon {
    /// Its name.
    pub label: String,
    /// Where it starts.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
    /// Number of ranges around it.
    pub depth: usize,
}
