//! What a program would need with other settings, on another device, or with changes: simulates it with the allocator's
//! rules.
//!
//! `program` reads a program's requests from a recording; `player` runs them on the [`crate::allocator`]; `recorded` compares
//! a simulation with the recorded settings with the recording, which shows how far simulations can be trusted; `capacity`
//! finds the smallest device. [`changes`] converts a program into a changed one. `simulator` prepares a device's program for
//! simulations with any settings and changes; `better_settings` simulates a few settings for a line of advice; [`plans`]
//! searches for ways to make a program fit.

mod better_settings;
pub(crate) mod candidates;
mod capacity;
pub mod changes;
mod generation;
pub(crate) mod host;
mod peak;
mod placement;
pub mod plans;
mod player;
mod program;
mod recorded;
mod repetition;
mod rounds;
mod run;
mod simulator;
mod trust;

pub use better_settings::{BetterSettings, SettingsAdvice};
pub(crate) use better_settings::{is_notable_part, recommended};
pub(crate) use candidates::advisable;
pub use capacity::{Capacities, Search};
pub use generation::{Generation, Reach};
pub(crate) use peak::most_allocated;
pub(crate) use placement::{PLACEMENTS, placements_of, relevant};
pub(crate) use player::{
    Highest, allocated_over_time, blocks_at_peak, over_time, recorded_settings, simulate_to_refusal,
};
pub use player::{Outcome, Setup, simulate};
pub use program::{Program, Releases};
pub(crate) use program::{Step, StepKind};
pub use recorded::{Difference, compare};
pub use run::Run;
#[cfg(feature = "report")]
pub(crate) use simulator::UNPLACED;
pub(crate) use simulator::{Simulator, lacks, program, refusal, refuses};
pub use trust::Trust;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub bytes: u64,
    /// Whether they are a guess, [`DEFAULT_CONTEXT`]: neither given nor shown by the recording.
    pub is_assumed: bool,
}

impl Context {
    /// These bytes, or the default if they are unknown.
    pub(crate) fn of(bytes: Option<u64>) -> Self {
        Self { bytes: bytes.unwrap_or(DEFAULT_CONTEXT), is_assumed: bytes.is_none() }
    }

    /// That of a device with this much memory, which it cannot exceed.
    pub(crate) fn within(self, total: u64) -> Self {
        Self { bytes: self.bytes.min(total), ..self }
    }
}

/// Bytes of a device that CUDA itself uses, if the recording does not show it.
pub const DEFAULT_CONTEXT: u64 = 500 << 20;
