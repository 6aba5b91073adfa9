//! Any entries, played with changes, under other settings, and on a device of any size; and what must hold for each play.

use super::entries::{self, Number};
use arbitrary::Arbitrary;
use memviz::Recording;
use memviz::analysis::simulate::{DeviceSimulation, SimulateOptions};
use memviz::input::alloc_conf::{self, Rest};
use memviz::model::{Action, HOST_DEVICE};
use memviz::simulation::Run;
use memviz::simulation::plans::PlanOptions;

const SETTINGS: [&str; 8] = [
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:200,garbage_collection_threshold:0.5",
    "max_split_size_mb:100,max_non_split_rounding_mb:64",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:[1:1,2:2,>:4],expandable_segments:True",
    "garbage_collection_threshold:0.8",
    "large_segment_size_mb:64",
];

const CHANGES: [&str; 9] = [
    "inference",
    "optimizer:adam8bit",
    "checkpoint:forward:every=2",
    "shard-optimizer:8",
    "shard-gradients:2",
    "offload:optimizer",
    "accumulate:4",
    "chunk-loss:8",
    "set-to-none",
];

/// What is played, and where.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    recording: entries::Plan,
    setting: u8,
    change: u8,
    capacity: Option<Number>,
}

/// Simulate, and looks for settings and changes with which it fits.
///
/// # Panics
/// When a play contradicts itself.
pub fn run(plan: &Plan) {
    let recording = plan.recording.recording();
    let capacity = plan.capacity.map(|bytes| bytes.0);
    let setting = SETTINGS.get(usize::from(plan.setting) % (SETTINGS.len() + 1));
    let settings = setting.map(|text| alloc_conf::parse(text, Rest::AfterLast).expect("these are settings"));
    let change = CHANGES.get(usize::from(plan.change) % (CHANGES.len() + 1)).and_then(|text| text.parse().ok());
    let options = SimulateOptions::default()
        .settings(settings.into_iter().collect())
        .changes(change.into_iter().collect())
        .sweep(plan.setting > 200)
        .capacity(capacity)
        .context(capacity.map(|_| 0));
    let simulated = recording.simulate(&options).map(|report| report.devices).unwrap_or_default();
    // Blocks that contradict one another are no state that an allocator can start from.
    if recording.anomalies() == 0 {
        for device in &simulated {
            device.runs.iter().for_each(|run| agrees(device, run));
            enough_is_enough(&recording, device);
        }
    }
    let _ = recording.plan(&PlanOptions::default().capacity(capacity));
}

/// What is counted of a play agrees.
fn agrees(device: &DeviceSimulation, run: &Run) {
    let Some(outcome) = &run.outcome else { return };
    assert!(outcome.max_allocated <= outcome.max_reserved, "blocks lie in segments: {run:?}");
    // Of pinned memory it is not known what was asked for.
    if device.device > HOST_DEVICE {
        assert!(outcome.max_requested <= outcome.max_active && outcome.max_allocated <= outcome.max_active, "{run:?}");
        assert!(outcome.max_active <= outcome.max_reserved, "blocks lie in segments: {run:?}");
    }
    let capacities = &run.capacities;
    let rising = [capacities.first, capacities.safe, capacities.enough].into_iter().flatten().collect::<Vec<_>>();
    assert!(rising.is_sorted(), "{capacities:?}");
}

/// On a device of the size that is said to be enough, nothing is refused. A recording that begins late is left out: that size is
/// for a device on which nothing was cached before.
fn enough_is_enough(recording: &Recording, device: &DeviceSimulation) {
    let was_refused = recording.snapshot.entries.rows(0..usize::MAX).any(|entry| entry.action == Action::Oom);
    let Some(enough) = device.runs.first().and_then(|run| run.capacities.enough) else {
        return;
    };
    if was_refused || !device.completeness.is_complete() {
        return;
    }
    let options = SimulateOptions::default().capacity(Some(enough)).context(Some(0)).devices(vec![device.device]);
    let again = recording.simulate(&options).map(|report| report.devices).unwrap_or_default();
    for run in again.iter().flat_map(|device| &device.runs) {
        let refused = run.outcome.as_ref().and_then(memviz::simulation::Outcome::failure);
        assert_eq!(refused, None, "{enough} bytes are not enough: {run:?}");
    }
}
