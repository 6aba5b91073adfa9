//! Programs that look like others: second derivatives inside of a forward pass, fused attention in its slowest form, and memory that
//! each step replaces.

use crate::support::open;
use memviz::Recording;
use memviz::analysis::advice::{RuleKind, Simulate};
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::leaks::growth::Verdict;
use memviz::analysis::triage::TriageOptions;
use memviz::facts::training::Phase;
use memviz::input::ReadOptions;

/// `torch.autograd.functional.jvp` runs the engine while the model computes: nothing is trained.
#[test]
fn derivatives_inside_of_a_forward_pass_are_no_step() {
    let recording = open("fixtures/reports/jvp.pickle.gz");
    let devices = recording.devices();
    let device = &devices.all()[0];
    assert!(device.phases().spans.iter().all(|span| span.phase != Phase::Backward), "{:?}", device.phases().spans);
    assert!(device.steps().is_err(), "{:?}", device.steps());
    // The steps of programs that train remain.
    for (name, steps) in [("gpt_train", 4), ("mlp_accumulate", 6), ("gpt_train_ckpt", 4)] {
        let recording = open(&crate::support::fixture(name));
        let devices = recording.devices();
        let found = devices.all()[0].phases().spans.iter().filter(|span| span.phase == Phase::Backward).count();
        assert!(found >= steps, "{name}: {found}");
    }
}

/// The C++ frames show that `scaled_dot_product_attention` runs, with its math kernel, inside of timm.
#[test]
fn attention_that_is_fused_already_gets_another_kernel() {
    let mut options = TriageOptions::default();
    options.simulate = Simulate::All;
    let mut reading = ReadOptions::default();
    reading.view.library_lines = true;
    let recording = Recording::open("fixtures/reports/sdpa.pickle.gz".as_ref(), &reading).unwrap();
    let report = recording.triage(&options).unwrap();
    let advice =
        report.devices[0].advice.iter().find(|advice| advice.kind == RuleKind::AttentionMatrix).expect("advice");
    assert_eq!(advice.line.as_ref().map(|line| line.label.as_str()), Some("dit.py:125 forward"));
    assert!(advice.change.contains("used already") && advice.code[0].contains("sdpa_kernel"), "{advice:?}");
    assert!(
        advice.evidence.contains("math kernel in timm/models/vision_transformer.py:93 forward"),
        "{}",
        advice.evidence
    );
}

/// 5.25 GiB is live at the end of the last step: 1 of weights, 2 of optimizer state, 2.25 that the next forward pass would replace.
#[test]
fn what_each_step_renews_is_listed() {
    let report = open("fixtures/reports/kept_until_next_step.pickle.gz").leaks(&LeakOptions::default()).unwrap();
    let rows: Vec<_> =
        report.devices[0].rows.iter().map(|row| (row.verdict, row.live_bytes, row.label.as_str())).collect();
    let expected = [
        (Verdict::Cache, 2 << 30, "grpo.py:70 train"),
        (Verdict::Cache, 1 << 30, "grpo.py:5 build"),
        (Verdict::Renewed, 9 << 28, "token_dispatcher.py:100 dispatch_preprocess"),
    ];
    assert_eq!(rows, expected);
}
