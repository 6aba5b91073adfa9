//! What to change in a program so that it needs less memory: one list for all commands.
//!
//! A finder for each story looks for a known mistake in the [`facts`](crate::facts) of a device and says where it is and what
//! cures it. The cure is then played, which shows what it saves; a cure that saves nothing worth a word is dropped. What cannot be
//! played has no figures and says why.

mod trial;

pub use trial::{Lowered, Saving};

use crate::facts::device::Device;
use crate::model::{AllocatorSettings, FrameId, HOST_DEVICE};
use crate::play::changes::{Change, Lives};
use std::cmp::Reverse;
use trial::Trial;

/// A known mistake, by a name that stays the same in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Story {}

impl Story {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {}
    }
}

/// Something to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The mistake.
    pub story: Story,
    /// The line to change: the one that makes the mistake, not the one that suffers from it. `None` where no stack has it.
    pub line: Option<FrameId>,
    /// What to change, as a request: `call optimizer.zero_grad() before the forward pass`.
    pub cure: String,
    /// What shows the mistake, in a sentence.
    pub evidence: String,
    /// What the change costs in time or otherwise; `None` where it costs nothing.
    pub cost: Option<String>,
    /// The lines of Python that make the change; empty where the program decides them.
    pub code: Vec<String>,
    /// What the change saves.
    pub saving: Saving,
}

/// What a finder found, before it is played.
#[derive(Clone, Debug)]
struct Finding {
    story: Story,
    line: Option<FrameId>,
    cure: String,
    evidence: String,
    cost: Option<String>,
    code: Vec<String>,
    remedy: Remedy,
}

/// How a cure is played.
#[derive(Clone, Debug)]
enum Remedy {
    /// Blocks live shorter, are smaller or are not there.
    Lives(Lives),
    /// Changes that `memviz simulate` has by name.
    Changes(Vec<Change>),
    /// Other allocator settings.
    Settings(AllocatorSettings),
    /// It cannot be played, for this reason.
    Unplayed(&'static str),
}

/// Finders, the most telling first.
const FINDERS: [fn(&Device<'_>) -> Vec<Finding>; 0] = [];

/// What to change in the program of a device, what saves most first.
pub fn advice(device: &Device<'_>) -> Vec<Advice> {
    if device.id() <= HOST_DEVICE {
        return Vec::new();
    }
    let found: Vec<Finding> = FINDERS.iter().flat_map(|find| find(device)).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let trial = Trial::new(device);
    let mut advice: Vec<Advice> = found.into_iter().filter_map(|finding| trial.advice(finding)).collect();
    advice.sort_by_key(|advice| Reverse(advice.saving.most()));
    advice
}
