//! Categories and phases, compared with PyTorch's own objects.
#![cfg(feature = "cli")]

use crate::support::{
    Case, FIXTURES, assert_none, cases, corpus, corpus_cases, fixture, memviz, names, open, read_text,
};
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::attribution::{Attribution, Reason, Row};
use memviz::facts::time::when::When;
use memviz::facts::training::Category;
use memviz::replay::Metric;
use serde_json::Value;
use std::path::Path;

/// What the truth of a pair counts: key in `truth.json`, category.
const OWNED: [(&str, Category); 4] = [
    ("parameter", Category::Parameter),
    ("buffer", Category::Buffer),
    ("gradient", Category::Gradient),
    ("optimizer_state", Category::OptimizerState),
];

fn by(path: &str, by: GroupBy, metric: Metric, at: Option<When>) -> Vec<Attribution> {
    let options = PeakOptions::default().by(by).metric(metric).at(at);
    let report = open(path).peak(&options).unwrap_or_else(|error| panic!("{path}: {error}"));
    report.devices.into_iter().map(|device| device.attribution).collect()
}

/// What the only device holds at the end, by category, in requested bytes.
fn at_end(path: &str) -> Attribution {
    by(path, GroupBy::Category, Metric::Requested, Some(When::End)).remove(0)
}

fn held(attribution: &Attribution, category: Category) -> (u64, u64) {
    let row = attribution.rows.iter().find(|row| row.label == category.name());
    row.map_or((0, 0), |row| (row.bytes, row.blocks))
}

fn truth(case: &Case, name: &str) -> Option<(u64, u64)> {
    Some((case.truth[format!("{name}_bytes")].as_u64()?, case.truth[format!("{name}_storages")].as_u64()?))
}

/// Whether a recording starts after the model was created.
fn is_late(case: &Case) -> bool {
    case.truth["baseline_allocated"][0].as_u64() != Some(0)
}

/// The sums of `untyped_storage().nbytes()` at the end of the last step, to the byte and to the block.
#[test]
fn categories_sum_to_the_storages_of_model_and_optimizer() {
    let mut problems = Vec::new();
    let mut compared = 0;
    for case in cases(FIXTURES).iter().filter(|case| truth(case, "parameter").is_some() && !is_late(case)) {
        let attribution = at_end(&case.path);
        for (name, category) in OWNED {
            let (found, expected) = (held(&attribution, category), truth(case, name).unwrap());
            compared += 1;
            if found != expected {
                problems.push(format!("{} {name}: {found:?}, PyTorch has {expected:?}", case.name));
            }
        }
    }
    assert!(compared >= 40, "only {compared} sums");
    assert_none(&problems);
}

/// Parameters and optimizer states of a late recording have the same sizes and no stacks. Gradients are made in it.
#[test]
fn late_recordings_say_model_state_instead_of_guessing() {
    let late: Vec<Case> =
        cases(FIXTURES).into_iter().filter(|case| truth(case, "parameter").is_some() && is_late(case)).collect();
    assert!(!late.is_empty());
    for case in &late {
        let attribution = at_end(&case.path);
        let owned = |name| truth(case, name).unwrap();
        assert_eq!(held(&attribution, Category::Gradient), owned("gradient"), "{}", case.name);
        let open = owned("parameter").0 + owned("optimizer_state").0;
        assert!(held(&attribution, Category::ModelState).0 >= open, "{}", case.name);
        assert_eq!(held(&attribution, Category::Unknown), (0, 0), "{}", case.name);
    }
}

/// The storages of model and optimizer at the end, by category: requested bytes and number.
fn owners(truth: &Value) -> Option<[(Category, u64, u64); 4]> {
    let of = |name: &str, category| match &truth["owners_at_end"] {
        Value::Null => {
            Some((category, truth[format!("{name}_bytes")].as_u64()?, truth[format!("{name}_storages")].as_u64()?))
        }
        owners => {
            Some((category, owners[name]["bytes"].as_u64().unwrap_or(0), owners[name]["blocks"].as_u64().unwrap_or(0)))
        }
    };
    let all: Vec<_> = OWNED.into_iter().filter_map(|(name, category)| of(name, category)).collect();
    all.try_into().ok()
}

/// What contradicts the owners at the end: more of a category than there is.
fn contradictions(name: &str, path: &str, truth: &Value, problems: &mut Vec<String>) -> bool {
    let Some(owners) = owners(truth) else { return false };
    let mut found = [(0, 0); OWNED.len()];
    for attribution in by(path, GroupBy::Category, Metric::Requested, Some(When::End)) {
        for (place, (category, ..)) in owners.iter().enumerate() {
            let (bytes, blocks) = held(&attribution, *category);
            found[place] = (found[place].0 + bytes, found[place].1 + blocks);
        }
    }
    for ((category, bytes, blocks), found) in owners.into_iter().zip(found) {
        if found.0 > bytes || found.1 > blocks {
            problems.push(format!("{name}: {found:?} called {}, there are {:?}", category.name(), (bytes, blocks)));
        }
    }
    true
}

#[test]
fn no_category_contradicts_the_owners() {
    let mut problems = Vec::new();
    let all = cases(FIXTURES);
    let compared = all.iter().filter(|case| contradictions(&case.name, &case.path, &case.truth, &mut problems)).count();
    assert!(compared >= 13, "only {compared} recordings");
    assert_none(&problems);
}

/// Recordings next to the corpus: predictions with their truth, and single-file models as people record them.
#[test]
fn no_category_contradicts_the_owners_next_to_the_corpus() {
    if corpus().is_none() {
        return;
    }
    let (mut problems, mut compared) = (Vec::new(), 0);
    for folder in ["../shared/corpus", "../shared/whatif", "../shared/lookalike"] {
        for name in names(folder) {
            let (path, truth) = (format!("{folder}/{name}/snapshot.pickle.gz"), format!("{folder}/{name}/truth.json"));
            if !Path::new(&path).is_file() || !Path::new(&truth).is_file() {
                continue;
            }
            let truth: Value = serde_json::from_str(&read_text(&truth)).unwrap();
            compared += u32::from(contradictions(&name, &path, &truth, &mut problems));
        }
    }
    assert!(compared >= 140, "only {compared} recordings");
    assert_none(&problems);
}

/// One step after two warm-up steps. Moments that are allocated anew can be distinguished from parameters; if everything
/// changes in place, nothing can.
#[test]
fn one_late_step_distinguishes_parameters_from_states() {
    if corpus().is_none() {
        return;
    }
    let mut seen = 0;
    for name in names("../shared/lookalike").into_iter().filter(|name| name.starts_with("cs336_one_")) {
        let folder = format!("../shared/lookalike/{name}");
        let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth.json"))).unwrap();
        let attribution = at_end(&format!("{folder}/snapshot.pickle.gz"));
        let bytes = |category| held(&attribution, category).0;
        let owned = |name: &str| truth["owners_at_end"][name]["bytes"].as_u64().unwrap();
        let both = owned("parameter") + owned("optimizer_state");
        if name.contains("inplace") {
            assert_eq!(bytes(Category::ModelState), both, "{name}");
        } else {
            let told = bytes(Category::Parameter) + bytes(Category::OptimizerState);
            assert!(told * 10 >= both * 8, "{name}: {told} of {both}");
        }
        assert_eq!(bytes(Category::Unknown), 0, "{name}");
        seen += 1;
    }
    assert!(seen >= 15, "only {seen}");
}

/// What `minigpt.py` owns, counted from its source.
fn gpt_parameters(config: &Value) -> u64 {
    let [vocab, dim, layers, ctx] = ["vocab", "dim", "layers", "ctx"].map(|key| config[key].as_u64().unwrap());
    let linear = |inputs, outputs| inputs * outputs + outputs;
    let block = 4 * dim + linear(dim, 3 * dim) + linear(dim, dim) + linear(dim, 4 * dim) + linear(4 * dim, dim);
    4 * (vocab * dim + ctx * dim + layers * block + 2 * dim + dim * vocab)
}

#[test]
fn every_release_shows_what_the_gpt_owns() {
    for name in
        ["gpt_train", "gpt_train_t201", "gpt_train_t231", "gpt_train_t215", "gpt_train_ckpt", "gpt_train_ckpt_t201"]
    {
        let case = cases(FIXTURES).into_iter().find(|case| case.name == name).unwrap();
        let model = &case.truth["model"];
        let parameters = gpt_parameters(model);
        let attribution = at_end(&case.path);
        let bytes = |category| held(&attribution, category).0;
        assert_eq!(bytes(Category::Parameter), parameters, "{name}");
        assert_eq!(bytes(Category::Gradient), parameters, "{name}");
        // AdamW has two states for each.
        assert_eq!(bytes(Category::OptimizerState), 2 * parameters, "{name}");
        let (layers, ctx) = (model["layers"].as_u64().unwrap(), model["ctx"].as_u64().unwrap());
        assert_eq!(bytes(Category::Buffer), layers * ctx * ctx * 4, "{name}: masks");
        assert_eq!(bytes(Category::Unknown), 0, "{name}");
    }
}

/// `resnet_train`: SGD with momentum, batch normalization. Sizes of gradients, states and parameters mirror each other.
#[test]
fn gradients_and_momentum_mirror_parameters() {
    let attribution = at_end(&fixture("resnet_train"));
    let parameters = held(&attribution, Category::Parameter);
    assert_eq!(parameters.1, 161, "ResNet-50 has 161 parameters");
    assert_eq!(held(&attribution, Category::Gradient), parameters);
    assert_eq!(held(&attribution, Category::OptimizerState), parameters);
    assert_eq!(held(&attribution, Category::Buffer).1, 53 * 3, "mean, variance and count of 53 normalizations");
}

/// The same program with and without `record_function` ranges.
#[test]
fn annotations_do_not_change_the_answer() {
    for (plain, annotated) in [("encoder", "encoder_ann"), ("unet", "unet_ann")] {
        let rows = |name: &str| -> Vec<(String, u64, u64)> {
            let attribution = by(&fixture(name), GroupBy::Category, Metric::Allocated, None).remove(0);
            attribution.rows.into_iter().map(|row| (row.label, row.bytes, row.blocks)).collect()
        };
        assert_eq!(rows(plain), rows(annotated));
    }
}

/// The result of PyTorch's memory profiler for the same run equals the timeline.
#[test]
fn timelines_keep_their_categories() {
    for release in ["", "_t215", "_t231"] {
        let path = format!("fixtures/traces/profiler_traces{release}/fake_cuda_modules.timeline.raw.json.gz");
        let sites = by(&path, GroupBy::Site, Metric::Allocated, None).remove(0);
        let categories = by(&path, GroupBy::Category, Metric::Allocated, None).remove(0);
        for category in Category::ALL {
            let own = |label: &str| {
                label == category.name() || (category == Category::Temporary && label == "autograd_detail")
            };
            let recorded: u64 = sites.rows.iter().filter(|row| own(&row.label)).map(|row| row.bytes).sum();
            assert_eq!(held(&categories, category).0, recorded, "{path} {}", category.name());
        }
        assert!(categories.rows.iter().all(|row| !row.inferred), "{path}: it is in the file");
    }
}

/// `oom_forward` dies in forward, `oom` in backward.
#[test]
fn memory_has_categories_at_an_oom() {
    let forward = by(&fixture("oom_forward"), GroupBy::Category, Metric::Allocated, Some(When::Oom)).remove(0);
    let largest = &forward.rows[0];
    assert_eq!(largest.label, "activation");
    assert!(largest.bytes > 6 << 30, "{}", largest.bytes);
    let backward = by(&fixture("oom"), GroupBy::Category, Metric::Allocated, Some(When::Oom)).remove(0);
    assert_eq!(backward.rows[0].label, "activation");
    assert!(backward.rows.iter().all(|row| row.label != "unknown"), "{:?}", backward.rows);
}

/// A leak is not a batch, and there is no evidence for its category.
#[test]
fn a_leak_is_unknown() {
    let attribution = at_end(&fixture("leak_slow"));
    let (bytes, _) = held(&attribution, Category::Unknown);
    // One tensor of 3 MiB in each of 40 steps; those of the last two may still be batches.
    assert_eq!(bytes % (3 << 20), 0);
    assert!(bytes >= 38 * (3 << 20), "{bytes}");
}

/// Without a backward pass, what a forward leaves may be a cache or a result.
#[test]
fn inference_has_parameters_and_temporaries() {
    let peak = by(&fixture("infer"), GroupBy::Category, Metric::Requested, None).remove(0);
    let case = cases(FIXTURES).into_iter().find(|case| case.name == "infer").unwrap();
    assert_eq!(Some(held(&peak, Category::Parameter)), truth(&case, "parameter"));
    assert!(held(&peak, Category::Temporary).0 > 0);
    for never in [Category::Activation, Category::Gradient, Category::OptimizerState] {
        assert_eq!(held(&peak, never), (0, 0), "{}", never.name());
    }
}

/// A forward without a backward pass keeps the keys and the values of each of its six layers: 16 times 256 tokens of width 256.
#[test]
fn keys_and_values_of_a_single_forward_are_a_cache() {
    let path = "fixtures/stories/healthy_prefill/snapshot.pickle.gz";
    let peak = by(path, GroupBy::Category, Metric::Requested, None).remove(0);
    // At the peak, in the last layer, all of them are there.
    assert_eq!(held(&peak, Category::KvCache), (6 * 2 * 16 * 256 * 256 * 4, 12));
    // Hidden states that a model returns are one block of each layer.
    for path in ["fixtures/stories/healthy_autoencoder/snapshot.pickle.gz".to_owned(), fixture("infer")] {
        let peak = by(&path, GroupBy::Category, Metric::Requested, None).remove(0);
        assert_eq!(held(&peak, Category::KvCache), (0, 0), "{path}");
    }
}

fn check_sums(path: &str, problems: &mut Vec<String>) {
    let recording = open(path);
    let sum = |row: &Row, value: fn(&Reason) -> u64| row.evidence.iter().map(value).sum::<u64>();
    for by in [GroupBy::Category, GroupBy::Phase] {
        for at in [None, Some(When::End)] {
            let Ok(report) = recording.peak(&PeakOptions::default().by(by).at(at)) else {
                assert_eq!(by, GroupBy::Phase, "{path} tells nothing of phases, but always of categories");
                continue;
            };
            for attribution in report.devices.into_iter().map(|device| device.attribution) {
                let rows: u64 = attribution.rows.iter().map(|row| row.bytes).sum();
                if rows != attribution.total_bytes {
                    problems.push(format!("{path}: {rows} by {}, of {}", by.name(), attribution.total_bytes));
                }
                for row in attribution.rows.iter().filter(|_| by == GroupBy::Category) {
                    let explained = (sum(row, |reason| reason.bytes), sum(row, |reason| reason.blocks));
                    if explained != (row.bytes, row.blocks) {
                        problems.push(format!("{path}: the evidence of {} does not add up", row.label));
                    }
                }
            }
        }
    }
}

#[test]
fn rows_and_their_evidence_add_up() {
    let mut problems = Vec::new();
    for case in cases(FIXTURES).iter().filter(|case| case.name != "big_1m") {
        check_sums(&case.path, &mut problems);
    }
    assert_none(&problems);
}

#[test]
fn rows_and_their_evidence_add_up_across_the_corpus() {
    let Some(cases) = corpus_cases() else { return };
    let mut problems = Vec::new();
    for case in cases.iter().filter(|case| !case.name.starts_with("big_")) {
        check_sums(&case.path, &mut problems);
    }
    assert_none(&problems);
}

/// Phases of `info` cover every entry and all of the time.
#[test]
fn info_divides_the_recording_into_phases() {
    let mut problems = Vec::new();
    for case in cases(FIXTURES).iter().filter(|case| case.name != "big_1m") {
        let answer = memviz(&["info", "--format", "json", &case.path]).json();
        for device in answer["devices"].as_array().unwrap() {
            let phases = device["phases"].as_array().unwrap();
            let entries: u64 = phases.iter().map(|phase| phase["entries"].as_u64().unwrap()).sum();
            if Some(entries) != device["entries"].as_u64() {
                problems.push(format!("{}: {entries} entries in phases of {}", case.name, device["entries"]));
            }
            let time: i64 = phases.iter().filter_map(|phase| phase["time_us"].as_i64()).sum();
            let ends = device["first_time_us"].as_i64().zip(device["last_time_us"].as_i64());
            if let Some((first, last)) = ends
                && time != last - first
            {
                problems.push(format!("{}: {time} us in phases of {}", case.name, last - first));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn info_counts_the_passes_of_a_training() {
    // Micro batches of `mlp_accumulate`: two forwards and backwards to an optimizer step.
    for (name, steps, passes, recorded) in [
        ("encoder", 3, 3, false),
        ("encoder_ann", 3, 3, true),
        ("gpt_train_t201", 4, 4, false),
        ("mlp_accumulate", 3, 6, false),
    ] {
        let answer = memviz(&["info", "--format", "json", &fixture(name)]).json();
        let device = &answer["devices"][0];
        assert_eq!(device["steps"], steps, "{name}");
        let phase = |phase: &str| {
            let phases = device["phases"].as_array().unwrap();
            phases.iter().find(|row| row["phase"] == phase).unwrap_or_else(|| panic!("{name} has no {phase}")).clone()
        };
        for pass in ["forward", "backward"] {
            assert_eq!(phase(pass)["times"], passes, "{name} {pass}");
            let all = phase(pass)["recorded_entries"] == phase(pass)["entries"];
            assert_eq!(all, recorded, "{name} {pass}");
        }
        assert_eq!(phase("optimizer")["times"], steps, "{name}");
    }
}

#[test]
fn segments_have_no_category() {
    let path = fixture("tiny");
    for command in ["peak", "flamegraph"] {
        let run = memviz(&[command, "--by", "category", "--metric", "reserved", &path, "-o", "-"]);
        run.expect_error("segments have no category");
    }
    memviz(&["peak", "--by", "phase", "--metric", "reserved", &fixture("encoder")]).expect(0);
}

/// A flame graph that is split by category holds what the rows do.
#[test]
fn flame_graphs_are_split_by_category() {
    let path = fixture("encoder");
    let folded = memviz(&["flamegraph", "--by", "category", "--format", "folded", &path]);
    let rows = by(&path, GroupBy::Category, Metric::Allocated, None).remove(0).rows;
    for row in rows {
        let own = folded.stdout.lines().filter(|line| line.split(';').next() == Some(&row.label));
        let bytes = |line: &str| line.rsplit(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()).unwrap();
        assert_eq!(own.map(bytes).sum::<u64>(), row.bytes, "{}", row.label);
    }
}

#[test]
fn the_evidence_is_in_the_json() {
    let answer = memviz(&["peak", "--by", "category", "--format", "json", &fixture("encoder")]).json();
    let rows = answer["devices"][0]["attribution"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["label"] == "parameter").unwrap();
    assert_eq!(row["evidence"][0]["reason"], "nn.Module._apply moved it to the device");
    assert_eq!(row["evidence"][0]["bytes"], row["bytes"]);
    assert_eq!(row["inferred"], true);
}

#[test]
fn answers_do_not_depend_on_threads() {
    for group in ["category", "phase"] {
        let answer =
            |threads| memviz(&["peak", "--by", group, "--format", "json", "--threads", threads, &fixture("multi_gpu")]);
        assert_eq!(answer("1"), answer("8"));
    }
}
