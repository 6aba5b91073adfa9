//! `record_function` ranges, recorded next to the trace (PyTorch 2.6 and later).

use super::{DeviceId, StrId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Start,
    End,
}

/// One end of a `record_function` range. Ends may be missing: a recording can start or stop inside a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub stage: Stage,
    /// The range's name, for instance `ProfilerStep#3`.
    pub name: StrId,
    /// Device as recorded; PyTorch may write 0 for every device.
    pub device: DeviceId,
    /// Microseconds on the same clock as the trace entries.
    pub time_us: i64,
}
