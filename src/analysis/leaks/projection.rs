//! When growth fills the device.

use crate::model::Action;
use crate::replay::{Instant, Metric, Track};
use serde::Serialize;

/// When the device is full, if growth continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ProjectionSteps"))]
pub struct Projection {
    /// Bytes that the program can use.
    pub capacity_bytes: u64,
    /// The maximum of allocated bytes within the last step.
    pub peak_bytes: i64,
    /// Bytes of blocks that everything that leaks or grows adds per step.
    pub allocated_bytes_per_step: i64,
    /// The number of further steps that fit the device.
    pub steps: u64,
}

impl Projection {
    /// When the device will be full, given the maximum that the last step needed.
    pub(super) fn of(
        track: Track<'_>,
        ends: &[Instant],
        capacity: Option<u64>,
        allocated_bytes_per_step: i64,
    ) -> Option<Self> {
        let capacity_bytes = capacity.or_else(|| capacity_at_oom(track))?;
        let &[.., from, to] = ends else { return None };
        let peak_bytes = track.highest(Metric::Allocated, from, to).bytes;
        // If the last step already needed more than the device has, no further step fits.
        let room = u64::try_from(i128::from(capacity_bytes) - i128::from(peak_bytes)).unwrap_or(0);
        let steps = room.checked_div(u64::try_from(allocated_bytes_per_step).ok()?)?;
        Some(Self { capacity_bytes, peak_bytes, allocated_bytes_per_step, steps })
    }
}

/// The memory that the program could use when a request first failed: what it had reserved, plus the driver's free
/// memory, which profiler traces do not record.
fn capacity_at_oom(track: Track<'_>) -> Option<u64> {
    let snapshot = track.snapshot;
    if !snapshot.notes.format.has_segments() {
        return None;
    }
    let entry = track.actions().iter().position(|&action| action == Action::Oom)? as u32;
    let device_free = track.entry(entry)?.addr;
    let reserved = track.counters_at(entry + 1).reserved;
    u64::try_from(reserved).ok()?.checked_add(device_free)
}
