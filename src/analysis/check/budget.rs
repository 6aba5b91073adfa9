//! Budgets, as people write them in flags and in `memviz.toml`.

use super::earlier::EarlierRun;
use crate::analysis::diff::GrowthLimit;
use crate::error::{Error, Result};
use crate::facts::time::when::When;
use crate::model::DeviceId;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use regex_lite::Regex;
use std::str::FromStr;

options! {
    /// Budgets that belong together: those of the command line, or of one entry of `memviz.toml`. They apply to each of
    /// [`Budgets::devices`] separately.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct Budgets {
        /// The name of the entry; `None` on the command line.
        pub name: Option<String>,
        /// The devices to check; empty for every device with data.
        pub devices: Vec<DeviceId>,
        pub max_peak: Option<u64>,
        pub max_reserved: Option<u64>,
        /// Limit on the inactive share of reserved memory, at the peak of allocated bytes.
        pub max_fragmentation: Option<Percent>,
        pub max_leak: Option<u64>,
        /// Limits on the bytes of matching sites at the peak of allocated bytes.
        pub max_sites: Vec<SiteLimit>,
        /// Limits on bytes allocated between two instants and still live at the second one.
        pub max_residues: Vec<ResidueLimit>,
        /// Annotations that represent steps; `None` to find steps in the recording.
        pub steps: Option<Regex>,
        /// The baseline of the peaks of allocated and reserved bytes.
        pub baseline: Option<EarlierRun>,
        /// How much the peaks may exceed the baseline.
        pub tolerance: Tolerance,
        /// Whether to accept a recording that starts with memory in use, and check it from there on. Otherwise its maxima are
        /// lower bounds: a ring buffer may have dropped the peak.
        pub accept_late_start: bool,
        /// Whether only recordings that contain PyTorch's own counters can meet a budget. Nothing else proves that a recording
        /// has its beginning.
        pub require_counters: bool,
    }
}

impl Budgets {
    pub fn is_empty(&self) -> bool {
        self.max_peak.is_none()
            && self.max_reserved.is_none()
            && self.max_fragmentation.is_none()
            && self.max_leak.is_none()
            && self.max_sites.is_empty()
            && self.max_residues.is_empty()
            && self.baseline.is_none()
    }
}

/// What happens if a peak exceeds the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// More growth than this exceeds the budget.
    Within(GrowthLimit),
    /// All growth is shown, and none is judged.
    Any,
}

impl Default for Tolerance {
    /// No growth.
    fn default() -> Self {
        Self::Within(GrowthLimit::default())
    }
}

impl FromStr for Tolerance {
    type Err = Error;

    /// Reads a size, a percentage, or `any`.
    ///
    /// # Errors
    /// If the text is none of these.
    fn from_str(text: &str) -> Result<Self> {
        if text == "any" { Ok(Self::Any) } else { text.parse().map(Self::Within) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    Bytes(Bytes),
    /// A share of the device's memory.
    OfCapacity(Percent),
}

impl Ceiling {
    /// The limit in bytes, on a device of that capacity.
    ///
    /// # Errors
    /// If it is a percentage and the capacity is unknown.
    pub fn bytes(self, capacity: Option<Bytes>) -> Result<u64> {
        match (self, capacity) {
            (Self::Bytes(bytes), _) => Ok(bytes.0),
            (Self::OfCapacity(percent), Some(capacity)) => Ok(percent.of(capacity.0)),
            (Self::OfCapacity(percent), None) => Err(Error::Request(format!(
                "{percent} needs the size of the device memory; add --capacity, such as --capacity 80GiB"
            ))),
        }
    }
}

impl FromStr for Ceiling {
    type Err = Error;

    /// Reads a size, or a percentage of the capacity.
    ///
    /// # Errors
    /// If the text is neither, or more than 100 percent.
    fn from_str(text: &str) -> Result<Self> {
        if text.ends_with('%') {
            return at_most_all(text).map(Self::OfCapacity);
        }
        Bytes::of_device(text).map(Self::Bytes)
    }
}

/// Reads a percentage of at most 100.
///
/// # Errors
/// If the text is not a percentage, or is a fraction such as `0.3`, which probably does not mean 0.3%.
pub fn at_most_all(text: &str) -> Result<Percent> {
    let percent: Percent = text.parse()?;
    if text.starts_with("0.") && !text.ends_with('%') {
        return Err(Error::Request(format!(
            "expected a percentage such as 30%, found {text:?}; did you mean {text}%?"
        )));
    }
    if percent > Percent::ALL {
        return Err(Error::Request(format!("expected a percentage of at most 100%, found {text:?}")));
    }
    Ok(percent)
}

#[derive(Clone, Debug)]
pub struct SiteLimit {
    /// Matches sites by their label or by a frame of their stacks.
    pub pattern: Regex,
    pub limit: Bytes,
}

impl FromStr for SiteLimit {
    type Err = Error;

    /// Reads `REGEX=SIZE`; the last `=` separates the two.
    ///
    /// # Errors
    /// If either half is malformed.
    fn from_str(text: &str) -> Result<Self> {
        let (pattern, size) = text.rsplit_once('=').filter(|(pattern, _)| !pattern.is_empty()).ok_or_else(|| {
            Error::Request(format!("expected REGEX=SIZE such as attention\\.py=2GiB, found {text:?}"))
        })?;
        let pattern = Regex::new(pattern).map_err(|error| {
            Error::Request(format!("expected a regular expression before =, found {pattern:?} ({error})"))
        })?;
        Ok(Self { pattern, limit: Bytes::of_blocks(size)? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidueLimit {
    /// The instants as they were written: `A..B`.
    pub between: String,
    /// The earlier instant.
    pub from: When,
    pub to: When,
    pub limit: Bytes,
}

impl FromStr for ResidueLimit {
    type Err = Error;

    /// Reads `A..B=SIZE`; the last `=` separates the size, and the first `..` between two instants separates these.
    ///
    /// # Errors
    /// If a part is malformed.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::Request(format!("expected A..B=SIZE such as step:2:end..step:3:end=1MiB, found {text:?}"));
        let (between, size) = text.rsplit_once('=').ok_or_else(bad)?;
        // The name of an annotation may contain dots.
        let mut parts = between.match_indices("..").map(|(place, _)| (&between[..place], &between[place + 2..]));
        let read = |(from, to): (&str, &str)| Some((from.parse().ok()?, to.parse().ok()?));
        let (from, to) = parts.find_map(read).ok_or_else(bad)?;
        Ok(Self { between: between.to_owned(), from, to, limit: Bytes::of_blocks(size)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_percent_are_of_the_capacity() {
        let ceiling = |text: &str| text.parse::<Ceiling>().unwrap();
        assert_eq!(ceiling("40GiB").bytes(None).unwrap(), 40 << 30);
        assert_eq!(ceiling("90%").bytes(Some(Bytes(1000))).unwrap(), 900);
        assert!(ceiling("90%").bytes(None).unwrap_err().to_string().contains("capacity"));
        assert_eq!(
            [ceiling("0"), ceiling("40B"), ceiling("1048576")],
            [0, 40, 1 << 20].map(|size| Ceiling::Bytes(Bytes(size)))
        );
        for bad in ["101%", "-1%", "10XB", "%", "", "1", "40", "1048575"] {
            assert!(bad.parse::<Ceiling>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_no_percentage() {
        assert!(at_most_all("0.3").is_err() && at_most_all("0.3%").is_ok() && at_most_all("0").is_ok());
    }

    #[test]
    fn the_last_equals_sign_separates() {
        let limit: SiteLimit = r"a=b\.py=2GiB".parse().unwrap();
        assert_eq!((limit.pattern.as_str(), limit.limit), (r"a=b\.py", Bytes(2 << 30)));
        for bad in ["", "=", "=2GiB", "model.py", "model.py=", "model.py=2", "(=2GiB", "model.py=-2GiB"] {
            let error = bad.parse::<SiteLimit>().map(|limit| limit.limit);
            assert!(error.is_err(), "{bad}: {error:?}");
        }
    }

    #[test]
    fn two_dots_divide_instants() {
        let limit: ResidueLimit = "annotation:a..b..end=1MiB".parse().unwrap();
        assert_eq!((limit.from, limit.to), (When::Annotation("a..b".to_owned()), When::End));
        assert_eq!((limit.between.as_str(), limit.limit), ("annotation:a..b..end", Bytes(1 << 20)));
        for bad in ["", "start..end", "start=1MiB", "start..soon=1MiB", "start..end=1", "start..end=-1MiB"] {
            assert!(bad.parse::<ResidueLimit>().is_err(), "{bad}");
        }
    }
}
