//! Answers that fit a terminal, and what `--all` adds; that text and picture show the same instant; and verdicts of first screens.
#![cfg(feature = "cli")]

use crate::support::{fixture, memviz, memviz_reading, open, skipped, stranger};
use memviz::analysis::advice::Simulate;
use memviz::analysis::fragmentation::FragmentationOptions;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::oom::OomOptions;
use memviz::report::{Answer, Source, TextStyle};
use serde_json::{Value, json};

/// Lines that `leaks`, `fragmentation` and `oom` may take on 80 columns.
const SCREEN: usize = 34;
const TRACE: &str = "fixtures/traces/profiler_traces/cpu.trace.json.gz";

/// The text of three commands about a recording, on 80 columns.
fn texts(name: &str, all: bool) -> [(&'static str, String); 3] {
    let path = fixture(name);
    let recording = open(&path);
    let source = Source { path: &path, recording: &recording };
    let style = TextStyle { width: Some(80), advice: true, all, ..TextStyle::default() };
    let leaks = LeakOptions::default().cures(Some(Simulate::All)).cures_of_growth(true);
    let oom = OomOptions::default().plans(true).cures(Some(Simulate::All)).cures_of_failures(true);
    let fragmentation = FragmentationOptions::default().simulate(true);
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    recording.leaks(&leaks).unwrap().text(source, style, &mut out[0]).unwrap();
    recording.fragmentation(&fragmentation).unwrap().text(source, style, &mut out[1]).unwrap();
    recording.oom(&oom).unwrap().text(source, style, &mut out[2]).unwrap();
    let [leaks, fragmentation, oom] = out.map(|text| String::from_utf8(text).unwrap());
    [("leaks", leaks), ("fragmentation", fragmentation), ("oom", oom)]
}

#[test]
fn answers_fit_a_screen_and_all_shows_the_rest() {
    for name in ["fragmented", "leak", "oom", "oom_caught"] {
        let full = texts(name, true);
        for ((command, text), (_, all)) in texts(name, false).into_iter().zip(full) {
            let lines = text.lines().count();
            assert!(lines <= SCREEN, "{command} {name}: {lines} lines\n{text}");
            assert!(!all.contains("--all shows"), "{command} {name}\n{all}");
            if all.lines().count() > lines {
                assert!(text.contains("--all shows"), "{command} {name}\n{text}");
            }
        }
    }
}

/// The bytes in front of a line's label, which all rows of a table have in one unit.
fn rows(text: &str, title: &str) -> Vec<(f64, String)> {
    let table = text.split(title).nth(1).unwrap_or_else(|| panic!("{title}\n{text}"));
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .map_while(|words| Some((words.first()?.trim_start_matches('<').parse().ok()?, (*words.get(1)?).to_owned())))
        .collect()
}

#[test]
fn rows_have_one_unit_and_sum_to_the_total_however_many_are_shown() {
    for all in [false, true] {
        let [_, _, (_, text)] = texts("oom", all);
        let rows = rows(&text, "What holds the memory, by site\n");
        let (total, parts) = rows.split_last().unwrap();
        assert!(parts.len() >= 4 && rows.iter().all(|(_, unit)| unit == "GiB"), "{rows:?}\n{text}");
        let sum: f64 = parts.iter().map(|(bytes, _)| bytes).sum();
        assert!((sum - total.0).abs() < 0.006 * parts.len() as f64, "{rows:?}");
    }
}

#[test]
fn stacks_leave_out_frames_between_a_module_and_its_forward() {
    let leak = fixture("leak");
    let text = memviz(&["leaks", &leak, "--all"]).expect(0).stdout.clone();
    assert!(text.contains("torch/nn/modules/linear.py") && !text.contains("_call_impl"), "{text}");
    let frames = memviz(&["leaks", &leak, "--all", "--all-frames"]);
    assert!(frames.expect(0).stdout.contains("torch/nn/modules/module.py:1790 _call_impl"));
}

#[test]
fn text_and_picture_of_fragmentation_show_the_same_instant() {
    for (name, why) in
        [("gpt_train", "where the most memory is inactive"), ("fragmented", "at the first failed request")]
    {
        let path = fixture(name);
        let text = memviz(&["fragmentation", &path]).expect(0).stdout.clone();
        let place = text.split(&format!("({why}, ")).nth(1).unwrap_or_else(|| panic!("{text}"));
        let entry = place.split([' ', ',']).nth(1).unwrap();
        let picture = memviz(&["fragmentation", &path, "--format", "svg"]).expect(0).stdout.clone();
        assert!(
            picture.contains(&format!("entry {entry} ")) || picture.contains(&format!("entry {entry},")),
            "{entry}"
        );
    }
}

#[test]
fn fixes_that_need_a_person_say_why() {
    let story = "fixtures/stories/attention_matrix_masked_flawed";
    let run = memviz(&["fix", &format!("{story}/snapshot.pickle.gz"), "--source", story]);
    assert!(!run.stdout.contains("writes no diff"), "{}", run.stdout);
    assert!(run.stdout.contains(": make it by hand, with the lines of code below"), "{}", run.stdout);
}

#[test]
fn a_first_screen_leads_to_fix_if_a_fix_can_be_written() {
    let story = "fixtures/stories/eval_without_no_grad_gpt2_flawed/snapshot.pickle.gz";
    assert!(memviz(&[story]).expect(0).stdout.contains(&format!("memviz fix {story} --source .")));
    assert!(!memviz(&[&fixture("tiny")]).expect(0).stdout.contains("memviz fix"));
}

#[test]
fn fit_and_sweep_say_how_they_differ() {
    let path = "fixtures/families/oom_moe_85/snapshot.pickle.gz";
    let fit = memviz(&["fit", path]).stdout;
    assert!(fit.contains("simulates only what was recorded, up to the failed request"), "{fit}");
    let sweep = memviz(&["simulate", path, "--sweep"]).stdout;
    assert!(sweep.contains("the whole step may need more: memviz fit FILE"), "{sweep}");
}

#[test]
fn leaks_lead_to_the_variables_that_keep_them() {
    let path = "fixtures/holders/collected.pickle.gz";
    let text = memviz(&["leaks", path]).stdout;
    assert!(text.contains(&format!("memviz peak {path} --by holder")), "{text}");
    assert!(!memviz(&["leaks", &fixture("leak")]).stdout.contains("--by holder"));
}

#[test]
fn whether_checkpoints_suffice_is_unknown_without_a_simulation() {
    let answer = memviz(&["checkpoint", TRACE, "--fit", "1GiB", "--format", "json"]).json();
    assert_eq!(answer["devices"][0]["fit"]["fits"], Value::Null, "{answer}");
    let known = memviz(&["checkpoint", &fixture("gpt_train"), "--fit", "3GiB", "--format", "json"]).json();
    assert_eq!(known["devices"][0]["fit"]["fits"], false);
}

#[test]
fn an_imbalance_is_the_verdict() {
    let text = memviz(&[&fixture("multi_gpu")]).expect(0).stdout.clone();
    assert!(text.starts_with("The devices differ: device 1 holds the most (2.84 GiB"), "{text}");
    assert_eq!(text.matches("1.00 GiB").count(), 1, "the verdict names device 0: {text}");
}

#[test]
fn a_few_bytes_of_the_cpu_are_no_verdict() {
    let memory = |bytes: i64, total: i64| {
        json!({"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 10 + total,
            "args": {"Device Type": 0, "Device Id": -1, "Addr": 4096, "Bytes": bytes, "Total Allocated": total, "Total Reserved": 0}})
    };
    let trace = json!({"schemaVersion": 1, "traceEvents": [memory(8, 8), memory(-8, 0)]}).to_string();
    let text = memviz_reading(&["-"], trace.as_bytes()).stdout;
    assert!(text.starts_with("No GPU memory was recorded, and next to no CPU memory: 8 bytes at its peak\n"), "{text}");
    assert!(!text.contains('█'), "it has no chart: {text}");
}

#[test]
fn a_profile_of_one_instant_says_once_that_it_has_no_history() {
    let Some(path) = stranger("JAX-DIPS-memory.prof") else { return skipped("the corpus has no JAX profile") };
    let text = memviz(&[&path]).stdout.to_lowercase();
    assert_eq!(text.matches("no history").count(), 1, "{text}");
}
