//! Compares the measured values of a recording with budgets.
//!
//! In: a recording and [`Budgets`]. Out: a [`Check`] for each of them on each device. If a figure is not known well
//! enough, the verdict is [`CheckVerdict::Unknown`], never passed.

pub(crate) mod budget;
#[cfg(feature = "config")]
pub mod config;
pub(crate) mod culprits;
pub(crate) mod earlier;
mod judge;
mod leak;
pub(crate) mod measure;
mod outcome;
mod residue;

pub use budget::{Budgets, Ceiling, ResidueLimit, SiteLimit, Tolerance};
pub use culprits::{Basis, Culprit, Culprits};
pub use earlier::{EarlierDevice, EarlierRun};
pub use measure::Measured;
pub use outcome::{Amount, Check, CheckKind, CheckVerdict, CheckedDevice};

use crate::facts::device::Devices;
use crate::model::DeviceId;
use indexmap::IndexSet;
use judge::Judge;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct CheckOptions {
        pub budgets: Vec<Budgets>,
        /// Number of sites to list for an exceeded budget.
        pub top: usize,
    }
}

#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    pub devices: Vec<CheckedDevice>,
    /// Every budget on every device, in the order of the options.
    pub checks: Vec<Check>,
}

impl CheckReport {
    pub fn of(recording: &Devices<'_>, options: &CheckOptions) -> Self {
        let judge = Judge::new(recording);
        let mut checks: Vec<Check> = options.budgets.iter().flat_map(|budgets| judge.all(budgets)).collect();
        if checks.iter().any(|check| !check.culprits.sites.is_empty()) {
            let locations = judge.locations();
            for check in &mut checks {
                check.culprits.finish(options.top, &locations);
            }
        }
        let devices: IndexSet<DeviceId> = options.budgets.iter().flat_map(|budgets| judge.devices(budgets)).collect();
        Self { devices: devices.into_iter().filter_map(|device| judge.checked(device)).collect(), checks }
    }

    /// The worst verdict: unknown, then failed.
    pub fn verdict(&self) -> CheckVerdict {
        let has = |verdict| self.checks.iter().any(|check| check.verdict == verdict);
        match (has(CheckVerdict::Unknown), has(CheckVerdict::Failed)) {
            (true, _) => CheckVerdict::Unknown,
            (_, true) => CheckVerdict::Failed,
            _ => CheckVerdict::Passed,
        }
    }
}
