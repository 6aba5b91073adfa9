//! The parts of a timeline.

use crate::facts::training::Category;
use crate::model::Action;
use crate::replay::{Counters, Instant, Track};

/// What the x axis shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum XAxis {
    /// Seconds since the first entry.
    ///
    /// Entries of the trace if the recording has no times (PyTorch 2.0).
    #[default]
    Time,
    /// Entries of the trace.
    Entry,
}

/// Label of the band above all others for memory that is reserved but in no active block, `reserved - active`. It is not part
/// of the metric.
pub const INACTIVE: &str = "(inactive)";

/// Label of the band for the leaks of a category, if other bands are categories.
pub const LEAKS: &str = "(leaks)";

/// A sample: the instant within a period of the x axis at which memory is highest, so that no peak is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The instant; that of the previous column if nothing happens in this one.
    pub instant: Instant,
    pub counters: Counters,
    /// The highest `active` of the period, which may be at another instant. Blocks whose free completes at the next entry do
    /// not count: only another stream delays a free.
    pub max_active: i64,
    /// The highest `reserved` of the period, which may be at another instant.
    pub max_reserved: i64,
}

/// Bytes of a group over time, or of all groups of a category without their own band, labeled
/// [`crate::facts::grouping::attribution::OTHER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// The group, as in the rows of [`super::DeviceTimeline::peak`].
    pub label: String,
    /// The category of its memory, if bands are sites or categories. A site may have several bands.
    pub category: Option<Category>,
    pub groups: usize,
    /// Whether its label says that it is inferred.
    pub inferred: bool,
    /// Whether any of its memory is in the group because of an inference, as in the rows of a peak.
    pub has_inferred: bool,
    pub bytes: Vec<u64>,
    pub bytes_there: u64,
    pub blocks_there: u64,
    /// If this is memory that leaks, the bytes that each step requests of it, as `leaks` shows them. If a line that leaks has
    /// several bands, the first of them has its bytes, and the others have 0.
    pub leak: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomMark {
    pub x: i64,
    /// The entry, counted within the device's trace.
    pub entry: u32,
    /// Requested bytes, rounded as the allocator does.
    pub requested: u64,
    /// Bytes that the device had free; profiler traces do not record them.
    pub device_free: Option<u64>,
    pub counters: Counters,
}

impl OomMark {
    /// All failed requests of a device, with the instants mapped to x.
    pub fn all(track: Track<'_>) -> Vec<Self> {
        let mut ooms = Vec::new();
        if track.actions().contains(&Action::Oom) {
            track.walk(|instant, counters| ooms.extend(Self::at(track, instant, i64::from(instant), counters)));
        }
        ooms
    }

    pub(super) fn at(track: Track<'_>, instant: Instant, x: i64, counters: &Counters) -> Option<Self> {
        let entry = instant.checked_sub(1).filter(|&entry| track.action(entry) == Some(Action::Oom))?;
        let found = track.entry(entry)?;
        let device_free = track.snapshot.notes.format.has_segments().then_some(found.addr);
        Some(Self { x, entry, requested: found.size, device_free, counters: *counters })
    }

    /// The most that this process could reserve then: what it had reserved, plus what was free.
    pub fn capacity(&self) -> Option<u64> {
        Some(u64::try_from(self.counters.reserved).unwrap_or(0).saturating_add(self.device_free?))
    }
}

/// A `record_function` range on the x axis, cut at the ends of the shown range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ribbon {
    pub label: String,
    pub start: i64,
    pub end: i64,
    pub depth: usize,
}
