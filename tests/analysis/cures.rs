//! Recommended changes, on recordings with a known answer: memviz finds every mistake, and nothing else.

use crate::support::{REQUIRE_CORPUS, fixture, open, skipped};
use memviz::analysis::advice::{Advice, RuleKind, Saving, Simulate};
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::simulate::SimulateOptions;
use memviz::analysis::triage::{Nothing, TriageOptions};
use memviz::replay::Metric;
use memviz::simulation::Trust;
use std::path::Path;

/// Recordings of strangers, which only some machines have.
const REAL: &str = "../shared/real";

fn advice(path: &str) -> Vec<Advice> {
    let options = TriageOptions::default().simulate(Simulate::All);
    open(path).triage(&options).unwrap().devices.into_iter().flat_map(|device| device.advice).collect()
}

#[track_caller]
fn found(path: &str, story: RuleKind) -> Advice {
    let all = advice(path);
    let own = all.iter().find(|advice| advice.kind == story);
    own.unwrap_or_else(|| panic!("{path}: {story:?} is not in {all:#?}")).clone()
}

#[track_caller]
fn assert_not_found(path: &str, story: RuleKind) {
    let all = advice(path);
    assert!(all.iter().all(|advice| advice.kind != story), "{path}: {all:#?}");
}

fn label(advice: &Advice) -> &str {
    advice.line.as_ref().map_or("", |line| line.label.as_str())
}

#[test]
fn a_matrix_of_attention_is_found_where_one_is_made() {
    let attention = found(&fixture("gpt_train"), RuleKind::AttentionMatrix);
    assert_eq!(label(&attention), "minigpt.py:28 forward");
    let Saving::Simulated { allocated, .. } = attention.saving else { panic!("{:?}", attention.saving) };
    assert_eq!(allocated.by(), 8 * (64 << 20), "one of 64 MiB in each of eight layers");
    assert_not_found(&fixture("gpt_train_sdpa_amp"), RuleKind::AttentionMatrix);
}

#[test]
fn computing_on_a_separate_stream_is_found() {
    let path = "fixtures/stories/side_stream_stranding_teacher_flawed/snapshot.pickle.gz";
    let stream = found(path, RuleKind::SideStreamStranding);
    assert_eq!(label(&stream), "side_vit.py:30 __call__");
    // The stream copies batches alone.
    assert_not_found(&fixture("side_stream"), RuleKind::SideStreamStranding);
    assert_not_found(&fixture("gpt_train"), RuleKind::SideStreamStranding);
    // Graphs are captured on a separate stream.
    assert_not_found(&fixture("cuda_graph"), RuleKind::SideStreamStranding);
}

#[test]
fn logits_are_found_where_they_are_cast_to_float32() {
    let loss = found(&fixture("gpt_train_sdpa_amp"), RuleKind::Fp32Logits);
    assert!(loss.evidence.contains("in float32, twice the size"), "{}", loss.evidence);
    assert_not_found(&fixture("gpt_train"), RuleKind::Fp32Logits);
}

#[test]
fn settings_that_are_on_are_not_recommended() {
    for name in ["expandable", "expandable_live", "conf_expandable_random"] {
        assert_not_found(&fixture(name), RuleKind::FragmentationVarlen);
    }
}

#[test]
fn expandable_segments_come_with_conflicts() {
    let conflicts = |name: &str| {
        let report = open(&fixture(name)).simulate(&SimulateOptions::default().sweep(true)).unwrap();
        report.devices[0].expandable_conflicts.clone()
    };
    assert!(conflicts("cuda_graph").iter().any(|part| part.contains("captures CUDA graphs")));
    assert!(conflicts("gpt_train").is_empty());
}

#[test]
fn results_that_are_moved_to_the_cpu_are_counted() {
    let recording = "fixtures/stories/accumulating_metrics_sampler_flawed/snapshot.pickle.gz";
    let collected = found(recording, RuleKind::AccumulatingMetrics);
    let Saving::Simulated { allocated, .. } = collected.saving else { panic!("{:?}", collected.saving) };
    // All results except the last are live at the peak, in addition to what the changed program keeps.
    let copies = collected.copies.unwrap();
    assert!(copies >= allocated.by() && copies <= allocated.by() * 2, "{copies} of {allocated:?}");
    let graph = found("fixtures/stories/retained_graph_gpt_flawed/snapshot.pickle.gz", RuleKind::RetainedGraph);
    assert_eq!(graph.copies, None);
}

/// The discriminator is called twice before a pass with `retain_graph`, which frees nothing of either call.
#[test]
fn a_pass_that_retains_graphs_may_go_through_all_calls_before_it() {
    assert_not_found("fixtures/advice/gan.pickle.gz", RuleKind::EvalWithoutNoGrad);
}

/// Keys and values that a model returns stay live under `inference_mode`, too.
#[test]
fn a_cache_is_no_graph() {
    for name in ["requests4", "requests8"] {
        let path = format!("fixtures/serving/{name}/snapshot.pickle.gz");
        assert_not_found(&path, RuleKind::EvalWithoutNoGrad);
        found(&path, RuleKind::KvCacheGrowth);
    }
}

/// The model is two functions over a dict of weights. On an H100, the cured program had these peaks.
#[test]
fn evaluations_of_functions_that_keep_their_graphs_are_found() {
    let kept = found("fixtures/advice/tide.pickle.gz", RuleKind::EvalWithoutNoGrad);
    assert_eq!(label(&kept), "tide.py:23 season");
    let Saving::Simulated { allocated, reserved, .. } = kept.saving else { panic!("{:?}", kept.saving) };
    let cured = open("fixtures/advice/tide_cured.pickle.gz").peak(&PeakOptions::default()).unwrap();
    for (lowered, metric) in [(allocated, Metric::Allocated), (reserved, Metric::Reserved)] {
        let truth = cured.devices[0].maxima[metric as usize].bytes as u64;
        assert!(lowered.after.abs_diff(truth) <= truth / 50, "{lowered:?}, not {truth}");
    }
    assert_not_found("fixtures/advice/tide_cured.pickle.gz", RuleKind::EvalWithoutNoGrad);
    // The evaluation is a function of its own, and training calls the model inside the function of its loss.
    let elsewhere = found("fixtures/advice/mlp.pickle.gz", RuleKind::EvalWithoutNoGrad);
    assert_eq!(label(&elsewhere), "mlp.py:37 evaluate");
}

/// One returns all its activations, one returns lists of its states, and one needs the gradients of each call without `no_grad`.
#[test]
fn functions_that_keep_no_needless_graph_are_not_found() {
    for program in ["activations", "trajectories", "world"] {
        assert_not_found(&format!("fixtures/advice/{program}.pickle.gz"), RuleKind::EvalWithoutNoGrad);
    }
}

/// A saving that is exact is what another run with the recommended settings shows.
#[test]
fn exact_savings_are_exact() {
    let settings = found("fixtures/advice/curriculum.pickle.gz", RuleKind::FragmentationVarlen);
    let Saving::Simulated { allocated, reserved, reserved_trust, .. } = settings.saving else { panic!("not played") };
    let truth = open("fixtures/advice/curriculum_expandable.pickle.gz").peak(&PeakOptions::default()).unwrap();
    let truth = [Metric::Allocated, Metric::Reserved].map(|metric| truth.devices[0].maxima[metric as usize].bytes);
    assert_eq!(([allocated.after, reserved.after].map(|bytes| bytes as i64), reserved_trust), (truth, Trust::Exact));
}

/// The only line of the next phase in the recording is in its loop.
#[test]
fn the_cache_is_emptied_before_a_loop_and_not_in_it() {
    let emptied = found("fixtures/advice/superres.pickle.gz", RuleKind::ReleaseCache);
    assert_eq!(label(&emptied), "superres.py:40 <module>");
    assert_eq!(emptied.change, "call torch.cuda.empty_cache() once before the loop that runs this line");
}

/// The best weights of each fold stay, and those before them are replaced.
#[test]
fn copies_of_weights_are_found_although_some_stay() {
    let copies = found("fixtures/advice/folds.pickle.gz", RuleKind::DuplicateModel);
    assert_eq!(label(&copies), "folds.py:30 <dictcomp>");
    let Saving::Simulated { allocated, .. } = copies.saving else { panic!("{:?}", copies.saving) };
    let cured = open("fixtures/advice/folds_cured.pickle.gz").peak(&PeakOptions::default()).unwrap();
    let truth = cured.devices[0].maxima[Metric::Allocated as usize].bytes as u64;
    // The allocator places blocks elsewhere, and rounds some of them.
    assert!(allocated.after.abs_diff(truth) <= truth / 1000, "{allocated:?}, not {truth}");
}

/// The highest bytes of a program with its mistake cured.
fn highest(cured: &str, metric: Metric) -> u64 {
    open(&format!("fixtures/advice/{cured}.pickle.gz")).peak(&PeakOptions::default()).unwrap().devices[0].maxima
        [metric as usize]
        .bytes as u64
}

/// Checks what a program allocates at most after a cure against the cured program: within 1/200, and otherwise silent.
#[track_caller]
fn assert_cures(program: &str, story: RuleKind, line: &str) -> Advice {
    let cure = found(&format!("fixtures/advice/{program}.pickle.gz"), story);
    assert_eq!(label(&cure), line);
    let Saving::Simulated { allocated, .. } = &cure.saving else { panic!("{:?}", cure.saving) };
    let truth = highest(&format!("{program}_cured"), Metric::Allocated);
    assert!(allocated.after.abs_diff(truth) <= truth / 200, "{allocated:?}, not {truth}");
    assert_not_found(&format!("fixtures/advice/{program}_cured.pickle.gz"), story);
    cure
}

/// In bfloat16, `softmax` with another dtype casts its input itself, so that two blocks have its stack.
#[test]
fn softmax_may_cast_the_scores_itself() {
    assert_cures("llama", RuleKind::AttentionMatrix, "llama.py:27 forward");
}

/// The optimizer computes both of its states anew in every step, and keeps them until the next one.
#[test]
fn states_that_every_update_replaces_are_no_temporaries() {
    assert_not_found("fixtures/pairs/one_file_amp/snapshot.pickle.gz", RuleKind::Temporary);
}

#[test]
fn a_copy_of_all_gradients_is_found_where_only_a_norm_needs_it() {
    let copy = assert_cures("gradnorm", RuleKind::Temporary, "gradnorm.py:7 clip_gradients");
    assert_eq!(
        copy.change,
        "if this line copies all gradients to compute their norm, compute the norm of each gradient separately"
    );
    let Saving::Simulated { trust, .. } = copy.saving else { panic!("{:?}", copy.saving) };
    assert_eq!(trust, Trust::Uncertain, "what the tensor is for is not recorded");
    // Conjugate gradients compute vectors of the same size from it, which the update needs.
    assert_not_found("fixtures/advice/conjugate.pickle.gz", RuleKind::Temporary);
}

/// The picture itself stays live next to its cast.
#[test]
fn a_cast_that_only_the_next_operator_uses_is_found() {
    let cast = assert_cures("scale", RuleKind::Temporary, "scale.py:24 train");
    let Saving::Simulated { trust, .. } = cast.saving else { panic!("{:?}", cast.saving) };
    assert_eq!(trust, Trust::Uncertain, "whether the operator has an in-place form is not recorded");
}

/// A hook stores what each layer makes: without it, layers or backward would free that before the next call.
#[test]
fn what_hooks_collect_is_found_in_training_and_without() {
    for (program, line) in [("hooks", "hooks.py:28 forward"), ("features", "features.py:29 <module>")] {
        let collected = found(&format!("fixtures/advice/{program}.pickle.gz"), RuleKind::AccumulatingMetrics);
        assert_eq!(label(&collected), line);
        // What all eight layers of one step store, or both of the evaluation.
        assert!(collected.evidence.contains(" 48.00 MiB "), "{}", collected.evidence);
        let Saving::Simulated { allocated, at_least, because, .. } = collected.saving else { panic!("not played") };
        let saved = allocated.before - highest(&format!("{program}_cured"), Metric::Allocated);
        let most = because.split("at most ").nth(1).and_then(|most| most.split(" MiB").next()).unwrap();
        // The text rounds to hundredths of a MiB.
        let most = ((most.parse::<f64>().unwrap() + 0.01) * f64::from(1 << 20)) as u64;
        assert!(at_least && (allocated.by()..=most).contains(&saved), "{saved} in {}..={most}", allocated.by());
        assert_not_found(&format!("fixtures/advice/{program}_cured.pickle.gz"), RuleKind::AccumulatingMetrics);
    }
}

/// Statistics of the data are computed before a model is called.
#[test]
fn a_preparation_may_leave_segments_that_training_cannot_use() {
    let emptied = found("fixtures/advice/statistics_first.pickle.gz", RuleKind::ReleaseCache);
    assert_eq!(label(&emptied), "statistics_first.py:18 whitening");
    let Saving::Simulated { reserved, .. } = emptied.saving else { panic!("{:?}", emptied.saving) };
    let truth = highest("statistics_first_cured", Metric::Reserved);
    assert!(reserved.after.abs_diff(truth) <= truth / 50, "{reserved:?}, not {truth}");
    assert_not_found("fixtures/advice/statistics_first_cured.pickle.gz", RuleKind::ReleaseCache);
}

/// Requests to a server differ in length, which wastes 3 % of what is reserved.
#[test]
fn segments_that_grow_are_no_cure_for_little_waste() {
    assert_not_found("fixtures/advice/server.pickle.gz", RuleKind::FragmentationVarlen);
}

/// `Adam` and `AdamW` have the same frames, and no recording contains a dtype.
#[test]
fn code_leaves_open_what_a_recording_does_not_show() {
    let fused = found(&fixture("optpeak"), RuleKind::ForeachTemporaries);
    assert_eq!(fused.code, ["optimizer = torch.optim.Adam(parameters, ..., fused=True)  # or AdamW"]);
    let cast = found("fixtures/stories/temporary_cast_images_flawed/snapshot.pickle.gz", RuleKind::Temporary);
    assert!(cast.code[0].starts_with("x = x.to(dtype).sub_(mean)"), "{:?}", cast.code);
}

#[test]
fn mistakes_of_strangers_are_found() {
    if !Path::new(REAL).is_dir() {
        let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {REAL}");
        return skipped(&format!("there is no {REAL}; {REQUIRE_CORPUS}=1 makes that a failure"));
    }
    let own_optimizer = found(&format!("{REAL}/bcrafton-memory_snapshot.pickle.gz"), RuleKind::Temporary);
    assert_eq!(label(&own_optimizer), "optimizer.py:78 step");
    // A convolution's output, which only `relu` needs.
    let relu = found(&format!("{REAL}/HugePandaCoder-796241_my_snapshot.pickle.gz"), RuleKind::Temporary);
    assert_eq!(
        (label(&relu), relu.change.as_str()),
        ("Model_BasicNCA2D_fast.py:64 update", "call relu with inplace=True")
    );
    // Most memory belongs to a model that is moved: smaller inputs do not reduce it.
    let moved = open(&format!("{REAL}/ZidongLiu-memory.pickle.gz")).triage(&TriageOptions::default()).unwrap();
    let nothing = moved.devices[0].nothing.as_ref();
    assert!(matches!(nothing, Some(Nothing::Unknown { is_of_weights: true, .. })), "{nothing:?}");
    let cache = found(&format!("{REAL}/volcengine-verl_mem.pickle.gz"), RuleKind::InferenceCache);
    assert!(cache.evidence.starts_with("20.30 GiB of the 23.20 GiB allocated"), "{}", cache.evidence);
    assert!(matches!(cache.saving, Saving::NotSimulated { .. }), "{:?}", cache.saving);
    // Softmax is written with `exp` and `sum` here, in a separate function.
    let attention =
        found(&format!("{REAL}/Wedsonlin-medium_1024_training_memory_snapshot.pickle.gz"), RuleKind::AttentionMatrix);
    let Saving::Simulated { allocated, .. } = attention.saving else { panic!("{:?}", attention.saving) };
    assert!(allocated.by() > 9 << 30, "{allocated:?}");
}

/// The rollout keeps its observations in a list, and makes the next one after the call of the model: no cure frees them earlier.
#[test]
fn observations_that_a_rollout_stores_are_not_saved() {
    let cure = found("fixtures/advice/pixels.pickle.gz", RuleKind::RetainedGraph);
    assert_not_found("fixtures/advice/pixels_cured.pickle.gz", RuleKind::RetainedGraph);
    let recording = open("fixtures/advice/pixels_cured.pickle.gz");
    let devices = recording.devices();
    let history = devices.all()[0].history();
    let measured = |metric: Metric| history.maxima[metric as usize].bytes as u64;
    let savings = std::iter::once(&cure.saving).chain(cure.alternatives.iter().map(|other| &other.saving));
    for saving in savings {
        let Saving::Simulated { allocated, reserved, at_least: true, .. } = saving else { panic!("{saving:#?}") };
        assert!(allocated.after >= measured(Metric::Allocated) && allocated.after < allocated.before, "{saving:#?}");
        assert!(reserved.after >= measured(Metric::Reserved), "{saving:#?}");
    }
    assert_eq!(cure.alternatives.len(), 1);
}
