//! `memviz fit`: its arguments and their effects.
#![cfg(feature = "cli")]

use crate::support::{fixture, memviz};

const BATCH_4: &str = "fixtures/fit/minigpt_batch4/snapshot.pickle.gz";
const BATCH_8: &str = "fixtures/fit/minigpt_batch8/snapshot.pickle.gz";
const BATCH_16: &str = "fixtures/fit/minigpt_batch16/snapshot.pickle.gz";

const OOM: &str = "fixtures/families/oom_bert_fp16_60/snapshot.pickle.gz";
const FINISHES: &str = "fixtures/families/b_bert_fp16_08/snapshot.pickle.gz";
const RESNET: &str = "fixtures/snapshots/resnet_train/snapshot.pickle.gz";

#[test]
fn parameters_are_read_from_file_names_or_vary() {
    for args in [&[BATCH_4, BATCH_8] as &[&str], &[BATCH_8, BATCH_4, "--vary", "batch=8,4"]] {
        let answer = memviz(&[&["fit", "--format", "json", "--at", "batch=16"], args].concat()).json();
        let scaling = &answer["devices"][0]["scaling"];
        assert_eq!(scaling["parameter"], "batch");
        assert_eq!(scaling["points"], serde_json::json!([4, 8]));
        let values: Vec<u64> =
            scaling["predictions"].as_array().unwrap().iter().map(|it| it["value"].as_u64().unwrap()).collect();
        assert_eq!(values, [4, 8, 16]);
    }
}

#[test]
fn a_third_recording_checks_the_others() {
    let answer = memviz(&["fit", BATCH_4, BATCH_8, BATCH_16, "--format", "json"]).json();
    let check = &answer["devices"][0]["scaling"]["check"];
    assert_eq!((check["value"].as_u64(), check["allocated_difference_bytes"].as_i64()), (Some(16), Some(0)));
    assert_eq!(check["reserved_difference_bytes"], 0);
}

#[test]
fn mistakes_are_named() {
    let tiny = fixture("tiny");
    for (args, parts) in [
        (&[BATCH_4] as &[&str], &["--capacity 24GiB"] as &[&str]),
        (&[BATCH_4, "--at", "16"], &["two or three recordings for --at", "found 1"]),
        (&[BATCH_4, BATCH_8, BATCH_16, BATCH_8], &["two or three recordings", "found 4"]),
        (&[BATCH_4, &tiny], &["--vary NAME=N,N", "differ in one number"]),
        (&[BATCH_4, BATCH_8, "--vary", "batch=4"], &["--vary", "2 in total", "found 1"]),
        (&[BATCH_4, BATCH_8, "--vary", "4,8"], &["batch=4,8"]),
        (&[BATCH_4, BATCH_8, "--vary", "batch=4,4"], &["a different batch", "4,4"]),
        (&[BATCH_4, BATCH_8, "--vary", "batch=0,4"], &["from 1 to", "0,4"]),
        (&[BATCH_4, BATCH_8, "--vary", "batch=4,8", "--at", "seq=16"], &["--at", "batch=N", "seq"]),
        (&[BATCH_4, BATCH_8, "--at", "0"], &["above 0"]),
        (&[BATCH_4, BATCH_8, "--tokens", "64"], &["--capacity or --gpu", "--tokens"]),
        (&[BATCH_4, BATCH_8, "--context", "1GiB"], &["--capacity"]),
        (
            &[BATCH_4, BATCH_8, "--gpu", "h100"],
            &["expected one of h100-80gb, or the path of a profiler trace, found \"h100\""],
        ),
        (&[BATCH_4, BATCH_8, "--gpu", BATCH_4], &["--gpu", "expected an object"]),
        (&[BATCH_4, BATCH_8, "--gpu", "t4", "--capacity", "4GiB"], &["--gpu", "--capacity"]),
        (&[OOM, RESNET], &["not of the same program", "entry"]),
        (&[OOM, FINISHES, "--top", "3"], &["finish for --top"]),
        (&[BATCH_4, "--vary", "batch=4", "--capacity", "4GiB"], &["two or three recordings", "--capacity"]),
        (&[BATCH_4, "--vary", "batch=0"], &["from 1 to", "found 0"]),
        (&[BATCH_4, BATCH_8, "--alloc-conf", "frob:1"], &["--alloc-conf", "frob"]),
        (&["-", "-", "--vary", "batch=4,8"], &["one input from standard input"]),
        (&[BATCH_4, BATCH_8, "--device", "7"], &["recorded devices (0), found 7"]),
    ] {
        let run = memviz(&[&["fit"], args].concat());
        run.expect(2);
        assert_eq!(run.stdout, "", "{args:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {}", run.stderr);
        for part in parts {
            assert!(run.stderr.contains(part), "{args:?} does not mention {part:?}: {}", run.stderr);
        }
    }
}

/// A device may have less memory than CUDA is assumed to use: `--context` is named only where another value could help.
#[test]
fn a_device_smaller_than_the_assumed_context_says_what_is_too_much() {
    for (name, capacity, part) in [
        (
            "gpt_late",
            "400MiB",
            "no plan: the recording starts with 921.95 MiB allocated, more than the 400.00 MiB of the device",
        ),
        (
            "expandable_live",
            "400MiB",
            "needs 4.22 GiB, but the device has 400.00 MiB, and memviz assumes that CUDA itself uses 500.00 MiB;",
        ),
        ("encoder_late", "400MiB", "memviz assumes that CUDA itself uses 500.00 MiB; --context sets that amount"),
        ("tiny", "500MiB", "the device has 500.00 MiB, and memviz assumes that CUDA itself uses 500.00 MiB; --context"),
    ] {
        let run = memviz(&["fit", &fixture(name), "--capacity", capacity]);
        run.expect(0);
        assert!(run.stdout.contains(part), "{name}: {}", run.stdout);
    }
}

#[test]
fn formats_agree_about_the_largest() {
    let options = ["--capacity", "4GiB", "--context", "450MiB"];
    let fit = |format| memviz(&[&["fit", BATCH_4, BATCH_8, "--format", format], &options[..]].concat()).stdout;
    assert!(fit("text").contains("batch 56 is the largest value that fits in"), "{}", fit("text"));
    assert!(fit("markdown").contains("batch 56 is the largest value that fits in"));
    assert!(fit("svg").contains("batch 56 is the largest value that fits in"));
    let rows = fit("csv");
    let finishes = |value: u64| {
        let row = rows.lines().find(|line| line.starts_with(&format!("0,batch,{value},")));
        row.is_some_and(|row| row.split(',').nth(6) == Some("true"))
    };
    assert!(finishes(56) && !finishes(57), "{rows}");
}

#[test]
fn a_value_far_from_the_recorded_ones_says_how_to_verify_it() {
    let text = memviz(&["fit", BATCH_4, BATCH_8, "--capacity", "80GiB"]).expect(0).stdout.clone();
    let headline = text.lines().next().unwrap();
    for part in ["the largest value of batch that fits in", "is about", "far from the recorded 8", "with batch="] {
        assert!(headline.contains(part), "{headline}");
    }
}

#[test]
fn rows_say_whether_they_fit() {
    let fits = |capacity: &str| -> Vec<String> {
        let text = memviz(&["fit", BATCH_4, "--capacity", capacity]).expect(0).stdout.clone();
        let rows = text.lines().skip_while(|line| !line.contains("recompute fits")).skip(1);
        let rows = rows.take_while(|line| line.contains(" MiB") || line.contains(" GiB"));
        rows.map(|row| if row.contains("  yes ") { "yes" } else { "no" }.to_owned()).collect()
    };
    assert_eq!(fits("80GiB"), ["yes"]);
    let with_plans = fits("900MiB");
    assert!(with_plans.len() > 1 && with_plans[0] == "no", "{with_plans:?}");
    assert!(with_plans[1..].iter().all(|fits| fits == "yes"), "{with_plans:?}");
    assert_eq!(fits("520MiB"), ["no", "no"], "the unchanged program, and the closest plan");
}

#[test]
fn recordings_of_different_programs_are_refused() {
    let answer = memviz(&["fit", BATCH_4, &fixture("resnet_train"), "--vary", "batch=4,8", "--format", "json"]).json();
    let device = &answer["devices"][0];
    let refused = device["refused"].as_str().unwrap();
    assert!(refused.contains("too little in common") && refused.contains("entry"), "{refused}");
    assert_eq!(device["scaling"]["predictions"], serde_json::json!([]));
}

#[test]
fn a_single_recording_is_made_to_fit() {
    let fit = |capacity, format| memviz(&["fit", BATCH_8, "--capacity", capacity, "--format", format]);
    let search = |capacity| fit(capacity, "json").json()["devices"][0]["search"].clone();
    let [small, large, tiny] = ["900MiB", "4GiB", "520MiB"].map(search);
    assert_eq!((&large["fits"], &large["plans"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(small["fits"], false);
    let plan = &small["plans"][0];
    assert_eq!(plan["changes"][0]["change"], "optimizer:adam8bit");
    assert!(plan["changes"][1]["code"].as_str().unwrap().contains("torch.utils.checkpoint.checkpoint"));
    assert_eq!(tiny["plans"], serde_json::json!([]));
    let needs = tiny["nearest"]["needs_bytes"].as_u64().unwrap();
    assert_eq!(tiny["missing_bytes"].as_u64().unwrap(), needs - tiny["goal_bytes"].as_u64().unwrap());
    let rows = fit("900MiB", "csv").stdout;
    assert_eq!(rows.lines().count(), 2 + small["plans"].as_array().unwrap().len(), "{rows}");
    assert!(fit("900MiB", "markdown").stdout.contains("fits with optimizer:adam8bit"));
}

#[test]
fn a_gpu_means_its_memory_and_answers_name_the_context() {
    let context = 500 << 20;
    for args in [&["fit", BATCH_4, BATCH_8] as &[&str], &["fit", BATCH_8], &["simulate", BATCH_8]] {
        let answer = |format| memviz(&[args, &["--gpu", "T4", "--format", format]].concat());
        let device = answer("json").json()["devices"][0].clone();
        assert_eq!(device["context_bytes"], context, "{args:?}");
        let total = device["capacity_bytes"].as_u64().unwrap() + context;
        assert_eq!(total, 14_914 << 20, "{args:?}");
        for format in ["text", "markdown"] {
            let said = answer(format).stdout;
            assert!(said.contains("outside PyTorch's allocator: 500.00 MiB of 14.56 GiB (assumed"), "{args:?}: {said}");
        }
        let given = memviz(&[args, &["--gpu", "T4", "--context", "500MiB"]].concat()).stdout;
        assert!(given.contains("500.00 MiB of 14.56 GiB") && !given.contains("assumed; set it"), "{args:?}: {given}");
    }
    let unnamed = memviz(&["simulate", BATCH_8, "--format", "json"]).json();
    assert!(unnamed["devices"][0]["context_bytes"].is_null());
}

#[test]
fn a_profiler_trace_names_the_device() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
    let answer = memviz(&["fit", BATCH_8, "--gpu", trace, "--format", "json"]).json();
    let device = &answer["devices"][0];
    let total = device["capacity_bytes"].as_u64().unwrap() + device["context_bytes"].as_u64().unwrap();
    assert_eq!(total, 85_899_345_920, "totalGlobalMem of the trace");
}

#[test]
fn a_recording_that_finishes_completes_one_that_ran_out_of_memory() {
    for inputs in [[OOM, FINISHES], [FINISHES, OOM]] {
        let answer = |format| memviz(&["fit", inputs[0], inputs[1], "--format", format]);
        let json = answer("json").json();
        assert_eq!(json["inputs"].as_array().unwrap().len(), 2);
        let device = &json["devices"][0];
        // The device of the failed recording has 816 MiB, of which CUDA used 470 MiB there: no assumption is subtracted.
        assert!(device["context_bytes"].is_null());
        let search = &device["search"];
        assert_eq!(search["fits"], false);
        assert!(search["as_it_is"]["needs_bytes"].as_u64() > search["goal_bytes"].as_u64());
        assert!(!search["plans"].as_array().unwrap().is_empty(), "{search}");
        assert!(answer("text").stdout.contains("the other run ran out of memory"));
    }
}

#[test]
fn a_single_recording_gives_a_marked_range() {
    let fit = |format| memviz(&["fit", BATCH_4, "--vary", "batch=4", "--at", "16", "--format", format]);
    let answer = fit("json").json();
    let predictions = answer["devices"][0]["scaling"]["predictions"].as_array().unwrap().clone();
    let [recorded, predicted] = &predictions[..] else { panic!("{predictions:?}") };
    assert_eq!((&recorded["value"], &recorded["recorded"]), (&4.into(), &true.into()));
    assert_eq!((&predicted["value"], &predicted["trust"]), (&16.into(), &"uncertain".into()));
    let measured = memviz(&["fit", BATCH_8, BATCH_16, "--format", "json"]).json();
    let measured = &measured["devices"][0]["scaling"]["recorded"][1];
    for (range, truth) in
        [("max_allocated_bytes_range", "max_allocated_bytes"), ("max_reserved_bytes_range", "max_reserved_bytes")]
    {
        let end = |at: usize| predicted[range][at].as_u64().unwrap();
        let truth = measured[truth].as_u64().unwrap();
        assert!((end(0)..=end(1)).contains(&truth), "{range}: {} to {} without {truth}", end(0), end(1));
    }
    assert!(fit("text").stdout.contains("in proportion"), "{}", fit("text").stdout);
}
