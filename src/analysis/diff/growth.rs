//! Checks whether memory grew by more than a tolerance.

use super::{DeviceDiff, DiffReport};
use crate::error::Error;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use crate::replay::{Bound, Metric};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthLimit {
    Bytes(u64),
    Percent(Percent),
}

impl Default for GrowthLimit {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl FromStr for GrowthLimit {
    type Err = Error;

    /// Reads a size (`64MiB`, `0`) or a percentage (`2.5%`).
    ///
    /// # Errors
    /// If the text is neither.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.ends_with('%') {
            text.parse().map(Self::Percent)
        } else {
            Bytes::of_blocks(text).map(|Bytes(size)| Self::Bytes(size))
        }
    }
}

impl fmt::Display for GrowthLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(out, "{}", Bytes(*bytes)),
            Self::Percent(percent) => write!(out, "{percent}"),
        }
    }
}

impl GrowthLimit {
    /// The largest value within the limit, given the base's value.
    pub fn above(self, base: u64) -> u64 {
        base.saturating_add(match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => percent.of(base),
        })
    }

    /// Whether `new` is within the limit, given the base's value.
    pub fn allows(self, base: u64, new: u64) -> bool {
        let Some(growth) = new.checked_sub(base) else { return true };
        match self {
            Self::Bytes(bytes) => growth <= bytes,
            Self::Percent(percent) => percent.covers(growth, base),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    Within,
    Beyond,
    /// Unknown: one of the numbers is a bound, and the true one may be on either side of the limit.
    Unknown,
}

impl DeviceDiff {
    /// Compares the growth with a limit. If a number is a bound, all values that it allows are considered, so the answer is
    /// certain, or [`Growth::Unknown`].
    pub fn growth(&self, limit: GrowthLimit) -> Growth {
        // Values without a meaning cannot be compared.
        if self.base.doubt.is_some() || self.new.doubt.is_some() {
            return Growth::Unknown;
        }
        let range = |side: &super::DiffInputDevice| {
            // A value below zero means that a recording contradicts itself.
            let bytes = u64::try_from(side.peak.at.get(self.metric())).ok();
            match (bytes, side.bound) {
                (Some(bytes), None) => (bytes, bytes),
                (Some(bytes), Some(Bound::Lower)) => (bytes, u64::MAX),
                (Some(bytes), Some(Bound::Upper)) => (0, bytes),
                (None, _) | (_, Some(Bound::Unknown)) => (0, u64::MAX),
            }
        };
        let (base, new) = (range(&self.base), range(&self.new));
        match (limit.allows(base.0, new.1), limit.allows(base.1, new.0)) {
            (true, _) => Growth::Within,
            (_, false) => Growth::Beyond,
            _ => Growth::Unknown,
        }
    }
}

impl DiffReport {
    /// The counter compared; `None` without a device to compare.
    pub fn metric(&self) -> Option<Metric> {
        self.devices.first().map(DeviceDiff::metric)
    }

    /// All devices together: beyond the limit if one certainly is, else unknown if one is. A device that only one of
    /// the files has is also unknown, since it may not have been recorded: a device without entries and without memory
    /// at the dump is not in a file.
    pub fn growth(&self, limit: GrowthLimit) -> Growth {
        let growths: Vec<Growth> = self.devices.iter().map(|device| device.growth(limit)).collect();
        if growths.contains(&Growth::Beyond) {
            Growth::Beyond
        } else if growths.contains(&Growth::Unknown) || !self.only_base.is_empty() || !self.only_new.is_empty() {
            Growth::Unknown
        } else {
            Growth::Within
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_sizes_or_percentages() {
        let limit = |text: &str| text.parse::<GrowthLimit>().ok();
        assert_eq!(limit("64MiB"), Some(GrowthLimit::Bytes(64 << 20)));
        assert_eq!(limit("0"), Some(GrowthLimit::Bytes(0)));
        assert_eq!(limit("2.5%").map(|limit| limit.to_string()), Some("2.5%".to_owned()));
        for bad in ["", "%", "-1", "-1%", "10XB", "1e3", "99999999999999999999"] {
            assert_eq!(limit(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_limit_is_exact() {
        let bytes = GrowthLimit::Bytes(10);
        assert!(bytes.allows(100, 110) && bytes.allows(100, 0) && !bytes.allows(100, 111));
        let percent: GrowthLimit = "10%".parse().unwrap_or(bytes);
        assert!(percent.allows(100, 110) && percent.allows(0, 0) && !percent.allows(100, 111) && !percent.allows(0, 1));
        assert!(GrowthLimit::Bytes(0).allows(u64::MAX, u64::MAX));
    }
}
