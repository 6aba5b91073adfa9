//! How far the result of a simulation can be trusted.

use serde::Serialize;

names! {
    /// How far a simulation can be trusted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Trust {
        /// The recording is complete, and a simulation with its own settings matches it, including the order of segments.
        Exact = "exact",
        /// Something is unknown: the memory before the recording, or where the driver would place segments.
        Predicted = "predicted",
        /// Something that decides the figure is unknown, so the figure may be far off.
        Uncertain = "uncertain",
        /// It cannot be simulated.
        Refused = "refused",
    }
}
