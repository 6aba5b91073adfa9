//! All commands give the same answer for the memory of checkpointed calls.

use crate::support::{FIXTURES, assert_none};
use memviz::Recording;
use memviz::analysis::checkpoint::{CheckpointOptions, DeviceCheckpoint};
use memviz::analysis::simulate::SimulateOptions;
use memviz::analysis::timeline::TimelineOptions;
use memviz::input::ReadOptions;
use memviz::model::DeviceId;
use memviz::simulation::changes::Change;
use memviz::simulation::plans::{DevicePlans, PlanOptions};
use std::path::Path;

/// Sparser calls than every second one are compared if a search found them.
const EVERY: [usize; 2] = [1, 2];

/// The change that checkpoints every N-th call of a function.
fn change(label: &str, every: usize) -> Change {
    Change::Checkpoint { site: label.to_owned(), every }
}

/// `simulate --checkpoint`: the maximum of allocated memory, or why there is no answer.
fn simulated(recording: &Recording, device: DeviceId, changes: Vec<Change>) -> Result<i64, String> {
    let options = SimulateOptions::default().changes(changes).devices(vec![device]);
    let report = recording.simulate(&options).map_err(|error| error.to_string())?;
    let run = report.devices[0].changed().ok_or("no run with the change")?;
    run.outcome.as_ref().map(|outcome| outcome.max_allocated as i64).ok_or_else(|| run.because.clone())
}

/// What differs between `checkpoint` and `simulate --checkpoint` on one device, and how much was compared.
fn against_simulate(path: &str, recording: &Recording, device: &DeviceCheckpoint) -> (Vec<String>, usize) {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for candidate in &device.candidates {
        for plan in candidate.plan.iter().filter(|plan| EVERY.contains(&plan.every)) {
            let change = change(&candidate.label, plan.every);
            let simulated = simulated(recording, device.device, vec![change.clone()]);
            compared += 1;
            if simulated != Ok(plan.predicted_peak_bytes) {
                wrong.push(format!(
                    "{path}: {change}: checkpoint {}, simulate {simulated:?}",
                    plan.predicted_peak_bytes
                ));
            }
        }
    }
    (wrong, compared)
}

/// The differences between the plans of a search and the results of `simulate` for their changes.
fn against_plans(path: &str, recording: &Recording, plans: &DevicePlans) -> (Vec<String>, usize) {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for plan in plans.plans.iter().chain(&plans.nearest) {
        let changes: Vec<Change> = plan.changes.iter().map(|change| change.change.clone()).collect();
        let is_checkpoint = changes.iter().all(|change| matches!(change, Change::Checkpoint { .. }));
        // On a device that is nearly full, the allocator may release memory, so that blocks are placed elsewhere.
        if !is_checkpoint || changes.is_empty() || plan.alloc_conf.is_some() || plan.outcome.retries > 0 {
            continue;
        }
        compared += 1;
        let planned = plan.outcome.max_allocated as i64;
        let simulated = simulated(recording, plans.device, changes.clone());
        if simulated != Ok(planned) {
            wrong.push(format!("{path}: {changes:?}: planned {planned}, simulate {simulated:?}"));
        }
    }
    (wrong, compared)
}

#[test]
fn checkpoint_simulate_and_fit_say_the_same_of_the_same_calls() {
    let (mut wrong, mut compared, mut planned) = (Vec::new(), 0, 0);
    for folder in [FIXTURES, "fixtures/pairs", "fixtures/lookalike", "fixtures/whatif", "fixtures/fit"] {
        for path in recordings(Path::new(folder)) {
            let Ok(recording) = Recording::open(path.as_ref(), &ReadOptions::default()) else { continue };
            let Ok(report) = recording.checkpoint(&CheckpointOptions::default()) else { continue };
            for device in &report.devices {
                let (differ, pairs) = against_simulate(&path, &recording, device);
                wrong.extend(differ);
                compared += pairs;
                let Some(best) = device.candidates.first() else { continue };
                let goal = best.predicted_peak_bytes + best.saved_bytes / 2;
                let options = CheckpointOptions::default().fit(Some(goal as u64)).devices(vec![device.device]);
                let below = recording.checkpoint(&options).unwrap();
                let devices = recording.devices();
                let asked = devices.all().iter().find(|it| it.id() == device.device).unwrap();
                let fits = DevicePlans::of(asked, &PlanOptions::default().capacity(Some(goal as u64 + (500 << 20))));
                for plans in below.devices[0].fit.iter().chain(fits.as_ref().ok()) {
                    // What a late recording starts with is cache, which a device with less memory would not have.
                    if plans.completeness.has_baseline && plans.capacity.is_some() {
                        continue;
                    }
                    let (differ, found) = against_plans(&path, &recording, plans);
                    wrong.extend(differ);
                    planned += found;
                }
            }
        }
    }
    assert_none(&wrong);
    assert!(compared > 150 && planned > 30, "{compared} candidates and {planned} plans were compared");
}

/// A late recording starts with free segments that a smaller device cannot hold, but a device that is large enough for the
/// unchanged program may.
#[test]
fn fit_and_simulate_need_the_same_for_the_unchanged_program() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for path in recordings(Path::new("fixtures")) {
        let Ok(recording) = Recording::open(path.as_ref(), &ReadOptions::default()) else { continue };
        let devices = recording.devices();
        for device in devices.all().iter().filter(|it| it.history().completeness.has_baseline) {
            let smaller = device.history().start.reserved - (2 << 20);
            let Ok(capacity) = u64::try_from(smaller) else { continue };
            let options = PlanOptions::default().capacity(Some(capacity)).context(Some(0));
            let Ok(plans) = DevicePlans::of(device, &options) else { continue };
            let Some(unchanged) = plans.as_it_is.as_ref().filter(|_| plans.dropped_at_start > 0 && !plans.fits) else {
                continue;
            };
            let options =
                SimulateOptions::default().capacity(Some(capacity)).context(Some(0)).devices(vec![device.id()]);
            let simulated = recording.simulate(&options).unwrap().devices[0].runs[0].needs();
            compared += 1;
            if unchanged.needs != simulated {
                wrong.push(format!("{path}: fit {:?}, simulate {simulated:?}", unchanged.needs));
            }
        }
    }
    assert_none(&wrong);
    assert!(compared > 5, "{compared} recordings were compared");
}

/// A report simulates no function that cannot be the best one.
#[test]
fn a_report_names_the_best_candidate() {
    let mut compared = 0;
    for path in recordings(Path::new("fixtures/pairs")) {
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
        let overview = recording.overview(&TimelineOptions::default()).unwrap();
        for device in overview.triage.devices.iter().filter_map(|device| device.checkpoint.as_ref()) {
            let options = CheckpointOptions::default().devices(vec![device.device]).top(Some(1));
            let all = recording.checkpoint(&options).unwrap();
            let best = |device: &DeviceCheckpoint| {
                let best = device.candidates.first();
                best.map(|it| (it.label.clone(), it.calls, it.activation_bytes, it.predicted_peak_bytes))
            };
            assert_eq!(best(device), best(&all.devices[0]), "{path}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} devices were compared");
}

/// Snapshots below a folder.
fn recordings(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(recordings(&path));
        } else if path.to_string_lossy().contains(".pickle") && !path.to_string_lossy().contains("big_1m") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}
