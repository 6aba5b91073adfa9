//! How far an answer of a play is to be trusted.

use serde::Serialize;

/// How far a play is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "report", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The recording is complete, its own settings played are what was recorded, and so is where segments lie.
    Exact,
    /// Something is not known: what was there before the recording, or where the driver would put segments.
    Predicted,
    /// Something that decides the figure is not known, so that it may be far off.
    Uncertain,
    /// It cannot be played.
    Refused,
}

impl Trust {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Predicted => "predicted",
            Self::Uncertain => "uncertain",
            Self::Refused => "refused",
        }
    }
}
