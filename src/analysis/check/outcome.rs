//! The result of a check: one budget on one device.

use super::culprits::Culprits;
use super::measure::Measured;
use crate::analysis::peak::DevicePeak;
use crate::facts::doubts::Doubt;
use crate::model::DeviceId;

#[derive(Clone, Debug)]
pub struct CheckedDevice {
    pub peak: DevicePeak,
    pub allocated: Measured,
    pub reserved: Measured,
    /// Number of requests that failed: the program may need more than was measured.
    pub failed_requests: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub budget: Option<String>,
    pub kind: CheckKind,
    /// The device; `None` if the recording has none.
    pub device: Option<DeviceId>,
    /// The limit, if known; the value of the baseline if the verdict is [`CheckVerdict::Shown`].
    pub limit: Option<Amount>,
    pub at_least: Option<Amount>,
    pub at_most: Option<Amount>,
    /// Why the value is not exact.
    pub doubt: Option<Doubt>,
    /// Number of recorded sites at the peak that a [`CheckKind::MaxSite`] matches; `None` for other kinds, and if there are
    /// no sites.
    pub matching_sites: Option<usize>,
    pub verdict: CheckVerdict,
    pub culprits: Culprits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// [`super::Budgets::max_peak`].
    MaxPeak,
    /// [`super::Budgets::max_reserved`].
    MaxReserved,
    /// [`super::Budgets::max_fragmentation`].
    MaxFragmentation,
    /// [`super::Budgets::max_leak`].
    MaxLeak,
    /// [`super::Budgets::max_sites`], by expression.
    MaxSite(String),
    /// [`super::Budgets::max_residues`], by its instants.
    MaxResidue(String),
    /// Peak of allocated bytes, against the baseline.
    BaselinePeak,
    /// Peak of reserved bytes, against the baseline.
    BaselineReserved,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Bytes(u64),
    Share(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    Passed,
    Failed,
    /// The recording does not show it.
    Unknown,
    /// The value is only compared with the baseline: [`super::Tolerance::Any`].
    Shown,
}

impl CheckKind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::MaxPeak => "max-peak",
            Self::MaxReserved => "max-reserved",
            Self::MaxFragmentation => "max-fragmentation",
            Self::MaxLeak => "max-leak",
            Self::MaxSite(_) => "max-site",
            Self::MaxResidue(_) => "max-residue",
            Self::BaselinePeak => "baseline-peak",
            Self::BaselineReserved => "baseline-reserved",
        }
    }
}

impl CheckVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Shown => "shown",
        }
    }
}

impl Check {
    /// The measured value, and which bound it is if it is not exact: the bound that decided, otherwise the lower one.
    pub fn measured(&self) -> (Option<Amount>, Option<&'static str>) {
        match (self.at_least, self.at_most) {
            (at_least, at_most) if at_least == at_most => (at_least, None),
            (_, Some(at_most)) if self.verdict == CheckVerdict::Passed => (Some(at_most), Some("upper")),
            (Some(at_least), _) => (Some(at_least), Some("lower")),
            (None, at_most) => (at_most, Some("upper")),
        }
    }

    /// The limit minus the measured value, negative if the limit is exceeded; `None` if it is not judged.
    pub fn headroom_bytes(&self) -> Option<i128> {
        match (self.limit, self.measured().0) {
            (Some(Amount::Bytes(limit)), Some(Amount::Bytes(bytes))) if self.verdict != CheckVerdict::Unknown => {
                Some(i128::from(limit) - i128::from(bytes))
            }
            _ => None,
        }
    }
}
