//! The result of simulating a program under some settings.

use super::{Capacities, Outcome, Trust};
use crate::allocator::SettingsWarning;
use crate::model::AllocatorSettings;

#[derive(Clone, Debug)]
pub struct Run {
    pub alloc_conf: String,
    pub is_recorded: bool,
    /// Whether the recording has no settings, so that PyTorch's defaults are assumed.
    pub is_default_assumed: bool,
    /// Changes to the program, by name: see [`crate::simulation::changes::Change`].
    pub changes: Vec<String>,
    /// The assumptions of the changes, one sentence each.
    pub assumptions: Vec<String>,
    /// The result on the simulated device; `None` if it cannot be simulated.
    pub outcome: Option<Outcome>,
    /// The minimum and maximum of reserved bytes, if they depend on where the driver places segments.
    pub reserved_range: Option<(u64, u64)>,
    pub capacities: Capacities,
    /// If the program continued after a failed request: a capacity from which on it always runs as recorded, whether
    /// that request fails again or not. [`Run::capacities`] are those on which no request fails.
    pub as_it_went: Option<u64>,
    pub trust: Trust,
    /// Why you cannot trust it further; empty if it is exact.
    pub because: String,
    pub warnings: Vec<SettingsWarning>,
}

impl Run {
    /// A run that is not simulated, and why.
    pub(crate) fn refused(settings: &AllocatorSettings, is_recorded: bool, because: &str) -> Self {
        let warnings = if is_recorded { SettingsWarning::of_recorded } else { SettingsWarning::of_proposed };
        Self {
            alloc_conf: settings.alloc_conf.clone(),
            is_recorded,
            is_default_assumed: is_recorded && !settings.recorded,
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

    /// Bytes that a device must have, as far as known: the capacity from which on it always works, otherwise its
    /// maximum of reserved bytes. `None` if neither is known.
    pub fn needs(&self) -> Option<u64> {
        let works = self.outcome.as_ref().filter(|outcome| outcome.failure().is_none());
        self.capacities.enough.or(works.map(|outcome| outcome.max_reserved))
    }
}
