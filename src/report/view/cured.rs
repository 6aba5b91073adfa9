//! What some cures save together.

use super::json;
use crate::analysis::advice::{Lowered, Saving};
use crate::play::Trust;
use serde::Serialize;

#[derive(Serialize)]
struct Saved<'a> {
    allocated: Peaks,
    reserved: Peaks,
    trust: Trust,
    reserved_trust: Trust,
    /// Why the figures are not trusted further.
    because: &'a str,
}

/// A peak without and with the cures.
#[derive(Serialize)]
struct Peaks {
    before: u64,
    after: u64,
}

impl From<Lowered> for Peaks {
    fn from(Lowered { before, after }: Lowered) -> Self {
        Self { before, after }
    }
}

/// The peaks with some cures; `null` where they save too little, or are not simulated.
pub fn cured(saving: Option<&Saving>) -> String {
    let Some(Saving::Played { allocated, reserved, trust, reserved_trust, because, .. }) = saving else {
        return json(&());
    };
    let (allocated, reserved) = (Peaks::from(*allocated), Peaks::from(*reserved));
    json(&Saved { allocated, reserved, trust: *trust, reserved_trust: *reserved_trust, because })
}
