//! Simulate of a recording's requests against what PyTorch did: under the recorded settings, and under others on other devices.

use crate::support::allocator_model::{Expandable, Op};
use crate::support::programs::{plain_or_expandable, programs};
use crate::support::{FIXTURES, corpus, names, open, read_text};
use memviz::Recording;
use memviz::allocator::Placement;
use memviz::analysis::simulate::SimulateOptions;
use memviz::input::ReadOptions;
use memviz::input::alloc_conf::{Rest, parse};
use memviz::model::{AllocatorSettings, HOST_DEVICE};
use memviz::replay::{Track, replay};
use memviz::simulation::plans::PlanOptions;
use memviz::simulation::{Outcome, Program, Run, Search, SettingsAdvice, Setup, Trust, compare, simulate};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

/// Predictions that belong to the repository, and those that only some machines have.
const WHATIF: &str = "fixtures/whatif";
const MORE_WHATIF: &str = "../shared/whatif";
/// Recordings of real GPUs, which only some machines have.
const STRANGERS: &str = "../shared/real";
/// What the stand-in runtime uses of a device for its context.
const CONTEXT: u64 = 450 << 20;
const MIB: u64 = 1 << 20;

/// Recordings whose replay cannot match the recording, and why.
const NOT_REPRODUCED: &[(&str, &str)] = &[("cuda_graph_t201", "PyTorch 2.0 records no frees of older blocks")];

fn snapshots(root: &str) -> Vec<(String, String)> {
    let files = |name: &String| {
        let folder = format!("{root}/{name}");
        let is_snapshot = |file: &String| file.starts_with("snapshot") && file.contains(".pickle");
        let files = names(&folder).into_iter().filter(is_snapshot);
        files.map(|file| (name.clone(), format!("{folder}/{file}"))).collect::<Vec<_>>()
    };
    let folders = names(root).into_iter().filter(|name| Path::new(&format!("{root}/{name}")).is_dir());
    folders.flat_map(|name| files(&name)).collect()
}

/// The differences between each device's recording and its replay with the recorded settings.
fn differences(recording: &Recording) -> Vec<String> {
    let mut found = Vec::new();
    for history in recording.histories.iter().filter(|history| history.device >= 0 && history.entries() > 0) {
        let track = Track::new(&recording.snapshot, history);
        let program = Program::of(track).unwrap();
        let (outcome, difference) = compare(track, &program, &Setup::as_recorded(track, &program));
        if !difference.is_none() || outcome.fails_at.is_some() {
            found.push(format!("device {}: {difference:?}, fails at {:?}", history.device, outcome.fails_at));
        }
    }
    found
}

fn reproduces(root: &str) {
    let mut wrong = Vec::new();
    for (name, path) in snapshots(root) {
        let found = differences(&open(&path));
        let is_known = NOT_REPRODUCED.iter().any(|(known, _)| *known == name);
        // A recording that is listed and reproduced would hide that it once was not.
        if found.is_empty() == is_known {
            wrong.push(format!("{path}: {found:?}"));
        }
    }
    crate::support::assert_none(&wrong);
}

#[test]
fn replay_with_recorded_settings_matches_the_recording() {
    reproduces(FIXTURES);
    reproduces(WHATIF);
}

#[test]
fn so_are_those_of_the_corpus_and_of_every_prediction() {
    let Some(corpus) = corpus() else { return };
    reproduces(corpus);
    reproduces(MORE_WHATIF);
}

/// Other people's recordings from real GPUs: wherever they start, replay with the recorded settings matches the recording.
#[test]
fn so_are_those_of_strangers() {
    if corpus().is_none() {
        return;
    }
    let mut wrong = Vec::new();
    let mut simulated = 0;
    for name in names(STRANGERS).into_iter().filter(|name| name.ends_with(".pickle.gz")) {
        let path = format!("{STRANGERS}/{name}");
        let Ok(recording) = Recording::open(path.as_ref(), &ReadOptions::default()) else { continue };
        // One was edited by hand.
        if recording.anomalies() == 0 {
            wrong.extend(differences(&recording).into_iter().map(|difference| format!("{name}: {difference}")));
            simulated += 1;
        }
    }
    crate::support::assert_none(&wrong);
    assert!(simulated > 20, "{simulated}");
}

/// The settings of a run of `capacity.json`.
fn settings(name: &str, truth: &Value) -> AllocatorSettings {
    let mut settings = parse(truth["conf"].as_str().unwrap(), Rest::AfterLast).unwrap();
    if name.contains("gc") {
        // Set by the program.
        settings.memory_fraction = Some(if name.ends_with("_fraction1") { 1.0 } else { 0.99 });
    }
    settings
}

fn figures(outcome: &Outcome) -> [(&'static str, u64); 6] {
    [
        ("max_allocated", outcome.max_allocated),
        ("max_reserved", outcome.max_reserved),
        ("num_alloc_retries", outcome.retries),
        ("num_ooms", u64::from(outcome.fails_at.is_some())),
        ("num_device_alloc", outcome.device_allocs),
        ("num_device_free", outcome.device_frees),
    ]
}

/// Every figure, every device tried and every smallest device of `capacity.json`, from the recording with default settings
/// alone.
fn predicts(folder: &str) {
    let recording = open(&format!("{folder}/snapshot.pickle.gz"));
    let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/capacity.json"))).unwrap();
    let program = Program::of(Track::new(&recording.snapshot, &recording.histories[0])).unwrap();
    let mut wrong = Vec::new();
    for (name, truth) in truth.as_object().unwrap() {
        let settings = settings(name, truth);
        let on = |total_mib: u64| simulate(&program, &Setup::new(&settings, Some(total_mib * MIB - CONTEXT), CONTEXT));
        let smallest = truth["smallest_total_mib"].as_u64().unwrap();
        for (key, total) in [("at_80gib", 81920), ("at_smallest", smallest), ("at_2mib_less", smallest - 2)] {
            for (figure, simulated) in figures(&on(total)) {
                if truth[key][figure] != simulated {
                    wrong.push(format!("{name} {key} {figure}: {simulated} instead of {}", truth[key][figure]));
                }
            }
        }
        for (total, happened) in truth["probes"].as_object().unwrap() {
            let works = on(total.parse().unwrap()).fails_at.is_none();
            if works != (happened == "ok") {
                wrong.push(format!("{name} on {total} MiB: {happened}"));
            }
        }
        let search = Search {
            program: &program,
            settings: &settings,
            placement: Placement::LowestFree,
            context: CONTEXT,
            least: 0,
            refusals_fail: true,
            budget: u64::MAX,
        };
        let found = search.run();
        let usable = |key: &str| truth[key].as_u64().map(|mib| mib * MIB - CONTEXT);
        // If all capacities were scanned, both ends are known; otherwise only the smallest one that a bisection found.
        let first = usable("first_ok_total_mib").or_else(|| truth["smallest_capacity_bytes"].as_u64());
        let safe = usable("safe_from_total_mib").or(found.safe);
        if found.first != first || found.safe != safe {
            wrong.push(format!("{name}: {found:?} instead of {first:?} and {safe:?}"));
        }
    }
    crate::support::assert_none(&wrong);
}

#[test]
fn the_smallest_device_is_found_to_the_byte() {
    for name in names(WHATIF) {
        predicts(&format!("{WHATIF}/{name}"));
    }
}

#[test]
fn so_it_is_for_every_prediction() {
    if corpus().is_some() {
        predicts(&format!("{MORE_WHATIF}/c_varlen"));
    }
}

/// A program that starts late may start with more cache than a small device has.
#[test]
fn late_recordings_work_on_every_sufficient_device() {
    for name in ["gpt_late", "gpt_late_t212", "gpt_late_t215", "gpt_late_t231"] {
        let recording = open(&format!("{FIXTURES}/{name}/snapshot.pickle.gz"));
        let on = |usable: Option<u64>| {
            let options = SimulateOptions::default().context(Some(CONTEXT));
            let options = options.capacity(usable.map(|usable| usable + CONTEXT));
            recording.simulate(&options).unwrap().devices.remove(0).runs.remove(0)
        };
        let capacities = on(None).capacities;
        let safe = capacities.safe.unwrap();
        let fails = |usable: u64| on(Some(usable)).outcome.unwrap().failure().is_some();
        // It may work without the cache that it starts with, but that is uncertain.
        let below = on(Some(safe - 2 * MIB));
        assert!(fails(safe - 2 * MIB) || below.trust == Trust::Uncertain, "{name}: {capacities:?}");
        // One engine has one answer.
        let options = PlanOptions::default().capacity(Some(safe + CONTEXT)).context(Some(CONTEXT));
        let plan = recording.plan(&options).unwrap().devices.remove(0).as_it_is.unwrap();
        assert_eq!(plan.needs, Some(safe), "{name}");
        for usable in [safe, safe + MIB, safe + 5 * MIB, safe + 12 * MIB, safe + 40 * MIB, safe + 200 * MIB] {
            assert!(!fails(usable), "{name} with {usable} bytes, {capacities:?}");
        }
    }
}

/// Pinned memory of one program, recorded with two settings: each recording shows what PyTorch reserved with the other, the
/// one with rounded blocks as a range.
#[test]
fn pinned_memory_is_predicted_as_far_as_its_sizes_are_known() {
    let read = |name: &str| {
        let truth: Value = serde_json::from_str(&read_text(&format!("fixtures/pinned/{name}/truth.json"))).unwrap();
        let recording = open(&format!("fixtures/pinned/{name}/snapshot.pickle.gz"));
        (recording, [&truth["max_reserved"], &truth["segments_made"]].map(|value| value.as_u64().unwrap()))
    };
    let runs = |recording: &Recording, conf: &str| {
        let settings = vec![parse(conf, Rest::AfterLast).unwrap()];
        let options = SimulateOptions::default().settings(settings).devices(vec![HOST_DEVICE]);
        recording.simulate(&options).unwrap().devices.remove(0).runs
    };
    let figures = |run: &Run| {
        let outcome = run.outcome.as_ref().unwrap();
        [outcome.max_reserved, outcome.device_allocs]
    };
    let ((rounded, rounded_truth), (uncached, uncached_truth)) = (read("rounded"), read("uncached"));
    let [recorded, predicted] = &runs(&uncached, "")[..] else { panic!("two runs") };
    assert_eq!((recorded.trust, figures(recorded)), (Trust::Exact, uncached_truth));
    assert_eq!((predicted.trust, figures(predicted)), (Trust::Exact, rounded_truth));

    let [recorded, predicted] = &runs(&rounded, "pinned_max_cached_size_mb:8")[..] else { panic!("two runs") };
    assert_eq!((recorded.trust, figures(recorded)), (Trust::Exact, rounded_truth));
    let (least, most) = predicted.reserved_range.unwrap();
    assert!(least <= uncached_truth[0] && uncached_truth[0] <= most, "{least} to {most}");
    assert!(2 * least >= most, "more than half of each block was wanted");
    assert_eq!(predicted.trust, Trust::Predicted);

    let [_, refused] = &runs(&rounded, "pinned_max_round_threshold_mb:8")[..] else { panic!("two runs") };
    assert_eq!(refused.trust, Trust::Refused);
}

/// Neither run released memory, so PyTorch's maximum of reserved memory is the value at the end.
#[test]
fn what_recommended_settings_reserve_is_what_pytorch_reserves() {
    let folder = format!("{WHATIF}/c_minigpt");
    let recording = open(&format!("{folder}/snapshot.pickle.gz"));
    let devices = recording.devices();
    let device = &devices.all()[0];
    let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/capacity.json"))).unwrap();
    let reserved = |name: &str| truth[name]["at_80gib"]["max_reserved"].as_u64().unwrap();
    let (end, recorded) = (device.history().entries(), reserved("default"));
    let then = SettingsAdvice::at(device, end, recorded).unwrap();
    let better = then.better.as_ref().unwrap();
    assert_eq!(better.alloc_conf, "expandable_segments:True");
    assert_eq!((better.reserved, better.trust), (reserved("expandable"), Trust::Exact));
    assert_eq!(SettingsAdvice::at(device, end, recorded + 512), None, "not what was recorded");
    assert_eq!(SettingsAdvice::of(device, u64::MAX), Some(then));
}

/// With one of the placements, the recorded settings reserve as little as `expandable_segments:True`.
#[test]
fn savings_that_depend_on_placement_are_not_promised() {
    let recording = open("fixtures/h100/gpt_amp/snapshot.pickle.gz");
    let devices = recording.devices();
    assert_eq!(SettingsAdvice::of(&devices.all()[0], u64::MAX).unwrap().better, None);
}

/// Properties that a recording distinguishes. The other model releases memory of private pools as if they were no longer
/// needed; and call sites are so few that `empty_cache` may have that of the next request, from which an entry in between
/// distinguishes it.
fn playable(op: Op) -> Vec<Op> {
    match op {
        Op::Alloc { size, stream, .. } => vec![Op::Alloc { size, stream, private_pool: 0 }],
        Op::EmptyCache => vec![op, Op::Snapshot],
        op => vec![op],
    }
}

proptest! {
    /// A program of another model of the allocator, written as a snapshot and read back: the simulation of its requests gives
    /// the same maxima and the same driver calls.
    #[test]
    fn programs_simulated_again_are_the_same(program in programs(plain_or_expandable(), false)) {
        let mut program = program;
        // The other model does not give single large blocks back before all others.
        program.config.max_split_size = None;
        // A retry for which pending frees are enough, as with expandable segments, leaves no trace.
        if program.config.expandable != Expandable::Never {
            program.devices.iter_mut().for_each(|ops| ops.retain(|op| !matches!(op, Op::RecordStream { .. })));
        }
        for ops in &mut program.devices {
            *ops = ops.iter().copied().flat_map(playable).collect();
        }
        let snapshot = program.run().snapshot();
        for history in replay(&snapshot) {
            let track = Track::new(&snapshot, &history);
            let program = Program::of(track).unwrap();
            let (outcome, difference) = compare(track, &program, &Setup::as_recorded(track, &program));
            prop_assert_eq!(outcome.fails_at, None);
            prop_assert_eq!(difference.maxima, [0; 4], "{:?}", difference);
            prop_assert_eq!(difference.device_allocs.0, difference.device_allocs.1);
            prop_assert_eq!(difference.device_frees.0, difference.device_frees.1);
        }
    }
}
