//! What a recording knows of a figure: its exact value, bounds of it, or nothing; and why.

use super::budget::SiteLimit;
use crate::model::{Format, StackId};
use crate::replay::{Completeness, History, Metric};

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
    /// Blocks from before the first kept entry have stacks, so entries from then are lost.
    LostBeginning,
    /// The file was cut off.
    CutOff,
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
pub fn maximum(history: &History, format: Format, metric: Metric) -> Measured {
    let completeness = &history.completeness;
    let Some(bytes) = trusted(history, history.maxima[metric as usize].bytes) else {
        return Measured::unknown(Doubt::Contradicts(history.anomalies.total()));
    };
    if let Some(doubt) = loss(history, format) {
        return Measured::between(Some(bytes), None, doubt);
    }
    if metric == Metric::Reserved {
        let recorded = format != Format::MemoryTimeline;
        return if recorded { Measured::exact(bytes) } else { Measured::unknown(Doubt::NoReserved) };
    }
    let more = completeness.peak_uncertain_bytes;
    match completeness {
        Completeness { sampled: true, .. } => Measured::between(Some(bytes), None, Doubt::Sampled),
        Completeness { unrecorded_frees: true, .. } => Measured::between(Some(bytes), None, Doubt::UnrecordedFrees),
        Completeness { no_free_requested: true, .. } => {
            Measured::between(None, bytes.checked_add(more), Doubt::NoFreeRequested)
        }
        _ if more > 0 => Measured::between(Some(bytes), bytes.checked_add(more), Doubt::UncertainSizes(more)),
        _ => Measured::exact(bytes),
    }
}

/// A counter of a recording that does not contradict itself.
fn trusted(history: &History, bytes: i64) -> Option<u64> {
    u64::try_from(bytes).ok().filter(|_| history.anomalies.total() == 0)
}

/// Why memory may have been higher at a time that the recording is about but does not hold.
fn loss(history: &History, format: Format) -> Option<Doubt> {
    let completeness = &history.completeness;
    match completeness {
        Completeness { no_entries: true, .. } => Some(Doubt::NoHistory),
        Completeness { overflowed: true, .. } => Some(Doubt::Overflowed),
        Completeness { truncated: true, .. } => Some(Doubt::CutOff),
        _ if has_lost_its_beginning(history, format) => Some(Doubt::LostBeginning),
        _ => None,
    }
}

/// Whether a block from before the first kept entry has a stack. Stacks exist only where recording was on, so entries
/// from then are gone: a ring buffer (`max_entries`) dropped them, or a pause did. A recording that began late has none.
fn has_lost_its_beginning(history: &History, format: Format) -> bool {
    format.has_segments() && history.baseline.iter().any(|origin| origin.stack != StackId::EMPTY)
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

impl SiteLimit {
    /// Whether the limit is about a site: by its label, or by any of `frames`.
    pub fn is_about(&self, label: &str, frames: &[String]) -> bool {
        self.pattern.is_match(label) || frames.iter().any(|frame| self.pattern.is_match(frame))
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
