//! Leaks: verdicts on programs that do one thing, and on recordings with known leaks.

mod nested;
mod program;
mod verdicts;

use crate::support::{self, CORPUS, cases, corpus, fixture, open};
use memviz::Recording;
use memviz::analysis::leaks::growth::Verdict;
use memviz::analysis::leaks::{DeviceLeaks, LeakOptions, LeakReport};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

fn leaks(recording: &Recording) -> LeakReport {
    recording.leaks(&LeakOptions::default()).unwrap()
}

fn only(mut report: LeakReport) -> DeviceLeaks {
    assert_eq!(report.devices.len(), 1);
    report.devices.remove(0)
}

/// `leak` keeps 20 losses with their graphs. The size of a graph follows from the model: 4 layers of width 256, batches of 4
/// times 256 tokens, 8000 words, four bytes per number.
#[test]
fn leak_equals_the_memory_of_the_graphs() {
    let tokens = 4 * 256;
    let hidden = tokens * 256 * 4;
    let scores = 4 * 4 * 256 * 256 * 4;
    for name in ["leak", "leak_t231", "leak_t201"] {
        let device = only(leaks(&open(&fixture(name))));
        assert_eq!(device.step_count(), 20, "{name}");
        assert_eq!(device.steps.as_ref().unwrap().source.is_inferred(), name != "leak", "{name}");
        assert_eq!(device.rows[0].verdict, Verdict::Leak, "{name}");
        let rate = |label: &str| {
            let row = device.rows.iter().find(|row| row.label == label);
            let row = row.unwrap_or_else(|| panic!("{name} has no row {label}"));
            assert_eq!(row.verdict, Verdict::Leak, "{name} {label}");
            (row.rate.bytes, row.rate.blocks)
        };
        // The scores of all words as log-probabilities, the loss, and the weight by which it was divided.
        assert_eq!(rate("minigpt.py:82 forward"), (tokens * 8000 * 4 + 4 + 4, 3.0), "{name}");
        // Four times as wide before and after the activation function.
        assert_eq!(rate("minigpt.py:41 forward"), (4 * 2 * 4 * hidden, 8.0), "{name}");
        // The attention scores of four heads, in each of four layers.
        assert_eq!(rate("minigpt.py:28 forward"), (4 * scores, 4.0), "{name}");
        assert_eq!(rate("minigpt.py:26 forward"), (4 * 2 * hidden, 8.0), "{name}");
        // Tokens and targets.
        assert_eq!(rate("minigpt.py:88 get_batch"), (2 * tokens * 8, 2.0), "{name}");
    }
}

/// `leak_slow` and `leak_series` forget 3 MiB in every step; blocks of 3 to 4 MiB hold it.
#[test]
fn leak_slow_is_one_tensor_a_step() {
    let device = only(leaks(&open(&fixture("leak_slow"))));
    assert_eq!(device.step_count(), 40);
    assert_forgets_a_tensor(&device, "cases.py:339 leak_slow");
    let growing = device.rows.iter().filter(|row| row.verdict.grows()).count();
    assert_eq!(growing, 1, "one line leaks");
}

#[test]
fn every_dump_of_a_leaking_process_shows_the_leak() {
    if corpus().is_none() {
        return;
    }
    let found: Vec<_> = cases(CORPUS).into_iter().filter(|case| case.name == "leak_series").collect();
    assert_eq!(found.len(), 4);
    let mut requested = Vec::new();
    for (case, steps) in found.iter().zip([5, 10, 15, 20]) {
        let device = only(leaks(&open(&case.path)));
        assert_eq!(device.step_count(), steps, "{}", case.path);
        assert_forgets_a_tensor(&device, "cases.py:452 leak_series");
        requested.push(case.truth["devices"][0]["memory_stats"]["requested_bytes.all.current"].as_u64().unwrap());
    }
    // PyTorch's own counter rises by the same from dump to dump.
    for pair in requested.windows(2) {
        assert_eq!(pair[1] - pair[0], 5 * 3 * MIB);
    }
}

fn assert_forgets_a_tensor(device: &DeviceLeaks, label: &str) {
    let row = &device.rows[0];
    assert_eq!((row.label.as_str(), row.verdict), (label, Verdict::Leak));
    assert_eq!((row.rate.bytes, row.rate.blocks), (3 * MIB, 1.0));
    assert!((3 * MIB as i64..=4 * MIB as i64).contains(&row.rate.allocated_bytes));
    assert_eq!(device.leaking, row.rate);
    assert_eq!(row.stack[0], label);
}

/// Recordings that leak, and those with growth that is not a leak: a KV cache within a request, and a cache of features most
/// of which is evicted at the end.
const LEAKS: &[&str] = &["leak", "leak_series", "leak_slow", "leak_t201", "leak_t231"];
const GROWTH: &[&str] = &["fragmented", "fragmented_t201", "fragmented_t231", "generate_kv", "kv_cat"];

#[test]
fn no_other_fixture_leaks() {
    check_verdicts(support::FIXTURES);
}

#[test]
fn no_other_recording_leaks() {
    if corpus().is_some() {
        let found = check_verdicts(CORPUS);
        let expected: BTreeSet<String> = LEAKS.iter().chain(GROWTH).map(|name| (*name).to_owned()).collect();
        assert_eq!(found, expected, "recordings in which something grows");
    }
}

/// Judges every recording in a folder; returns those in which something grows.
fn check_verdicts(root: &str) -> BTreeSet<String> {
    let mut growing = BTreeSet::new();
    let mut problems = Vec::new();
    for case in cases(root) {
        for device in leaks(&open(&case.path)).devices {
            let has = |verdict| device.rows.iter().any(|row| row.verdict == verdict);
            let name = case.name.as_str();
            if has(Verdict::Leak) != LEAKS.contains(&name) || has(Verdict::Growth) != GROWTH.contains(&name) {
                problems.push(format!("{} device {}: {:?}", case.path, device.device, device.rows));
            }
            if device.leaking.bytes > 0 || device.growing.bytes > 0 {
                growing.insert(case.name.clone());
            }
        }
    }
    support::assert_none(&problems);
    growing
}

/// Keys and values of 8 layers, for 2 sequences of 4 heads with 64 numbers of 4 bytes, a token at a time.
#[test]
fn a_kv_cache_is_growth() {
    if corpus().is_none() {
        return;
    }
    let device = only(leaks(&open(&format!("{CORPUS}/generate_kv/snapshot.pickle.gz"))));
    assert_eq!(device.step_count(), 160);
    assert_eq!(device.rows[0].verdict, Verdict::Growth);
    assert_eq!((device.rows[0].rate.bytes, device.rows[0].rate.blocks), (8 * 2 * 2 * 4 * 64 * 4, 0.0));
    assert!(device.rows[0].stack[0].contains("cache_utils.py"), "{:?}", device.rows[0].stack);
    // Only the layers of `kv_cat` repeat in it: a sixteenth of what a token adds.
    let device = only(leaks(&open(&format!("{CORPUS}/kv_cat/snapshot.pickle.gz"))));
    assert_eq!(device.growing.bytes, 2 * 4 * 16 * 128 * 2);
}

#[cfg(feature = "cli")]
mod binary {
    use super::support::{fixture, memviz};

    #[test]
    fn annotations_can_be_chosen() {
        let path = fixture("annotated");
        let json = memviz(&["leaks", "--format", "json", "--steps", "^step_", &path]).json();
        assert_eq!(json["devices"][0]["steps"], 3);
        assert_eq!(json["devices"][0]["step_source"], "requested");
        memviz(&["leaks", "--steps", "^batch_", &path]).expect_error("ProfilerStep#0");
        memviz(&["leaks", "--steps", "^step_", &fixture("leak_t201")]).expect_error("found none");
        memviz(&["leaks", "--steps", "(", &path]).expect(2);
    }

    #[test]
    fn recordings_without_steps_are_one_line() {
        for (name, reason) in [
            (
                "random_sizes",
                "no annotation marks the steps, and no loop around forward and backward was found; record at \
                 least four steps, each in torch.profiler.record_function(f\"step_{n}\")",
            ),
            ("oom_forward", "1 step, annotated as step_0; record 4 or more steps"),
            (
                "llama_hf_all",
                "2 steps, annotated as Optimizer.step#AdamW.step; 703.33 MiB is allocated at the end of the first, 701.58 MiB at \
                 the end of the last; record 4 or more steps",
            ),
        ] {
            let run = memviz(&["leaks", &fixture(name)]);
            run.expect(0);
            assert_eq!(run.stderr, "", "{name}");
            assert!(run.stdout.lines().any(|line| line.trim().starts_with(reason)), "{name}: {}", run.stdout);
        }
        let path = fixture("empty");
        let run = memviz(&["leaks", &path]);
        run.expect(0);
        assert_eq!(run.stdout, format!("{path}: no GPU memory was allocated while recording, or recording was off\n"));
    }

    #[test]
    fn a_capacity_without_a_rate_is_answered() {
        for (name, answer) in [
            ("tiny", "memviz cannot predict when the device (24.00 GiB) will be full: no steps found"),
            ("gpt_late", "memviz cannot predict when the device (24.00 GiB) will be full: too few steps"),
            ("leak_slow", "the device (24.00 GiB) is full after"),
        ] {
            let text = memviz(&["leaks", "--capacity", "24GiB", &fixture(name)]).expect(0).stdout.clone();
            assert!(text.contains(answer), "{name}: {text}");
        }
    }

    #[test]
    fn sizes_are_those_that_people_type() {
        let path = fixture("leak_slow");
        let steps = |capacity: &str| {
            let json = memviz(&["leaks", "--format", "json", "--capacity", capacity, &path]).json();
            json["devices"][0]["projection"]["steps"].as_u64().unwrap()
        };
        assert_eq!(steps("40GiB"), steps("42949672960"));
        assert!(steps("80GiB") > 2 * steps("40GiB"));
        assert_eq!(steps("1MiB"), 0);
        for bad in ["40XB", "many", "-1", ""] {
            memviz(&["leaks", "--capacity", bad, &path]).expect(2);
        }
    }

    #[test]
    fn answers_do_not_depend_on_the_number_of_threads() {
        for name in ["multi_gpu", "leak", "fragmented"] {
            let ask = |threads| memviz(&["leaks", "--format", "json", "--threads", threads, &fixture(name)]).stdout;
            assert_eq!(ask("1"), ask("2"), "{name}");
            assert_eq!(ask("1"), ask("8"), "{name}");
        }
    }

    #[test]
    fn every_format_has_every_row() {
        let path = fixture("leak");
        let json = memviz(&["leaks", "--format", "json", &path]).json();
        let rows = json["devices"][0]["leaks"].as_array().unwrap();
        assert_eq!(rows[0]["verdict"], "leak");
        for format in ["text", "csv", "markdown"] {
            let all: &[&str] = if format == "text" { &["--all"] } else { &[] };
            let text = memviz(&[&["leaks", "--format", format, &path], all].concat()).stdout;
            for row in rows {
                assert!(text.contains(row["label"].as_str().unwrap()), "{format}: {row}");
            }
        }
        let one = memviz(&["leaks", "--top", "1", &path]).stdout;
        assert!(one.contains(&format!("{} more rows; --top shows them", rows.len() - 1)), "{one}");
    }
}
