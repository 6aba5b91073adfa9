//! Fixes simulated over time, compared with the figures of the list and with the recording.

use crate::support::{fixture, open};
use memviz::analysis::advice::{Attempt, Saving, Simulate, WhatIf, advice};
use memviz::analysis::scene::{Part, Scene, SceneAxis};
use memviz::analysis::simulate::SimulateOptions;
use memviz::facts::device::Device;
use memviz::input::alloc_conf::{Rest, parse};
use memviz::replay::Metric;
use memviz::simulation::changes::Change;

/// Recordings with cures of several kinds; one of them starts late.
const RECORDINGS: [&str; 6] = ["gpt_train", "gpt_train_sdpa_amp", "gpt_late", "oom", "fragmented", "side_stream"];

/// Some cures, and nothing else.
fn cures_at(places: &[usize]) -> Attempt {
    Attempt::default().fixes(places.to_vec())
}

/// All of a history, a column for each instant.
fn each_instant(device: &Device<'_>) -> Part {
    let columns = device.track.entries() as usize + 1;
    Part { axis: SceneAxis::Entry, from: 0.0, to: columns as f64, columns }
}

#[test]
fn a_curve_has_the_peaks_that_the_list_says() {
    let mut tried = 0;
    for name in RECORDINGS {
        let recording = open(&fixture(name));
        for device in recording.devices().all() {
            let cures = WhatIf::of(device, Simulate::All);
            let list = advice(device, Simulate::All);
            assert_eq!(cures.advice().cloned().collect::<Vec<_>>(), list, "{name}");
            for (place, advice) in list.iter().enumerate() {
                let Saving::Simulated { allocated, reserved, .. } = &advice.saving else {
                    continue;
                };
                assert_eq!(cures.saving(&[place]).unwrap().as_ref(), Some(&advice.saving), "{name}: {}", advice.change);
                let peak = |metric| cures.over_time(metric, &cures_at(&[place])).unwrap().map(|curve| curve.peak());
                assert_eq!(peak(Metric::Allocated), Some(allocated.after), "{name}: {}", advice.change);
                if let Some(peak) = peak(Metric::Reserved) {
                    assert_eq!(peak, reserved.after, "{name}: {}", advice.change);
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 6, "{tried} cures were tried");
}

#[test]
fn without_cures_the_curve_is_the_recorded_one() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let device = &devices.all()[0];
    let scene = Scene::new(device);
    let part = each_instant(device);
    let cures = WhatIf::of(device, Simulate::All);
    let curve = |metric| cures.over_time(metric, &Attempt::default()).unwrap().unwrap();
    let recorded = scene.columns(Metric::Allocated, &part).unwrap().values;
    let simulated = curve(Metric::Allocated).columns(&scene.instants(&part).unwrap());
    let differs = (0..simulated.len()).find(|&at| Some(recorded[at] as u64) != simulated[at]);
    assert_eq!((differs, recorded.len()), (None, simulated.len()));
    let most = device.history().maxima[Metric::Reserved as usize].bytes;
    assert_eq!(curve(Metric::Reserved).peak(), most as u64);
    assert_eq!(cures.over_time(Metric::Active, &Attempt::default()).unwrap(), None);
}

#[test]
fn several_cures_save_more_than_each() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let cures = WhatIf::of(&devices.all()[0], Simulate::All);
    let places: Vec<usize> = (0..cures.advice().count()).filter(|&place| cures.combines(place)).collect();
    assert!(places.len() > 1);
    let peak = |places: &[usize]| cures.over_time(Metric::Allocated, &cures_at(places)).unwrap().unwrap().peak();
    let Some(Saving::Simulated { allocated, .. }) = cures.saving(&places).unwrap() else { panic!("it is played") };
    assert_eq!(allocated.after, peak(&places));
    assert!(places.iter().all(|&place| peak(&[place]) > allocated.after));
    let missing = cures.over_time(Metric::Allocated, &cures_at(&[99])).unwrap_err();
    assert_eq!(missing.to_string(), "expected positions in the list of fixes, found one that is not in the list");
}

#[test]
fn an_alternative_is_tried_instead_of_its_cure() {
    let recording = open("fixtures/stories/retained_graph_mdn_flawed/snapshot.pickle.gz");
    let devices = recording.devices();
    let cures = WhatIf::of(&devices.all()[0], Simulate::All);
    let (of_list, alternatives): (Vec<_>, Vec<_>) = (cures.advice().collect(), cures.alternatives().collect());
    assert_eq!((of_list.len(), alternatives.len()), (1, 1));
    let (instead_of, other) = alternatives[0];
    assert_eq!((instead_of, other), (0, &of_list[0].alternatives[0]));
    // Its index follows those of the list.
    assert!(cures.combines(1) && !cures.combines(2));
    assert_eq!(cures.saving(&[1]).unwrap().as_ref(), Some(&other.saving));
    let Saving::Simulated { allocated, at_least: true, .. } = &other.saving else { panic!("it is a lower bound") };
    let peak = |places: &[usize]| cures.over_time(Metric::Allocated, &cures_at(places)).unwrap().unwrap().peak();
    // The bound leaves room for the placement of blocks.
    assert!((allocated.after - allocated.after / 100..=allocated.after).contains(&peak(&[1])));
    assert_ne!(peak(&[0]), peak(&[1]));
    let both = cures.over_time(Metric::Allocated, &cures_at(&[0, 1])).unwrap_err();
    assert_eq!(both.to_string(), "expected at most one fix for each mistake, found two for the same one");
    let missing = cures.saving(&[2]).unwrap_err();
    assert_eq!(missing.to_string(), "expected positions in the list of fixes, found one that is not in the list");
}

#[test]
fn a_column_has_the_highest_of_its_instants() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let device = &devices.all()[0];
    let scene = Scene::new(device);
    let curve = WhatIf::of(device, Simulate::All).over_time(Metric::Allocated, &Attempt::default()).unwrap().unwrap();
    let last = f64::from(device.track.entries());
    for (axis, from, to, columns) in [
        (SceneAxis::Entry, 0.0, last, 100),
        (SceneAxis::Entry, 1000.5, 1007.5, 40),
        (SceneAxis::Time, 0.0, 700_000.0, 333),
    ] {
        let part = Part { axis, from, to, columns };
        let recorded: Vec<Option<u64>> =
            scene.columns(Metric::Allocated, &part).unwrap().values.iter().map(|&bytes| Some(bytes as u64)).collect();
        assert_eq!(curve.columns(&scene.instants(&part).unwrap()), recorded, "{part:?}");
    }
}

/// The runs of `memviz simulate` with settings, on devices, and the same in the page.
#[test]
fn settings_and_sizes_of_devices_give_the_figures_of_simulate() {
    let mut failed = 0;
    for name in ["gpt_train", "oom", "fragmented", "gpt_late"] {
        let recording = open(&fixture(name));
        for device in recording.devices().all().iter().filter(|device| device.id() >= 0) {
            let cures = WhatIf::of(device, Simulate::All);
            let peak = device.history().maxima[Metric::Reserved as usize].bytes as u64;
            for conf in
                [None, Some("expandable_segments:True"), Some("max_split_size_mb:32,roundup_power2_divisions:4")]
            {
                for capacity in [None, Some(peak / 2 + (500 << 20)), Some(4 * peak)] {
                    let attempt = Attempt::default().alloc_conf(conf.map(str::to_owned)).capacity(capacity);
                    if attempt == Attempt::default() {
                        continue;
                    }
                    let settings = conf.map(|conf| parse(conf, Rest::default()).unwrap());
                    let options = SimulateOptions::default()
                        .settings(settings.into_iter().collect())
                        .capacity(capacity)
                        .devices(vec![device.id()]);
                    let expected = recording.simulate(&options).unwrap().devices.remove(0).runs.pop().unwrap();
                    let run = cures.run(&attempt).unwrap();
                    let of = format!("{name} with {conf:?} and {capacity:?}");
                    assert_eq!(run.outcome, expected.outcome, "{of}");
                    assert_eq!((run.trust, &run.because), (expected.trust, &expected.because), "{of}");
                    assert_eq!(
                        (run.reserved_range, &run.warnings),
                        (expected.reserved_range, &expected.warnings),
                        "{of}"
                    );
                    let curve = cures.over_time(Metric::Allocated, &attempt).unwrap();
                    assert_eq!(curve.is_some(), run.outcome.is_some(), "{of}");
                    if let (Some(curve), Some(outcome)) = (curve, &run.outcome) {
                        assert_eq!(curve.peak(), outcome.max_allocated, "{of}");
                        failed += usize::from(outcome.fails_at.is_some());
                    }
                }
            }
        }
    }
    assert!(failed > 0, "none of the devices was too small");
}

#[test]
fn settings_that_pytorch_refuses_are_refused() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let cures = WhatIf::of(&devices.all()[0], Simulate::All);
    let wrong = Attempt::default().alloc_conf(Some("max_split_size_mb:few".to_owned()));
    let error = cures.run(&wrong).unwrap_err().to_string();
    assert!(error.starts_with("expected ") && error.contains("max_split_size_mb"), "{error}");
}

/// The runs of `memviz simulate` with changes by name, and the same in the page.
#[test]
fn changes_give_the_figures_of_simulate() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let device = &devices.all()[0];
    let cures = WhatIf::of(device, Simulate::All);
    let mut after = Vec::new();
    for names in [
        &["optimizer:sgd"] as &[&str],
        &["offload:optimizer"],
        &["checkpoint:Block"],
        &["optimizer:sgd", "offload:activations"],
    ] {
        let changes: Vec<Change> = names.iter().map(|name| name.parse().unwrap()).collect();
        let attempt = Attempt::default().changes(changes.clone());
        let options = SimulateOptions::default().changes(changes).devices(vec![device.id()]);
        let expected = recording.simulate(&options).unwrap().devices.remove(0).runs.pop().unwrap();
        match cures.run(&attempt) {
            Ok(run) => {
                assert_eq!(
                    (&run.outcome, run.trust, &run.because),
                    (&expected.outcome, expected.trust, &expected.because),
                    "{names:?}"
                );
                let curve = cures.over_time(Metric::Allocated, &attempt).unwrap().unwrap();
                assert_eq!(Some(curve.peak()), run.outcome.map(|outcome| outcome.max_allocated), "{names:?}");
                after.push(curve.peak());
            }
            Err(refused) => assert!(expected.because.starts_with(&refused.to_string()), "{names:?}: {refused}"),
        }
    }
    after.dedup();
    assert!(after.len() > 1, "{after:?}");
}
