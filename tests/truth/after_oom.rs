//! What memviz says after a failed request, compared with the same programs on devices that are large enough.

use crate::support::{assert_none, corpus, names, open, read_text};
use memviz::analysis::advice::{Measure, Simulate};
use memviz::analysis::fit::plans_beside;
use memviz::analysis::oom::OomOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::report::{Answer, Source, TextStyle};
use memviz::simulation::plans::{Above, Condition, Need, PlanOptions, Verdict};
use serde_json::Value;
use std::path::Path;

const FAMILIES: &str = "fixtures/families";
const MORE_FAMILIES: &str = "../shared/families/rec";
/// Lines of a terminal, and its columns.
const SCREEN: (usize, usize) = (24, 80);

/// Recordings of the project that end in a failed request.
const FAILED: [&str; 10] = [
    "families/oom_bert_fp16_60",
    "families/oom_moe_85",
    "snapshots/oom",
    "snapshots/oom_caught",
    "snapshots/oom_capped",
    "snapshots/oom_expandable",
    "snapshots/oom_forward",
    "snapshots/oom_t201",
    "snapshots/oom_t215",
    "snapshots/oom_t231",
];

fn need(path: &str) -> Need {
    let plans = open(path).plan(&PlanOptions::default()).unwrap();
    plans.devices[0].need.unwrap_or_else(|| panic!("{path}: no bounds"))
}

/// `max_memory_reserved()` of a whole run.
fn counted(folder: &str) -> u64 {
    let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth.json"))).unwrap();
    truth["devices"][0]["max_memory_reserved"].as_u64().unwrap()
}

/// Bytes of a small segment: a device that is as much smaller makes a program release one that it would keep elsewhere.
const SEGMENT: u64 = 2 << 20;

/// Whether bounds hold what a program needs: it fails on a device below, and reserves no more than above on a large device.
fn holds(need: Need, reserved: u64) -> bool {
    need.low <= reserved && need.high.is_none_or(|high| high + SEGMENT >= reserved)
}

#[test]
fn bounds_hold_what_the_whole_run_needs() {
    for (failed, whole) in [("oom_bert_fp16_60", "b_bert_fp16_08"), ("oom_moe_85", "b_moe_08")] {
        let need = need(&format!("{FAMILIES}/{failed}/snapshot.pickle.gz"));
        let counted = counted(&format!("{FAMILIES}/{whole}"));
        assert!(holds(need, counted), "{failed}: {need:?}, {counted:?}");
        assert!(need.high.is_some(), "{failed}: backward has begun, or a complete step is known");
        assert_eq!(need.verdict(need.low - 1), Verdict::CannotFit);
    }
}

#[test]
fn bounds_of_other_families_hold() {
    if corpus().is_none() {
        return;
    }
    let mut wrong = Vec::new();
    for family in ["bert_fp16", "gnn", "hf_trainer", "mamba", "moe", "nanogpt", "sd_unet"] {
        for part in [60, 85] {
            let need = need(&format!("{MORE_FAMILIES}/oom_{family}_{part}/snapshot.pickle.gz"));
            let counted = counted(&format!("{MORE_FAMILIES}/b_{family}_08"));
            if !holds(need, counted) {
                wrong.push(format!("{family}, {part}%: {need:?}, {counted:?}"));
            }
        }
    }
    assert_none(&wrong);
}

/// What a program of `fixtures/after_oom` needs, and the largest device on which it failed and the smallest on which it ran.
fn bounded(name: &str) -> (Need, [u64; 2]) {
    let folder = format!("fixtures/after_oom/{name}");
    let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth.json"))).unwrap();
    let devices = ["fails_with", "runs_with"].map(|key| truth[key].as_u64().unwrap());
    (need(&format!("{folder}/snapshot.pickle.gz")), devices)
}

#[test]
fn bounds_of_programs_in_other_styles_hold() {
    for name in ["checkpointed", "contrastive", "lora", "vit"] {
        let (need, [fails, runs]) = bounded(name);
        assert!(need.low <= runs && need.high.is_some_and(|high| high > fails), "{name}: {need:?}, {fails}, {runs}");
    }
}

/// The first step allocates a workspace in backward, where requests have no stacks; all others are the same.
#[test]
fn one_request_more_does_not_shift_the_others() {
    let (need, [_, runs]) = bounded("contrastive");
    let Above::Step(step) = need.above else { panic!("{need:?}") };
    assert!(step.equal == step.requests && !step.is_resized, "{step:?}");
    assert!((need.high.unwrap() - need.low) * 100 <= runs * 2, "{need:?}, {runs}");
}

/// The images of a step are freed when those of the next one are there, not those of the next one in their place.
#[test]
fn a_repeated_step_keeps_its_inputs() {
    let (need, [_, runs]) = bounded("vit");
    assert!(need.high.unwrap().abs_diff(runs) <= SEGMENT, "{need:?}, {runs}");
}

/// The critic has had its step, and the generator has not: it may need more, and does.
#[test]
fn another_step_for_other_parameters_is_a_condition() {
    let (need, _) = bounded("gan");
    assert!(matches!(need.conditions()[..], [Condition::Untrained(_)]), "{need:?}");
    assert_eq!(need.verdict(need.high.unwrap()), Verdict::FitsIf);
}

/// The failed request is that of the loss, behind which there is only backward.
#[test]
fn a_loss_ends_the_forward_pass() {
    let (need, _) = bounded("lora");
    assert_eq!(need.conditions(), [Condition::LossIsLast, Condition::States]);
}

/// A complete step shows from both sides what the failed one needs, if their requests are the same.
#[test]
fn a_complete_step_bounds_the_failed_one_from_both_sides() {
    let need = need(&format!("{FAMILIES}/oom_moe_85/snapshot.pickle.gz"));
    let counted = counted(&format!("{FAMILIES}/b_moe_08"));
    assert!(need.finished.is_some_and(|finished| finished == need.low), "{need:?}");
    assert!((need.high.unwrap() - need.low) * 100 <= counted * 15, "{need:?}, {counted}");
}

/// A run with half the batch bounds what the failed one needs.
#[test]
fn a_run_with_another_batch_bounds_the_failed_one() {
    let failed = open(&format!("{FAMILIES}/oom_bert_fp16_60/snapshot.pickle.gz"));
    let counted = counted(&format!("{FAMILIES}/b_bert_fp16_08"));
    for batch in ["04", "16"] {
        let other = open(&format!("{FAMILIES}/b_bert_fp16_{batch}/snapshot.pickle.gz"));
        let plans = plans_beside(&failed.devices(), &other.devices(), &PlanOptions::default()).unwrap();
        let need = plans.devices[0].need.unwrap();
        assert!(matches!(need.above, Above::Recording(failed) if failed.is_resized), "{need:?}");
        assert!(holds(need, counted), "batch {batch}: {need:?}, {counted:?}");
    }
}

/// What `memviz FILE` prints on a terminal.
fn first_screen(path: &str) -> String {
    let recording = open(path);
    let report = recording.triage(&TriageOptions::default()).unwrap();
    let style = TextStyle { width: Some(SCREEN.1), advice: true, ..TextStyle::default() };
    let mut text = Vec::new();
    report.text(Source { path, recording: &recording }, style, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Whoever recorded it, and however long its path is.
#[test]
fn the_first_screen_of_every_failure_fits_a_terminal() {
    if corpus().is_none() {
        return;
    }
    let in_folder = |root: &str, prefix: &str| {
        let names = names(root).into_iter().filter(|name| name.starts_with(prefix));
        names.map(|name| format!("{root}/{name}/snapshot.pickle.gz")).collect::<Vec<_>>()
    };
    let families = in_folder(MORE_FAMILIES, "oom_").into_iter().filter(|path| !path.contains("_p"));
    let corpus = ["oom", "fragmented"].into_iter().flat_map(|prefix| in_folder("../shared/corpus", prefix));
    let real = ["Constructor-Sun-memory_snapshot.pickle.gz"].map(|name| format!("../shared/real/{name}"));
    let mut problems = Vec::new();
    for path in families.chain(corpus).chain(real).filter(|path| Path::new(path).exists()) {
        let text = first_screen(&path);
        if text.starts_with("Out of memory") && text.lines().count() > SCREEN.0 {
            problems.push(format!("{path}: {} lines\n{text}", text.lines().count()));
        }
    }
    assert_none(&problems);
}

/// A first screen names the fixes, each with what it does for the request, and fits a terminal.
#[test]
fn the_first_screen_answers_whether_it_fits() {
    for name in FAILED {
        let path = format!("fixtures/{name}/snapshot.pickle.gz");
        let recording = open(&path);
        let report = recording.triage(&TriageOptions::default()).unwrap();
        let rescue = report.devices[report.first].rescue.as_ref().unwrap_or_else(|| panic!("{name}: no answer"));
        assert!(rescue.need.low > 0, "{name}");
        let text = first_screen(&path);
        assert!(text.lines().count() <= SCREEN.0, "{name}: {} lines\n{text}", text.lines().count());
        // What to do, not the names that `memviz simulate` takes.
        let names = ["optimizer:", "chunk-loss:", ":every="];
        assert!(!names.iter().any(|change| text.contains(change)), "{name}\n{text}");
    }
}

/// Deleting the model's output is enough: 6.88 of 7.56 GiB.
#[test]
fn a_fix_that_suffices_is_said_to() {
    let report =
        open("fixtures/snapshots/oom/snapshot.pickle.gz").oom(&OomOptions::default().cures(Some(Simulate::All)));
    let device = &report.unwrap().devices[0];
    let rescue = device.rescue.as_ref().unwrap();
    let enough = |way: &&memviz::analysis::advice::Way| way.effect.served.is_some_and(|bytes| bytes <= rescue.capacity);
    let fixes: Vec<&str> = rescue
        .ways
        .iter()
        .filter(enough)
        .filter_map(|way| match way.change {
            Measure::Fix(place) => Some(device.cures[place].kind.name()),
            _ => None,
        })
        .collect();
    assert!(fixes.contains(&"kept_outputs"), "{fixes:?}");
    assert!(rescue.ways.iter().any(|way| matches!(way.change, Measure::Checkpoint(_))), "activations hold 75%");
    assert!(rescue.ways.is_sorted_by_key(|way| way.effect.served.is_none()));
}

/// Programs from public reports: what keeps a second attempt from succeeding, and whose pool has no room.
#[test]
fn pools_and_second_attempts_are_named() {
    for (name, cause, kind) in
        [("mempool_oom", "private_pool", "in_private_pool"), ("retry_after_oom", "capacity", "kept_since")]
    {
        let path = format!("../shared/reports/{name}.pickle");
        if corpus().is_none() || !Path::new(&path).exists() {
            return;
        }
        let recording = open(&path);
        let report = recording.oom(&OomOptions::default()).unwrap();
        let mut json = Vec::new();
        report.json(Source { path: &path, recording: &recording }, &mut json).unwrap();
        let answer: Value = serde_json::from_slice(&json).unwrap();
        let ooms = answer["devices"][0]["ooms"].as_array().unwrap();
        assert_eq!(ooms[0]["cause"], cause);
        let last = ooms.last().unwrap()["evidence"].as_array().unwrap();
        assert!(last.iter().any(|evidence| evidence["kind"] == kind), "{name}: {last:#?}");
    }
}
