//! Ways to lower memory without fixing a mistake: other allocator settings, and checkpointing. All answers use this
//! module, so that all give the same recommendation.

use super::checkpoint::{CheckpointOptions, CheckpointReport, DeviceCheckpoint};
use crate::facts::device::{Device, Devices};
use crate::model::Action;
use crate::replay::Metric;
use crate::simulation::SettingsAdvice;

/// Number of simulated steps for a line about allocator settings: well below a second.
const STEPS_OF_SETTINGS: u64 = 8_000_000;
/// Settings are simulated only if the program left more than 1/N of reserved memory unrequested.
const ROOM_OF_SETTINGS: i64 = 25;

/// Settings that reserve notably less for a device. `None` if there are none, if simulating this many devices would
/// take too long, or if a request failed: the explanation of that request names the settings that would have served it.
pub(crate) fn settings(device: &Device<'_>, devices: usize) -> Option<SettingsAdvice> {
    let is_asked = device.track.count_of(Action::Oom) == 0 && leaves_room(device);
    let advice = is_asked.then(|| SettingsAdvice::of(device, STEPS_OF_SETTINGS / devices.max(1) as u64)).flatten();
    advice.filter(|advice| advice.better.is_some())
}

/// Whether the requested bytes of a device stayed well below its reserved bytes: settings can only change the
/// difference between the two.
fn leaves_room(device: &Device<'_>) -> bool {
    let maximum = |metric: Metric| device.history().maxima[metric as usize].bytes;
    let (reserved, requested) = (maximum(Metric::Reserved), maximum(Metric::Requested));
    reserved.saturating_sub(requested) > reserved / ROOM_OF_SETTINGS
}

/// The saving of checkpointing the best function on a device; `None` if none is worth it.
pub(crate) fn checkpoint(recording: &Devices<'_>, device: &Device<'_>) -> Option<DeviceCheckpoint> {
    let report = CheckpointReport::of(recording, &CheckpointOptions::best_in_brief(vec![device.id()])).ok()?;
    report.devices.into_iter().find(|device| !device.candidates.is_empty())
}
