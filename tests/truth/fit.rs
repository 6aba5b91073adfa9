//! Runs at other batch sizes and sequence lengths, predicted from two or three recordings, against what PyTorch did there.

use crate::support::{FIXTURES, assert_none, corpus, open, read_text};
use memviz::Recording;
use memviz::analysis::excerpt::{Window, excerpt};
use memviz::analysis::fit::{DeviceFit, Largest, Prediction, Refusal};
use memviz::analysis::fit::{FitInput, FitOptions, FitReport, PredictedOverTime};
use memviz::analysis::scene::{Part, Scene, SceneAxis};
use memviz::input::alloc_conf::{Rest, parse};
use memviz::model::Action;
use memviz::replay::Metric;
use memviz::simulation::Trust;
use memviz::wire;
use serde_json::Value;
use std::fs::File;
use tempfile::TempDir;

/// Recordings that belong to the repository, and those that only some machines have.
const FIXTURE: &str = "fixtures/fit/minigpt_batch";
const MORE: &str = "../shared/whatif";
/// What the stand-in runtime uses of a device for its context.
const CONTEXT: u64 = 450 << 20;

fn predict(paths: &[(u64, String)], options: &FitOptions) -> DeviceFit {
    let recordings: Vec<(u64, Recording)> = paths.iter().map(|(value, path)| (*value, open(path))).collect();
    let devices: Vec<_> = recordings.iter().map(|(value, recording)| (*value, recording.devices())).collect();
    let inputs: Vec<FitInput<'_>> =
        devices.iter().map(|(value, devices)| FitInput { value: *value, devices }).collect();
    FitReport::of("batch", &inputs, options).unwrap().devices.remove(0)
}

/// Recordings in folders whose names end in the number.
fn recorded(prefix: &str, digits: usize, values: &[u64]) -> Vec<(u64, String)> {
    values.iter().map(|&value| (value, format!("{prefix}{value:0digits$}/snapshot.pickle.gz"))).collect()
}

/// The maxima of allocated and reserved memory, predicted and counted.
fn figures(prefix: &str, digits: usize, prediction: &Prediction) -> [(u64, u64); 2] {
    let path = format!("{prefix}{:0digits$}/truth.json", prediction.value);
    let truth: Value = serde_json::from_str(&read_text(&path)).unwrap();
    let counted = |key: &str| truth["devices"][0][key].as_u64().unwrap();
    let outcome = &prediction.outcome;
    [(outcome.max_allocated, counted("max_memory_allocated")), (outcome.max_reserved, counted("max_memory_reserved"))]
}

/// Whether every prediction equals the count, to the byte.
fn differences(prefix: &str, digits: usize, bases: &[u64], at: &[u64]) -> Vec<String> {
    let fit = predict(&recorded(prefix, digits, bases), &FitOptions::default().at(at.to_vec()));
    assert_eq!(fit.refused, None, "{prefix} {bases:?}");
    let mut wrong = Vec::new();
    for prediction in &fit.predictions {
        let figures = figures(prefix, digits, prediction);
        if figures.iter().any(|(predicted, counted)| predicted != counted) {
            wrong.push(format!("{prefix}{} from {bases:?}: {figures:?}", prediction.value));
        }
    }
    // Of three, the last is predicted from the others.
    if let Some(check) = &fit.check {
        let figures = figures(prefix, digits, &check.predicted);
        if figures.iter().any(|(predicted, counted)| predicted.abs_diff(*counted) * 100 > *counted) {
            wrong.push(format!("{prefix}{} from the others: {figures:?}", check.measured.value));
        }
    }
    wrong
}

/// A predicted curve is the recorded one at a recorded number, and has the predicted peak at any other, in the order of the run
/// whose number is nearest.
#[test]
fn a_predicted_curve_is_the_recorded_one_and_has_the_predicted_peak() {
    let recordings = recorded(FIXTURE, 0, &[8, 4]).into_iter().map(|(value, path)| (value, open(&path)));
    let recordings: Vec<(u64, Recording)> = recordings.collect();
    let devices: Vec<_> = recordings.iter().map(|(value, recording)| (*value, recording.devices())).collect();
    let inputs: Vec<FitInput<'_>> =
        devices.iter().map(|(value, devices)| FitInput { value: *value, devices }).collect();
    let at = |value: u64, metric: Metric, options: &FitOptions| {
        PredictedOverTime::of(&inputs, (0, metric, value), options).unwrap().unwrap()
    };
    let fit = predict(&recorded(FIXTURE, 0, &[8, 4]), &FitOptions::default().at(vec![5, 16]));
    assert_eq!(fit.predictions.len(), 4);
    for prediction in &fit.predictions {
        let nearest = if prediction.value <= 5 { 4 } else { 8 };
        let of = &devices.iter().find(|(value, _)| *value == nearest).unwrap().1;
        let outcome = &prediction.outcome;
        for (metric, peak) in [(Metric::Allocated, outcome.max_allocated), (Metric::Reserved, outcome.max_reserved)] {
            let curve = at(prediction.value, metric, &FitOptions::default());
            assert_eq!((curve.of, curve.device, curve.curve.peak()), (nearest, 0, peak), "{}", prediction.value);
            // The addresses of segments depend on the driver.
            if !prediction.is_recorded || metric == Metric::Reserved {
                continue;
            }
            let scene = Scene::new(of.get(0).unwrap());
            let columns = 997;
            let to = f64::from(scene.device().history().entries() + 1);
            let part = Part { axis: SceneAxis::Entry, from: 0.0, to, columns };
            let found = scene.columns(metric, &part).unwrap().values;
            let predicted = curve.curve.columns(&scene.instants(&part).unwrap());
            let differing: Vec<usize> =
                (0..columns).filter(|&at| predicted[at] != u64::try_from(found[at]).ok()).collect();
            assert_eq!(differing, Vec::<usize>::new(), "{metric:?} at {}", prediction.value);
        }
    }
    // Nothing is known after a request that fails, and counters that a simulation does not have are not drawn.
    let least = fit.predictions[3].outcome.max_allocated;
    let small = at(16, Metric::Allocated, &FitOptions::default().capacity(Some(least)));
    let scene = Scene::new(devices[0].1.get(0).unwrap());
    let part =
        Part { axis: SceneAxis::Entry, from: 0.0, to: f64::from(scene.device().history().entries() + 1), columns: 100 };
    assert_eq!(small.curve.columns(&scene.instants(&part).unwrap()).last(), Some(&None));
    let none = PredictedOverTime::of(&inputs, (0, Metric::Active, 16), &FitOptions::default()).unwrap();
    assert_eq!(none, None);
}

#[test]
fn another_batch_size_is_predicted_to_the_byte() {
    assert_none(&differences(FIXTURE, 0, &[4, 8], &[16]));
}

#[test]
fn so_is_every_one_that_was_recorded() {
    if corpus().is_none() {
        return;
    }
    let mut wrong = Vec::new();
    for workload in ["minigpt", "unet", "llama", "lora", "kv"] {
        let prefix = format!("{MORE}/b_{workload}_");
        wrong.extend(differences(&prefix, 2, &[4, 8], &[6, 12, 16, 24, 32]));
        wrong.extend(differences(&prefix, 2, &[8, 16], &[24, 32]));
        wrong.extend(differences(&prefix, 2, &[4, 8, 16], &[24, 32]));
        wrong.extend(differences(&prefix, 2, &[2, 4], &[8, 16, 32]));
    }
    wrong.extend(differences(&format!("{MORE}/bp_gpt2_"), 2, &[4, 8], &[16]));
    for workload in ["gpt2", "gpt2_sdpa"] {
        wrong.extend(differences(&format!("{MORE}/s_{workload}_"), 4, &[128, 256, 512], &[1024]));
    }
    assert_none(&wrong);
}

/// Two settings on two devices for each of three programs.
#[test]
fn the_largest_batch_is_found() {
    if corpus().is_none() {
        return;
    }
    let truth: Value = serde_json::from_str(&read_text(&format!("{MORE}/largest_batch.json"))).unwrap();
    let mut wrong = Vec::new();
    for (name, truth) in truth.as_object().unwrap() {
        let settings = parse(truth["conf"].as_str().unwrap(), Rest::AfterLast).unwrap();
        let capacity = truth["total_mib"].as_u64().unwrap() << 20;
        let options = FitOptions::default().capacity(Some(capacity)).context(Some(CONTEXT)).settings(Some(settings));
        let prefix = format!("{MORE}/b_{}_", truth["workload"].as_str().unwrap());
        for bases in [[4, 8], [8, 16]] {
            let fit = predict(&recorded(&prefix, 2, &bases), &options);
            let found = fit.largest.and_then(memviz::analysis::fit::Largest::value);
            if found != truth["largest_batch"].as_u64() {
                wrong.push(format!("{name} from {bases:?}: {found:?} instead of {}", truth["largest_batch"]));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn other_programs_are_refused_with_what_differs_first() {
    let other = |name: &str| format!("{FIXTURES}/{name}/snapshot.pickle.gz");
    for name in ["resnet_train", "llama_hf_all"] {
        let paths = [(4, format!("{FIXTURE}4/snapshot.pickle.gz")), (8, other(name))];
        let fit = predict(&paths, &FitOptions::default());
        let Some(Refusal::Differ(mismatch)) = fit.refused else { panic!("{name}: {:?}", fit.refused) };
        assert!(mismatch.first.is_some() && fit.predictions.is_empty(), "{mismatch:?}");
    }
}

/// At a recorded number another setting or a change is a prediction, as any other number is.
#[test]
fn only_recorded_values_are_exact() {
    let paths = recorded(FIXTURE, 0, &[4, 8]);
    let trust = |options: &FitOptions| {
        let fit = predict(&paths, options);
        fit.predictions.iter().find(|prediction| prediction.value == 8).unwrap().trust
    };
    assert_eq!(trust(&FitOptions::default()), Trust::Exact);
    let expandable = parse("expandable_segments:True", Rest::AfterLast).unwrap();
    assert_eq!(trust(&FitOptions::default().settings(Some(expandable))), Trust::Predicted);
    assert_eq!(trust(&FitOptions::default().changes(vec!["optimizer:sgd".parse().unwrap()])), Trust::Predicted);
}

#[test]
fn a_recording_that_ran_out_of_memory_is_not_a_base() {
    let paths = [(4, format!("{FIXTURE}4/snapshot.pickle.gz")), (8, format!("{FIXTURES}/oom/snapshot.pickle.gz"))];
    assert_eq!(predict(&paths, &FitOptions::default()).refused, Some(Refusal::OutOfMemory(8)));
}

/// Rings with a single entry contain nothing that distinguishes two programs.
#[test]
fn recordings_without_a_request_are_not_a_base() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("snapshot.pickle");
    let whole = open(&format!("{FIXTURE}4/snapshot.pickle.gz"));
    let devices = whole.devices();
    let device = &devices.all()[0];
    let freed = device.track.actions().iter().position(|&action| action == Action::FreeCompleted).unwrap() as u32;
    // The entry before it requests the free.
    let window = Window { device: device.id(), from: freed - 1, to: freed + 1 };
    let snapshot = excerpt(&devices, &[window]).unwrap();
    wire::snapshot::write(&snapshot, &mut File::create(&path).unwrap()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let fit = predict(&[(4, path.clone()), (8, path)], &FitOptions::default());
    assert!(
        matches!(fit.refused, Some(Refusal::NotSimulated(4, because)) if because.contains("no allocations")),
        "{fit:?}"
    );
}

/// Requests of a decoder whose cache grows, and the most of them that reached this many tokens: with one more, memory ran
/// out.
#[test]
fn as_many_requests_are_served_as_were_served() {
    const SERVING: &str = "fixtures/serving";
    let truth: Value = serde_json::from_str(&read_text(&format!("{SERVING}/truth.json"))).unwrap();
    let paths = recorded(&format!("{SERVING}/requests"), 1, &[4, 8]);
    let ask = |paths: &[(u64, String)], total: u64, tokens: u64| {
        let options = FitOptions::default().capacity(Some(total)).context(Some(CONTEXT)).tokens(Some(tokens));
        predict(paths, &options)
    };
    for served in truth["served"].as_array().unwrap() {
        let number = |key: &str| served[key].as_u64().unwrap();
        let fit = ask(&paths, number("total_mib") << 20, number("tokens"));
        let requests = number("requests");
        assert_eq!(fit.largest, Some(Largest::UpTo { value: requests, fails: requests + 1 }), "{served}");
    }
    let refused = |paths: &[(u64, String)], tokens: u64| match ask(paths, 1 << 30, tokens).refused {
        Some(Refusal::Tokens(because)) => because,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&paths, 20), "the recordings have more tokens than that in the cache");
    assert_eq!(refused(&recorded(FIXTURE, 1, &[4, 8]), 100), "no cache that grows with every token was found");
}
