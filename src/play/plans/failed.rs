//! Another recording, which ran out of memory.

/// A recording of the same program that ran out of memory on the device which plans are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its requests before the first one that was refused.
    pub requests: usize,
    /// Of these, those that the recording which is played makes as well: at the same place, of the same size.
    pub equal: usize,
}
