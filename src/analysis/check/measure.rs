//! What a recording shows about a figure: its exact value, bounds, or nothing; and why.

use crate::facts::doubts::{self, Doubt, Leaves};
use crate::replay::{Metric, Track};

/// A figure in bytes as far as it is known; exact if both bounds are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub at_least: Option<u64>,
    pub at_most: Option<u64>,
    /// Why it is not exact.
    pub doubt: Option<Doubt>,
}

impl Measured {
    pub fn exact(bytes: u64) -> Self {
        Self { at_least: Some(bytes), at_most: Some(bytes), doubt: None }
    }

    pub fn unknown(doubt: Doubt) -> Self {
        Self { doubt: Some(doubt), ..Self::default() }
    }

    pub fn at_least(bytes: u64, doubt: Doubt) -> Self {
        Self::between(Some(bytes), None, doubt)
    }

    pub fn value(&self) -> Option<u64> {
        self.at_least.filter(|_| self.at_least == self.at_most)
    }

    fn between(at_least: Option<u64>, at_most: Option<u64>, doubt: Doubt) -> Self {
        Self { at_least, at_most, doubt: Some(doubt) }
    }
}

/// The highest value of a counter since the first entry; see [`doubts::late_start`] for the time before.
pub fn maximum(track: Track<'_>, metric: Metric) -> Measured {
    let history = track.history;
    let doubt = doubts::of_maximum(track, metric);
    // Only a contradictory recording has a maximum below zero.
    let Ok(bytes) = u64::try_from(history.maxima[metric as usize].bytes) else {
        return Measured::unknown(doubt.map_or(Doubt::Contradicts(history.anomalies.total()), |(doubt, _)| doubt));
    };
    match doubt {
        None => Measured::exact(bytes),
        Some((doubt, Leaves::Nothing)) => Measured::unknown(doubt),
        Some((doubt, Leaves::LowerBound)) => Measured::between(Some(bytes), None, doubt),
        Some((doubt, Leaves::UpTo(more))) => Measured::between(Some(bytes), bytes.checked_add(more), doubt),
        Some((doubt, Leaves::AtMost(more))) => Measured::between(None, bytes.checked_add(more), doubt),
        Some((doubt, Leaves::Around(less, more))) => {
            Measured::between(bytes.checked_sub(less).or(Some(0)), bytes.checked_add(more), doubt)
        }
    }
}

/// Judges a figure that may be only partly known: whether it is within a limit, if that is certain either way.
pub fn keeps(measured: &Measured, limit: u64) -> Option<bool> {
    if measured.at_most.is_some_and(|bytes| bytes <= limit) {
        return Some(true);
    }
    measured.at_least.is_some_and(|bytes| bytes > limit).then_some(false)
}

/// The bytes of some sites at the peak; blocks without a stack may also belong to them.
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
