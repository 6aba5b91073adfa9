//! What lowers memory without a mistake to mend: other allocator settings, and checkpointing. All answers ask here, so that
//! one recommends what another one does.

use super::checkpoint::{CheckpointOptions, CheckpointReport, DeviceCheckpoint};
use crate::facts::device::{Device, Devices};
use crate::model::Action;
use crate::play::SettingsAdvice;
use crate::replay::Metric;

/// Steps that are played for a line about allocator settings: well below a second.
const STEPS_OF_SETTINGS: u64 = 8_000_000;
/// They are played where more than 1/N of what is reserved is never asked for at once.
const ROOM_OF_SETTINGS: i64 = 25;

/// Settings that reserve notably less for a device; `None` if there are none, or if that takes too long to know where this
/// many devices are asked about. What would have served a failed request is said of that request.
pub(crate) fn settings(device: &Device<'_>, devices: usize) -> Option<SettingsAdvice> {
    let is_asked = device.track.count_of(Action::Oom) == 0 && leaves_room(device);
    let advice = is_asked.then(|| SettingsAdvice::of(device, STEPS_OF_SETTINGS / devices.max(1) as u64)).flatten();
    advice.filter(|advice| advice.better.is_some())
}

/// Whether the requests of a device never came near what was reserved, which is all that settings can change. What the plays
/// then save is judged by what it is.
fn leaves_room(device: &Device<'_>) -> bool {
    let maximum = |metric: Metric| device.history().maxima[metric as usize].bytes;
    let (reserved, requested) = (maximum(Metric::Reserved), maximum(Metric::Requested));
    reserved.saturating_sub(requested) > reserved / ROOM_OF_SETTINGS
}

/// What checkpointing the best function saves on a device; `None` if none is worth it.
pub(crate) fn checkpoint(recording: &Devices<'_>, device: &Device<'_>) -> Option<DeviceCheckpoint> {
    let report = CheckpointReport::of(recording, &CheckpointOptions::best_in_brief(vec![device.id()])).ok()?;
    report.devices.into_iter().find(|device| !device.candidates.is_empty())
}
