//! All commands give the same answer for the memory of checkpointed calls.

use crate::support::{FIXTURES, assert_none, corpus};
use memviz::Recording;
use memviz::analysis::checkpoint::{CheckpointOptions, DeviceCheckpoint};
use memviz::analysis::simulate::{DeviceSimulation, SimulateOptions};
use memviz::analysis::timeline::TimelineOptions;
use memviz::input::ReadOptions;
use memviz::input::alloc_conf::{self, Rest};
use memviz::model::DeviceId;
use memviz::play::changes::Change;
use memviz::play::plans::{DevicePlans, Plan, PlanOptions};
use memviz::play::{Run, Trust};
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

/// What differs between `fit` and `simulate` about one program with some settings on a device.
fn against_run(path: &str, recording: &Recording, plans: &DevicePlans, plan: &Plan, fits: bool) -> Vec<String> {
    let changes: Vec<Change> = plan.changes.iter().map(|change| change.change.clone()).collect();
    let conf = plan.alloc_conf.iter().map(|conf| alloc_conf::parse(conf, Rest::default()).unwrap());
    let options = SimulateOptions::default()
        .changes(changes.clone())
        .settings(conf.collect())
        .capacity(plans.capacity)
        .context(Some(0))
        .devices(vec![plans.device]);
    let report = recording.simulate(&options).unwrap();
    let is_it = |run: &&Run| run.changes.len() == changes.len() && run.is_recorded == plan.alloc_conf.is_none();
    let run = report.devices[0].runs.iter().find(is_it).unwrap();
    let what = format!("{path}, {:?} with {:?} and {changes:?}", plans.capacity, plan.alloc_conf);
    let mut wrong = Vec::new();
    // The search of `simulate` has fewer steps for each of several settings.
    if plan.alloc_conf.is_none() && plan.needs != run.capacities.needs() {
        wrong.push(format!("{what}: fit needs {:?}, simulate {:?}", plan.needs, run.capacities.needs()));
    }
    let works = run.outcome.as_ref().is_some_and(|outcome| outcome.failure().is_none());
    if fits != works {
        wrong.push(format!("{what}: does it fit? fit {fits}, simulate {works}"));
    }
    // Where `simulate` has no figures, it has no level either.
    let is_uncertain = plans.trust(plan) == Trust::Uncertain;
    if !plan.is_tight && run.trust != Trust::Refused && is_uncertain != (run.trust == Trust::Uncertain) {
        wrong.push(format!("{what}: {:?} in fit, {:?} in simulate: {}", plans.trust(plan), run.trust, run.because));
    }
    wrong
}

/// `fit` and `simulate` agree about what a program needs, whether it fits, and how certain that is, also where the device cannot
/// hold the free segments that the recording starts with.
#[test]
fn fit_and_simulate_say_the_same_of_the_same_device() {
    let families = ["nanogpt", "hf_trainer", "moe", "sd_unet"];
    let families = families.map(|name| format!("../shared/families/rec/late_{name}_08/snapshot.pickle.gz"));
    let late = families.into_iter().filter(|_| corpus().is_some()).chain(recordings(Path::new(FIXTURES)));
    let (mut wrong, mut compared, mut lean) = (Vec::new(), 0, 0);
    for path in late {
        let Ok(recording) = Recording::open(path.as_ref(), &ReadOptions::default()) else { continue };
        let Ok(whole) = recording.simulate(&SimulateOptions::default()) else { continue };
        let is_late = |device: &&DeviceSimulation| device.device >= 0 && device.completeness.has_baseline;
        let Some(device) = whole.devices.iter().find(is_late) else { continue };
        let Some(needed) = device.runs.first().and_then(Run::needs) else { continue };
        for percent in [45, 70, 90, 100] {
            let options = PlanOptions::default().capacity(Some(needed * percent / 100)).context(Some(0));
            let Ok(report) = recording.plan(&options.devices(vec![device.device])) else { continue };
            for plans in report.devices.iter().filter(|plans| plans.unfinished.is_none()) {
                let as_it_is = plans.as_it_is.iter().map(|plan| (plan, plans.fits));
                let found = plans.plans.iter().map(|plan| (plan, true));
                let nearest = plans.nearest.iter().map(|plan| (plan, false));
                for (plan, fits) in as_it_is.chain(found).chain(nearest) {
                    compared += 1;
                    lean += usize::from(plan.doubts.iter().any(|doubt| doubt.contains("starts with")));
                    wrong.extend(against_run(&path, &recording, plans, plan, fits));
                }
            }
        }
    }
    assert_none(&wrong);
    assert!(compared > 20 && lean > 0, "{compared} plans, {lean} of them uncertain because of their start");
}
