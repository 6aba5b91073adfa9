//! What `memviz checkpoint` predicts is what PyTorch measures when checkpointing is turned on.

mod by_hand;
mod lookalike;
mod program;

use crate::support::{self, assert_none, fixture, names, open, read_text};
use memviz::analysis::checkpoint::{Candidate, CurveOptions, NoCandidates};
use memviz::analysis::checkpoint::{CheckpointOptions, CheckpointReport, DeviceCheckpoint};
use memviz::analysis::timeline::XAxis;
use memviz::facts::training::Phase;
use memviz::simulation::changes::CodeChange;
use serde_json::Value;

/// Recordings of programs without checkpointing, with the peaks of the same programs with it.
const PAIRS: &str = "fixtures/pairs";
/// What `gpt_train` peaks at with every block checkpointed, and with every second.
const GPT: [(usize, i64); 2] = [(1, 2_911_863_808), (2, 3_687_023_616)];
/// Versions of PyTorch that it was recorded with.
const VERSIONS: [&str; 4] = ["", "_t201", "_t231", "_t215"];

// ------------------------------------------------------------------ predictions

#[test]
fn gpt_train_is_predicted_within_a_percent_in_every_version() {
    let mut problems = Vec::new();
    for version in VERSIONS {
        let name = format!("gpt_train{version}");
        let device = device(&fixture(&name));
        let best = &device.candidates[0];
        // Line 53 is the first of `Block.forward`.
        assert_eq!((best.label.as_str(), best.calls), ("minigpt.py:53 forward", 8), "{name}");
        assert_eq!(
            best.change,
            CodeChange::Wrap { caller: Some("minigpt.py:75 hidden".to_owned()), others: Vec::new() },
            "{name}"
        );
        assert_eq!((best.limit.phase, best.limit.rerun), (Phase::Backward, false), "{name}");
        problems.extend(GPT.iter().filter_map(|&(every, measured)| miss(&name, best, every, measured, 1)));
    }
    assert_none(&problems);
}

/// The measured peak belongs to this fixture, too.
#[test]
fn checkpointed_calls_are_distinguished_from_others() {
    let every = device(&fixture("gpt_train_ckpt"));
    assert_eq!(every.peak_bytes, GPT[0].1);
    assert_eq!(every.none, Some(NoCandidates::NothingSaves));
    let [block] = &every.checkpointed[..] else { panic!("{:?}", every.checkpointed) };
    assert_eq!((block.label.as_str(), block.calls, block.other_calls), ("minigpt.py:53 forward", 8, 0));

    let second = device(&fixture("gpt_train_ckpt_every2"));
    assert_eq!(second.peak_bytes, GPT[1].1);
    let [block] = &second.checkpointed[..] else { panic!("{:?}", second.checkpointed) };
    assert_eq!((block.label.as_str(), block.calls, block.other_calls), ("minigpt.py:53 forward", 4, 4));
    let left = &second.candidates[0];
    assert_eq!((left.label.as_str(), left.calls), ("minigpt.py:53 forward", 4));
    // Neither the line of PyTorch's own `checkpoint`, nor the line with the calls that are checkpointed already.
    let change = CodeChange::Wrap { caller: Some("minigpt.py:75 hidden".to_owned()), others: Vec::new() };
    assert_eq!(left.change, change);
    assert_none(&miss("the rest of gpt_train_ckpt_every2", left, 1, GPT[0].1, 1).into_iter().collect::<Vec<_>>());
}

#[test]
fn other_architectures_are_predicted_within_two_percent() {
    let mut problems = Vec::new();
    let mut compared = 0;
    for name in names(PAIRS) {
        let truth: Value = serde_json::from_str(&read_text(&format!("{PAIRS}/{name}/truth.json"))).unwrap();
        let device = device(&pair(&name));
        assert_eq!(device.peak_bytes, truth["peak"], "{name}");
        for (function, peaks) in truth["checkpointed"].as_object().unwrap() {
            let Some(candidate) = find(&device, function) else {
                problems.push(format!("{name}: {function} is no candidate"));
                continue;
            };
            for (every, measured) in peaks.as_object().unwrap() {
                let (every, measured) = (every.parse().unwrap(), measured.as_i64().unwrap());
                problems.extend(miss(&format!("{name} {function}"), candidate, every, measured, 2));
                compared += 1;
            }
        }
    }
    assert!(compared >= 20, "{compared} peaks compared");
    assert_none(&problems);
}

/// What to write depends on who calls the function.
#[test]
fn the_change_of_code_suits_the_caller() {
    let best = |path: &str| device(path).candidates[0].change.clone();
    assert_eq!(
        best(&pair("encoder")),
        CodeChange::Wrap { caller: Some("record_pairs.py:104 features".to_owned()), others: Vec::new() }
    );
    assert_eq!(best(&pair("hf")), CodeChange::Transformers);
    let installed = CodeChange::WrapForward("torchvision/models/resnet.py:273 _forward_impl".to_owned());
    assert_eq!(best(&fixture("resnet_train")), installed);
}

// ------------------------------------------------------------------ figures agree

#[test]
fn figures_of_every_candidate_agree() {
    let mut candidates = 0;
    for path in names(PAIRS).iter().map(|name| pair(name)).chain(["gpt_train", "multi_gpu", "ring"].map(fixture)) {
        for device in report(&path, &CheckpointOptions::default()).devices {
            assert!(device.candidates.is_sorted_by_key(|candidate| candidate.predicted_peak_bytes), "{path}");
            for candidate in &device.candidates {
                let label = &candidate.label;
                assert_eq!(candidate.saved_bytes, device.peak_bytes - candidate.predicted_peak_bytes, "{path} {label}");
                assert!(candidate.saved_bytes > 0, "{path} {label}");
                assert_eq!(candidate.plan[0].predicted_peak_bytes, candidate.predicted_peak_bytes, "{path} {label}");
                let every: Vec<usize> = candidate.plan.iter().map(|plan| plan.every).collect();
                assert!(every.iter().copied().eq(1..=candidate.calls.min(16)), "{path} {label}: {every:?}");
                let rows: u64 = candidate.limit.rows.iter().map(|row| row.bytes).sum();
                let there = rows + candidate.limit.rerun_bytes + candidate.limit.workspace_bytes;
                assert_eq!(there, candidate.predicted_peak_bytes as u64, "{path} {label}: rows sum to the new peak");
                assert!(candidate.recompute_us <= device.forward_us, "{path} {label}: a part of the forward pass");
                candidates += 1;
            }
        }
    }
    assert!(candidates > 30, "{candidates} candidates");
}

#[test]
fn top_keeps_the_best_and_counts_the_rest() {
    let path = pair("encoder");
    let all = device(&path);
    let options = CheckpointOptions::default().top(Some(1));
    let one = &report(&path, &options).devices[0];
    assert_eq!(one.candidates, all.candidates[..1]);
    assert_eq!((one.left_out, all.left_out), (all.candidates.len() - 1, 0));
    assert_eq!(one.none, None);
}

/// Each column of the picture shows the highest point within it.
#[test]
fn the_curves_keep_both_peaks() {
    for (path, axis) in [(fixture("gpt_train"), XAxis::Entry), (pair("mlp"), XAxis::Time), (pair("unet"), XAxis::Entry)]
    {
        for columns in [1, 7, 740] {
            let curves = Some(CurveOptions::default().axis(axis).columns(columns));
            let report = report(&path, &CheckpointOptions::default().curves(curves));
            let device = &report.devices[0];
            let curves = device.curves.as_ref().unwrap();
            let highest = |values: &[i64]| values.iter().copied().max().unwrap();
            assert_eq!(highest(&curves.base.highest), device.peak_bytes, "{path}");
            assert_eq!(curves.base.highest[curves.base.mark], device.peak_bytes, "{path}");
            let predicted = device.candidates[0].predicted_peak_bytes;
            assert_eq!(highest(&curves.new.highest), predicted, "{path}");
            assert_eq!(curves.new.highest[curves.new.mark], predicted, "{path}");
            assert_eq!((curves.base.highest.len(), curves.new.highest.len()), (columns, columns), "{path}");
        }
    }
    // Without a candidate there is nothing to compare with.
    let curves = Some(CurveOptions::default().axis(XAxis::Entry).columns(10));
    let options = CheckpointOptions::default().curves(curves);
    assert_eq!(report(&fixture("gpt_train_ckpt"), &options).devices[0].curves.as_ref().map(|_| ()), None);
}

// ------------------------------------------------------------------ nothing to predict

#[test]
fn reasons_are_given_where_nothing_can_be_predicted() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules";
    for (path, reason) in [
        (fixture("no_history"), NoCandidates::NoHistory),
        (fixture("state_only"), NoCandidates::NoForward),
        (fixture("tiny"), NoCandidates::NoForward),
        (fixture("side_stream"), NoCandidates::NoForward),
        (fixture("pinned_t215"), NoCandidates::NoForward),
        (fixture("oom"), NoCandidates::Unfinished),
        (fixture("oom_t201"), NoCandidates::Unfinished),
        (fixture("oom_forward"), NoCandidates::Unfinished),
        (fixture("oom_caught"), NoCandidates::Unfinished),
        (fixture("gpt_train_ckpt"), NoCandidates::NothingSaves),
        (format!("{trace}.trace.json.gz"), NoCandidates::NoLines),
        (format!("{trace}.timeline.raw.json.gz"), NoCandidates::NoStacks),
    ] {
        let report = report(&path, &CheckpointOptions::default());
        assert!(!report.devices.is_empty(), "{path}");
        for device in &report.devices {
            assert_eq!(device.none, Some(reason), "{path}");
            assert!(device.candidates.is_empty() && device.left_out == 0, "{path}");
        }
    }
    assert!(report(&fixture("empty"), &CheckpointOptions::default()).devices.is_empty());
    // The failed request comes after the last step.
    assert_eq!(device(&fixture("fragmented")).none, None);
    // It belongs to the step after the peak, which needs as much.
    assert_eq!(device(&fixture("oom_capped")).none, Some(NoCandidates::LaterUnfinished));
}

/// A peak in the optimizer's step stays; the function that holds most of what forward keeps is named anyway.
#[test]
fn a_peak_in_the_optimizer_names_what_forward_holds() {
    let device = device(&fixture("optpeak"));
    assert_eq!((device.none, device.phase), (Some(NoCandidates::PeakInOptimizer), Phase::Optimizer));
    let peak = device.optimizer.expect("what the peak is made of");
    let parts = peak.kept_bytes + peak.temporary_bytes + peak.backward_bytes + peak.other_bytes;
    assert_eq!(parts, device.peak_bytes as u64);
    let held = peak.forward_function.expect("blocks that are called repeatedly");
    assert_eq!((held.label.as_str(), held.calls), ("record_pairs.py:74 forward", 6));
    assert_eq!(
        held.change,
        CodeChange::Wrap { caller: Some("record_pairs.py:201 forward".to_owned()), others: Vec::new() }
    );
    assert!(held.bytes > 0 && held.bytes < peak.elsewhere_bytes.unwrap() as u64);
}

/// Two forward passes of `oom_caught` fail before the first backward pass.
#[test]
fn forward_work_before_one_backward_pass_counts_as_one_pass() {
    let [joined, single] = ["oom_caught", "gpt_train"].map(|name| device(&fixture(name)));
    assert_eq!((joined.passes, joined.joins_passes), (1, true));
    assert!(!single.joins_passes);
}

/// Generating text calls the same blocks again and again, and keeps a cache, but nothing for a backward pass.
#[test]
fn generation_is_not_training() {
    let growing = device("fixtures/generation/snapshot.pickle.gz");
    assert_eq!((growing.none, growing.passes), (Some(NoCandidates::NoTrainingStep), 0));
    let Some(corpus) = support::corpus() else { return };
    let path = names(&format!("{corpus}/generate_kv")).into_iter().find(|name| name.starts_with("snapshot")).unwrap();
    let device = device(&format!("{corpus}/generate_kv/{path}"));
    assert_eq!((device.none, device.passes), (Some(NoCandidates::NoTrainingStep), 0));
}

// ------------------------------------------------------------------ helpers

fn pair(name: &str) -> String {
    format!("{PAIRS}/{name}/snapshot.pickle.gz")
}

fn report(path: &str, options: &CheckpointOptions) -> CheckpointReport {
    open(path).checkpoint(options).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first device.
fn device(path: &str) -> DeviceCheckpoint {
    report(path, &CheckpointOptions::default()).devices.swap_remove(0)
}

/// The candidate that is a function, which is given by the line of its `def`.
fn find<'d>(device: &'d DeviceCheckpoint, function: &str) -> Option<&'d Candidate> {
    let parts = |label: &str| {
        let (file, rest) = label.rsplit_once(':')?;
        let (line, name) = rest.split_once(' ')?;
        Some((file.to_owned(), name.to_owned(), line.parse::<u32>().ok()?))
    };
    let (file, name, defined) = parts(function)?;
    let candidates = device.candidates.iter().filter_map(|candidate| Some((candidate, parts(&candidate.label)?)));
    let matching = candidates.filter(|(_, found)| (&found.0, &found.1) == (&file, &name) && found.2 >= defined);
    matching.min_by_key(|(_, found)| found.2).map(|(candidate, _)| candidate)
}

/// The difference from the prediction for every N-th call, if it exceeds a percentage.
fn miss(what: &str, candidate: &Candidate, every: usize, measured: i64, percent: i64) -> Option<String> {
    let Some(plan) = candidate.plan.iter().find(|plan| plan.every == every) else {
        return Some(format!("{what}: no plan for every {every}"));
    };
    let off = plan.predicted_peak_bytes - measured;
    let share = off as f64 * 100.0 / measured as f64;
    (off.abs() * 100 > measured * percent).then(|| {
        format!("{what}, every {every}: {} predicted, {measured} measured: {share:+.2}%", plan.predicted_peak_bytes)
    })
}
