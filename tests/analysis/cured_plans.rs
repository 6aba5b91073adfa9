//! Plans for a program without its known mistakes: what PyTorch counted when both were applied by hand, and when such a
//! plan is shown.

use crate::support::{open, read_text};
use memviz::Recording;
use memviz::analysis::advice::Saving;
use memviz::analysis::excerpt::{Window, excerpt};
use memviz::analysis::fit::{FitPlans, FitTogether};
use memviz::input::ReadOptions;
use memviz::model::bytes::Bytes;
use memviz::report::{Answer, Source, TextStyle};
use memviz::simulation::Trust;
use memviz::simulation::plans::{Plan, PlanOptions, PlanReport};
use memviz::wire;
use serde_json::Value;
use std::io::Cursor;

/// A program with two known mistakes: each of their cures saves something.
const FLAWED: &str = "fixtures/together/two_mistakes_gpt2_flawed/snapshot.pickle.gz";
/// PyTorch's figures for the program with both cures and a plan.
const PLANNED: &str = "fixtures/together/two_mistakes_gpt2_planned/truth.json";

/// Of what the changed program allocates, in thousandths.
const MOST_OFF: u64 = 10;

fn mib(count: u64) -> u64 {
    count << 20
}

/// The answer about a device of this size, and its first line.
fn ask(device: u64) -> (FitPlans, String) {
    ask_about(FLAWED, device)
}

/// The same about another recording.
fn ask_about(path: &str, device: u64) -> (FitPlans, String) {
    let recording = open(path);
    let options = PlanOptions::default().capacity(Some(mib(device))).context(Some(0));
    let plans = FitPlans::of(&recording.devices(), &options).unwrap();
    let source = Source { path: "train.pickle", recording: &recording };
    let mut text = Vec::new();
    plans
        .text(&[source], TextStyle { width: None, color: false, advice: false, ..TextStyle::default() }, &mut text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let first = text.lines().find(|line| line.starts_with("Device 0")).unwrap().to_owned();
    (plans, first)
}

fn with_plan(plans: &FitPlans) -> Option<(&FitTogether, &Plan)> {
    let together = plans.with_plan[0].as_ref()?;
    Some((together, together.plan.as_ref().unwrap()))
}

fn names(plan: &Plan) -> Vec<String> {
    plan.changes.iter().map(|it| it.change.to_string()).collect()
}

/// The program was run with both cures and the plan, on devices of several sizes.
#[test]
fn a_plan_with_cures_is_what_pytorch_measures() {
    let truth: Value = serde_json::from_str(&read_text(PLANNED)).unwrap();
    for truth in truth.as_array().unwrap() {
        let number = |key: &str| truth[key].as_u64();
        let (plans, _) = ask(number("device_mib").unwrap());
        let (together, plan) = with_plan(&plans).expect("a plan with cures");
        assert_eq!((together.fits, &together.fixes.places[..]), (Some(true), &[0, 1][..]), "{truth}");
        assert_eq!(
            names(plan),
            truth["changes"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>()
        );
        assert_eq!(plan.alloc_conf.as_deref().unwrap_or_default(), truth["alloc_conf"].as_str().unwrap());
        let measured = number("max_allocated_bytes").unwrap();
        let off = plan.outcome.max_allocated.abs_diff(measured);
        assert!(off * 1000 <= measured * MOST_OFF, "{} instead of {truth}", plan.outcome.max_allocated);
        // The program runs on a device of the size that it is said to need, and does not on one that is too small.
        let needs = plan.needs.unwrap();
        assert!(needs >= mib(number("runs_with_mib").unwrap()), "{needs} instead of {truth}");
        assert!(
            number("fails_with_mib").is_none_or(|fails| needs > mib(fails) && needs <= mib(fails + 2)),
            "{needs} instead of {truth}"
        );
        // A program without its mistakes is never the recorded one.
        assert_eq!(plans.plans.devices[0].trust(plan), Trust::Predicted, "{truth}");
    }
}

/// Without the cures, the easiest plan takes two changes to the program; with them, one is enough.
#[test]
fn an_easier_plan_with_cures_comes_first() {
    let (plans, first) = ask(600);
    let best = plans.plans.devices[0].best().expect("a plan without cures");
    assert_eq!(best.changes.len(), 2, "{best:?}");
    let (_, plan) = with_plan(&plans).unwrap();
    assert_eq!(plan.changes.len(), 1, "{plan:?}");
    assert!(first.ends_with("; fits with changes 1 and 2 below + checkpoint:modeling_gpt2.py:239 forward"), "{first}");
}

/// The same plan is enough without any cure.
#[test]
fn a_plan_with_cures_that_is_not_easier_is_left_out() {
    let (plans, first) = ask(700);
    assert!(with_plan(&plans).is_none(), "{:?}", plans.with_plan);
    assert_eq!(plans.together[0].as_ref().unwrap().fits, Some(false));
    assert!(first.ends_with("; fits with checkpoint:modeling_gpt2.py:239 forward"), "{first}");
}

#[test]
fn cures_that_are_enough_need_no_plan() {
    let (plans, first) = ask(790);
    assert!(with_plan(&plans).is_none(), "{:?}", plans.with_plan);
    assert_eq!(plans.together[0].as_ref().unwrap().fits, Some(true));
    assert!(!plans.plans.devices[0].plans.is_empty());
    assert!(first.ends_with("; fits with 2 changes together"), "{first}");
}

/// Smaller devices need no easier plans.
#[test]
fn plans_with_cures_become_harder_on_smaller_devices() {
    let parts = |device: u64| {
        let (plans, _) = ask(device);
        with_plan(&plans).map(|(_, plan)| plan.changes.len() + usize::from(plan.alloc_conf.is_some()))
    };
    assert_eq!([780, 600, 500, 400].map(parts), [Some(1), Some(1), Some(2), Some(2)]);
}

/// If nothing is enough, the first line names what comes closest: a cure, several, a plan, or both.
#[test]
fn the_closest_change_is_named() {
    for (path, device, name) in [
        ("fixtures/generation/snapshot.pickle.gz", 100, "change 1 comes closest"),
        ("fixtures/stories/kv_cache_growth_views_flawed/snapshot.pickle.gz", 100, "changes 1 and 2 come closest"),
        ("fixtures/stories/retained_graph_mdn_flawed/snapshot.pickle.gz", 50, "change 1 + expandable_segments:True"),
        (FLAWED, 150, "expandable_segments:True + chunk-loss:4"),
    ] {
        let (plans, first) = ask_about(path, device);
        let searched = &plans.plans.devices[0];
        let needs = |saving: &Saving| match saving {
            Saving::Simulated { needs, reserved, .. } => needs.unwrap_or(reserved.after),
            Saving::NotSimulated { .. } => u64::MAX,
        };
        let cures = plans.fixes[0].iter().map(|cure| needs(&cure.advice.saving));
        let several = plans.together[0].iter().chain(&plans.with_plan[0]).map(|it| needs(&it.fixes.saving));
        let plan = searched.nearest.as_ref().map(|plan| searched.measure(plan));
        let least = cures.chain(several).chain(plan).min().unwrap();
        assert!(
            first.contains(name) && first.contains(&format!("closest: the program then needs {}", Bytes(least))),
            "{least}: {first}"
        );
    }
}

/// A program that starts with more memory in segments than the device has does not fit, even if it never reserves any.
#[test]
fn a_program_starts_within_the_device() {
    let whole = open("fixtures/snapshots/fragmented/snapshot.pickle.gz");
    // Just before the failed request, when most of the reserved memory is inactive.
    let part = excerpt(&whole.devices(), &[Window { device: 0, from: 48_345, to: 48_370 }]).unwrap();
    let mut bytes = Vec::new();
    wire::snapshot::write(&part, &mut bytes).unwrap();
    let part = Recording::read(Cursor::new(bytes), &ReadOptions::default()).unwrap();
    let devices = part.devices();
    let history = devices.all()[0].history();
    let [live, reserved] = [history.maxima[1].bytes, history.start.reserved].map(i64::unsigned_abs);
    assert!(live < reserved / 2, "{live} of {reserved}");
    let device = u64::midpoint(live, reserved);
    let options = PlanOptions::default().capacity(Some(device)).context(Some(0));
    let plans = PlanReport::of(&devices, &options).unwrap().devices.remove(0);
    assert!(!plans.fits, "{live} to {reserved}: {:?}", plans.as_it_is);
    assert!(plans.plans.iter().all(|plan| plan.outcome.max_reserved <= device), "{:?}", plans.plans);
}
