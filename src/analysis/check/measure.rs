//! What a recording knows of a figure: its exact value, bounds of it, or nothing; and why.

use super::doubts::{self, Leaves};
use crate::replay::{Metric, Track};

/// A figure in bytes as far as it is known; exact where both bounds are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// It is not less than that.
    pub at_least: Option<u64>,
    /// It is not more than that.
    pub at_most: Option<u64>,
    /// Why it is not exact.
    pub doubt: Option<Doubt>,
}

/// Why a figure is not known exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing was allocated on any device, or recording was off: the file does not tell which.
    NothingRecorded,
    /// The device has no data, these have.
    NoSuchDevice(Vec<i32>),
    /// There are so many anomalies on the device.
    Contradicts(u64),
    /// No history was recorded.
    NoHistory,
    /// The ring buffer dropped entries, as PyTorch says.
    Overflowed,
    /// The ring buffer is full, and nothing says whether it dropped entries.
    RingFull,
    /// Blocks from before the first kept entry have stacks, so entries from then are lost.
    LostBeginning,
    /// The file was cut off.
    CutOff,
    /// The trace has no running totals.
    NoTotals,
    /// Memory is known at single times only.
    Sampled,
    /// PyTorch 2.0 does not record frees of blocks from before the recording.
    UnrecordedFrees,
    /// `free_requested` was not recorded.
    NoFreeRequested,
    /// Blocks from before the recording whose sizes left no evidence take up to so many bytes more.
    UncertainSizes(u64),
    /// Memory timelines do not record reserved memory.
    NoReserved,
    /// The instant of the peak is not known exactly, for that reason.
    PeakNotExact(Box<Doubt>),
    /// Blocks of so many bytes are from before the recording, and what made them is not known.
    UnknownStacks(u64),
    /// There are only so many steps.
    TooFewSteps(usize),
    /// What the analysis that was to measure it says.
    Refused(String),
    /// There are entries with an action that this version does not know.
    UnknownAction(String),
    /// There is a key that this version does not know.
    UnknownKey(String),
    /// A value is missing, or of another type than PyTorch writes: where, and what was expected.
    Malformed(String),
    /// Allocator settings are missing from a file of a release that writes them.
    NoSettings,
    /// So many events that tell of memory were left out.
    MemoryLeftOut(u64),
    /// More follows behind the recording in the same file.
    Followed,
    /// Recorded without stacks, so that it cannot be told whether a ring buffer dropped entries.
    NoStacks,
    /// Segments that were there once are in no entry.
    SegmentsNotRecorded,
    /// What encloses an event of a trace is not known well enough to charge it to a line.
    LooseSites,
    /// The baseline has no such device.
    NotInBaseline,
    /// The baseline has the device, the recording has not.
    OnlyInBaseline,
    /// The baseline's own figure is not exact.
    BaselineNotExact,
}

impl Measured {
    /// A value that is known.
    pub fn exact(bytes: u64) -> Self {
        Self { at_least: Some(bytes), at_most: Some(bytes), doubt: None }
    }

    /// No idea.
    pub fn unknown(doubt: Doubt) -> Self {
        Self { doubt: Some(doubt), ..Self::default() }
    }

    /// The value, where it is exact.
    pub fn value(&self) -> Option<u64> {
        self.at_least.filter(|_| self.at_least == self.at_most)
    }

    fn between(at_least: Option<u64>, at_most: Option<u64>, doubt: Doubt) -> Self {
        Self { at_least, at_most, doubt: Some(doubt) }
    }
}

/// The highest value of a counter. A recording that started late is taken at its word: that is the peak since then.
pub fn maximum(track: Track<'_>, metric: Metric) -> Measured {
    let history = track.history;
    let doubt = doubts::of_maximum(track, metric);
    // Only a recording that contradicts itself has a maximum below zero.
    let Ok(bytes) = u64::try_from(history.maxima[metric as usize].bytes) else {
        return Measured::unknown(doubt.map_or(Doubt::Contradicts(history.anomalies.total()), |(doubt, _)| doubt));
    };
    match doubt {
        None => Measured::exact(bytes),
        Some((doubt, Leaves::Nothing)) => Measured::unknown(doubt),
        Some((doubt, Leaves::LowerBound)) => Measured::between(Some(bytes), None, doubt),
        Some((doubt, Leaves::UpTo(more))) => Measured::between(Some(bytes), bytes.checked_add(more), doubt),
        Some((doubt, Leaves::AtMost(more))) => Measured::between(None, bytes.checked_add(more), doubt),
    }
}

/// Judges a figure that may be known in part only: whether it keeps a limit, if that is certain either way.
pub fn keeps(measured: &Measured, limit: u64) -> Option<bool> {
    if measured.at_most.is_some_and(|bytes| bytes <= limit) {
        return Some(true);
    }
    measured.at_least.is_some_and(|bytes| bytes > limit).then_some(false)
}

/// What some sites hold at the peak, where blocks from before the recording may belong to them, too.
pub fn of_sites(peak: &Measured, matching: u64, unknown: u64) -> Measured {
    match &peak.doubt {
        Some(doubt) => Measured::unknown(Doubt::PeakNotExact(Box::new(doubt.clone()))),
        None if unknown == 0 => Measured::exact(matching),
        None => Measured::between(Some(matching), matching.checked_add(unknown), Doubt::UnknownStacks(unknown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_compared_honestly() {
        assert_eq!(keeps(&Measured::exact(5), 5), Some(true));
        assert_eq!(keeps(&Measured::exact(6), 5), Some(false));
        let between = |at_least, at_most| Measured::between(at_least, at_most, Doubt::Sampled);
        assert_eq!(keeps(&between(Some(6), None), 5), Some(false), "a lower bound above the limit is enough");
        assert_eq!(keeps(&between(Some(5), None), 5), None);
        assert_eq!(keeps(&between(None, Some(5)), 5), Some(true), "so is an upper one below");
        assert_eq!(keeps(&between(None, Some(6)), 5), None);
        assert_eq!(keeps(&between(Some(4), Some(6)), 5), None);
        assert_eq!(keeps(&Measured::unknown(Doubt::NoHistory), u64::MAX), None);
    }

    #[test]
    fn blocks_of_unknown_stacks_may_belong_to_any_site() {
        assert_eq!(of_sites(&Measured::exact(100), 7, 0), Measured::exact(7));
        let measured = of_sites(&Measured::exact(100), 7, 3);
        assert_eq!((measured.at_least, measured.at_most), (Some(7), Some(10)));
        let measured = of_sites(&Measured::unknown(Doubt::NoHistory), 7, 0);
        assert_eq!((measured.at_least, measured.at_most), (None, None));
    }
}
