//! A program under some settings: what a play of it says.

use super::{Capacities, Outcome, Trust};
use crate::allocator::SettingsWarning;
use crate::model::AllocatorSettings;

/// A program under some settings.
#[derive(Clone, Debug)]
pub struct Run {
    /// The string of the settings.
    pub alloc_conf: String,
    /// Whether they are the recorded ones.
    pub is_recorded: bool,
    /// Changes of the program, by name: see [`crate::play::changes::Change`].
    pub changes: Vec<String>,
    /// What these assume, a sentence each.
    pub assumptions: Vec<String>,
    /// How it goes on the device of the simulated device; `None` where it cannot be played.
    pub outcome: Option<Outcome>,
    /// The least and the most that is reserved, where that depends on where the driver puts segments.
    pub reserved_range: Option<(u64, u64)>,
    /// The devices on which it works.
    pub capacities: Capacities,
    /// Where the program went on after a refused request: a capacity from which on it always goes as it went, whether that
    /// request is refused again or served. [`Run::capacities`] are those on which nothing is refused.
    pub as_it_went: Option<u64>,
    /// How far to trust it.
    pub trust: Trust,
    /// Why no further; empty where it is exact.
    pub because: String,
    /// What is to be said of the settings.
    pub warnings: Vec<SettingsWarning>,
}

impl Run {
    /// What is not played, and why.
    pub(crate) fn refused(settings: &AllocatorSettings, is_recorded: bool, because: &str) -> Self {
        let warnings = if is_recorded { SettingsWarning::of_recorded } else { SettingsWarning::of_proposed };
        Self {
            alloc_conf: settings.alloc_conf.clone(),
            is_recorded,
            changes: Vec::new(),
            assumptions: Vec::new(),
            outcome: None,
            reserved_range: None,
            capacities: Capacities::default(),
            as_it_went: None,
            trust: Trust::Refused,
            because: because.to_owned(),
            warnings: warnings(settings),
        }
    }

    /// Bytes that a device must have for it, as far as known: those from which on it always works, else what it reserves
    /// at its most. `None` where it fails or is not played.
    pub fn needs(&self) -> Option<u64> {
        let outcome = self.outcome.as_ref()?;
        self.capacities.enough.or(outcome.failure().is_none().then_some(outcome.max_reserved))
    }
}
