//! Another recording, which ran out of memory.

/// A recording of the same program that ran out of memory on the device for which plans are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub requests: usize,
    /// Of these, the number that match the simulated recording in place and size.
    pub equal: usize,
    /// Whether the recording is simulated with the sizes of the one that failed; sizes that it did not reach are upper bounds.
    pub is_resized: bool,
}
