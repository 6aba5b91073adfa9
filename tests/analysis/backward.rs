//! Inferred forward lines, compared with the records of autograd and the profiler.

use crate::support::{self, FIXTURES, corpus, open, read_unpacked};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::code::sites::Sites;
use memviz::facts::grouping::attribution::{Attribution, Row};
use memviz::facts::grouping::{GroupBy, Inference};
use memviz::facts::training::{BackwardSites, Roles};
use memviz::model::StackId;
use memviz::replay::Track;
use std::collections::BTreeMap;

/// Recordings with the line of each allocation: `fixtures/record_backward.py`.
const KNOWN: &str = "fixtures/backward";

/// Bytes that backward allocated on all devices, and what of them has a line of forward.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    bytes: u64,
    labeled: u64,
}

impl Coverage {
    fn of(recording: &Recording) -> Self {
        let sites = Sites::new(&recording.snapshot);
        let roles = Roles::of(&sites);
        let mut coverage = Self::default();
        for history in &recording.histories {
            let track = Track::new(&recording.snapshot, history);
            let backward = BackwardSites::of(track, &roles);
            for (index, allocation) in history.allocations.iter().enumerate() {
                let forward = backward.forward_stack(track, &roles, index);
                if !allocation.is_baseline() && roles.is_engine(track.stack_of(index)) {
                    coverage.bytes += allocation.size;
                    coverage.labeled += forward.map_or(0, |_| allocation.size);
                } else {
                    assert_eq!(forward, None, "allocation {index} was not made by backward");
                }
            }
        }
        coverage
    }

    fn percent(self) -> f64 {
        self.labeled as f64 * 100.0 / self.bytes as f64
    }
}

#[test]
fn nearly_all_allocations_of_backward_have_a_line() {
    for name in ["gpt_train", "gpt_train_t201", "gpt_train_t231", "gpt_train_t215"] {
        let coverage = Coverage::of(&open(&support::fixture(name)));
        assert!(coverage.bytes > 20 << 30, "{name}: {coverage:?}");
        assert!(coverage.percent() >= 99.0, "{name}: {coverage:?}");
    }
    for (name, percent) in [
        ("gpt_train_ckpt", 90.0),
        ("gpt_train_ckpt_every2", 90.0),
        ("gpt_train_sdpa_amp", 99.0),
        ("resnet_train", 99.0),
        ("llama_hf_python", 95.0),
        ("llama_hf_all", 95.0),
        ("leak", 95.0),
        ("multi_gpu", 95.0),
    ] {
        let coverage = Coverage::of(&open(&support::fixture(name)));
        assert!(coverage.percent() >= percent, "{name}: {:.1}%, {coverage:?}", coverage.percent());
    }
}

/// Shares of bytes in percent whose inferred label names the right function, and the right line.
fn agreement(name: &str) -> (f64, f64) {
    let recording = open(&format!("{KNOWN}/{name}/snapshot.pickle.gz"));
    let known: Vec<(u64, Option<String>)> =
        serde_json::from_slice(&read_unpacked(&format!("{KNOWN}/{name}/lines.json.gz"))).unwrap();
    let sites = Sites::new(&recording.snapshot);
    let history = recording.history(0).unwrap();
    let (track, roles) = (Track::new(&recording.snapshot, history), Roles::of(&sites));
    let backward = BackwardSites::of(track, &roles);
    assert_eq!(history.allocations.len(), known.len(), "{name}: both runs allocate the same");
    let (mut total, mut same_function, mut same_line) = (0, 0, 0);
    for (index, (allocation, (bytes, known))) in history.allocations.iter().zip(&known).enumerate() {
        assert_eq!(allocation.size, *bytes, "{name}: allocation {index}");
        let (Some(known), Some(stack)) = (known, backward.forward_stack(track, &roles, index)) else { continue };
        let found = sites.site(stack);
        total += bytes;
        same_line += if found == *known { *bytes } else { 0 };
        same_function += if function(&found) == function(known) { *bytes } else { 0 };
    }
    assert!(total > 50 << 20, "{name}: {total} bytes compared");
    let percent = |part: u64| part as f64 * 100.0 / total as f64;
    (percent(same_function), percent(same_line))
}

/// The function that a line of `record_backward.py` is in: all are called `forward`.
fn function(label: &str) -> usize {
    let line: usize = label.split([':', ' ']).nth(1).unwrap().parse().unwrap();
    let script = support::read_text("fixtures/record_backward.py");
    let heads = script.lines().take(line).enumerate().filter(|(_, text)| text.trim_start().starts_with("def "));
    heads.map(|(index, _)| index).last().unwrap()
}

#[test]
fn labels_match_those_of_autograd() {
    for (name, function, line) in [
        ("transformer", 99.0, 90.0),
        ("transformer_amp", 95.0, 90.0),
        // Recomputing stops before the last operators run, so their lines are not known.
        ("transformer_ckpt", 99.0, 85.0),
        ("convolutional", 99.0, 90.0),
    ] {
        let (same_function, same_line) = agreement(name);
        assert!(same_function >= function, "{name}: {same_function:.1}% in the right function");
        assert!(same_line >= line, "{name}: {same_line:.1}% on the right line");
    }
}

/// Each allocation of backward with its bytes, the forward line inferred for it, and the recorded line.
fn recorded_lines(recording: &Recording, known: &str) -> Vec<(u64, Option<String>, Option<String>)> {
    let known: Vec<(u64, Option<String>)> = serde_json::from_slice(&read_unpacked(known)).unwrap();
    let (snapshot, history) = (&recording.snapshot, recording.history(0).unwrap());
    let sites = Sites::new(snapshot);
    assert_eq!(history.allocations.len(), known.len(), "both runs allocate the same");
    let lines = known.into_iter().enumerate().map(|(index, (bytes, known))| {
        let row = history.born_row(index).unwrap();
        let forward = snapshot.contexts.get(snapshot.entries.context(row)).forward;
        (bytes, known, (forward != StackId::EMPTY).then(|| sites.site(forward)))
    });
    lines.collect()
}

/// In anomaly mode PyTorch records the lines, so nothing is inferred.
#[test]
fn recorded_lines_are_not_inferred() {
    let path = format!("{KNOWN}/transformer_anomaly/snapshot.pickle.gz");
    let [recording, plain] = [open(&path), open(&format!("{KNOWN}/transformer/snapshot.pickle.gz"))];
    let lines = recorded_lines(&recording, &format!("{KNOWN}/transformer_anomaly/lines.json.gz"));
    assert!(lines.iter().filter(|(_, known, _)| known.is_some()).count() > 100);
    assert!(lines.iter().all(|(_, known, recorded)| known == recorded), "{lines:?}");
    let notes = &recording.snapshot.notes;
    assert!(notes.unknown_keys.is_empty() && notes.unread_forward_lines == 0, "{notes:?}");

    // Where inference is wrong, the recorded line is shown.
    let sites = Sites::new(&plain.snapshot);
    let (track, roles) = (Track::new(&plain.snapshot, plain.history(0).unwrap()), Roles::of(&sites));
    let inferred = BackwardSites::of(track, &roles);
    let wrong = lines.iter().enumerate().filter(|(index, (_, known, _))| {
        let guess = inferred.forward_stack(track, &roles, *index).map(|stack| sites.site(stack));
        known.is_some() && guess.is_some() && guess != *known
    });
    assert!(wrong.count() > 0, "nothing to tell the two apart by");
    let [on, off] =
        [Inference::On, Inference::Off].map(|inference| attribution(&recording, GroupBy::Site, inference).rows);
    assert!(on.iter().all(|row| !row.inferred) && on.iter().any(|row| row.label.starts_with("backward of ")));
    let labels = |rows: &[Row]| rows.iter().map(|row| (row.label.clone(), row.bytes)).collect::<Vec<_>>();
    assert_eq!(labels(&on), labels(&off), "what is recorded is no inference");
    let inferred = attribution(&plain, GroupBy::Site, Inference::On);
    assert!(inferred.rows.iter().any(|row| row.inferred), "without anomaly mode it is one");
    #[cfg(feature = "cli")]
    support::memviz(&["check", &path, "--max-peak", "1GiB"]).expect(0);
}

fn attribution(recording: &Recording, by: GroupBy, inference: Inference) -> Attribution {
    let options = PeakOptions::default().by(by).inference(inference).devices(vec![0]);
    recording.peak(&options).unwrap().devices.remove(0).attribution
}

#[test]
fn bytes_are_conserved() {
    for name in ["gpt_train", "gpt_train_ckpt", "llama_hf_all", "oom", "leak"] {
        let recording = open(&support::fixture(name));
        for by in [GroupBy::Site, GroupBy::Stack, GroupBy::File, GroupBy::Module] {
            let [on, off] = [Inference::On, Inference::Off].map(|inference| attribution(&recording, by, inference));
            let sum = |rows: &[Row]| rows.iter().map(|row| row.bytes).sum::<u64>();
            assert_eq!(on.total_bytes, off.total_bytes, "{name} by {by:?}");
            assert_eq!([sum(&on.rows), sum(&off.rows)], [on.total_bytes; 2], "{name} by {by:?}");
            assert!(off.rows.iter().all(|row| !row.inferred), "{name} by {by:?}");
            let recorded = |rows: &[Row]| -> BTreeMap<(String, Vec<String>), u64> {
                let recorded = rows.iter().filter(|row| !row.inferred && !row.label.starts_with('('));
                recorded.map(|row| ((row.label.clone(), row.stack.clone()), row.bytes)).collect()
            };
            // C++ frames of backward are recorded, and still what inference is about.
            if name != "llama_hf_all" {
                assert_eq!(recorded(&on.rows), recorded(&off.rows), "{name} by {by:?}");
            }
        }
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_flag_turns_inference_off() {
    let path = support::fixture("gpt_train");
    for command in ["peak", "oom"] {
        let rows = |flags: &[&str]| {
            let run = support::memviz(&[&[command, &path, "--format", "json"], flags].concat());
            let device = run.expect(0).json()["devices"][0].clone();
            // Without a failed request `oom` shows the peak.
            let attribution = if command == "peak" { &device["attribution"] } else { &device["peak"]["attribution"] };
            attribution["rows"].as_array().unwrap().clone()
        };
        let labels = |rows: &[serde_json::Value], inferred: bool| -> Vec<String> {
            let rows = rows.iter().filter(|row| row["inferred"] == inferred);
            rows.map(|row| row["label"].as_str().unwrap().to_owned()).collect()
        };
        let on = rows(&[]);
        assert_eq!(labels(&on, true), ["backward of minigpt.py:82 forward", "backward of minigpt.py:79 forward"]);
        assert!(!labels(&on, false).contains(&"(no stack)".to_owned()));
        let off = rows(&["--no-infer"]);
        assert!(labels(&off, true).is_empty() && labels(&off, false).contains(&"(no stack)".to_owned()));
    }
}

#[test]
fn passes_are_answered_in_any_order() {
    for name in ["gpt_train", "gpt_train_ckpt", "oom", "ring", "leak", "gpt_late_alloc_only", "multi_gpu"] {
        let recording = open(&support::fixture(name));
        let roles = Roles::of(&Sites::new(&recording.snapshot));
        for history in &recording.histories {
            let track = Track::new(&recording.snapshot, history);
            let all = BackwardSites::of(track, &roles);
            let from_first: Vec<_> =
                (0..history.allocations.len()).map(|index| all.forward_stack(track, &roles, index)).collect();
            let from_last = BackwardSites::of(track, &roles);
            for (index, known) in from_first.iter().enumerate().rev() {
                assert_eq!(from_last.forward_stack(track, &roles, index), *known, "{name}: {index}");
            }
        }
    }
}

#[test]
fn without_a_forward_nothing_is_inferred() {
    for name in ["generate_kv", "empty", "tiny", "no_history", "state_only", "random_sizes"] {
        let path = if name == "generate_kv" { None } else { Some(support::fixture(name)) };
        let path = path.or_else(|| corpus().map(|corpus| format!("{corpus}/{name}/snapshot.pickle.gz")));
        let Some(path) = path.filter(|path| std::path::Path::new(path).exists()) else { continue };
        let coverage = Coverage::of(&open(&path));
        assert_eq!(coverage.labeled, 0, "{name}: {coverage:?}");
    }
}

#[test]
fn every_recording_is_labelled_within_backward_only() {
    for case in support::cases(FIXTURES).into_iter().chain(support::corpus_cases().unwrap_or_default()) {
        // Coverage::of asserts it.
        let coverage = Coverage::of(&open(&case.path));
        assert!(coverage.labeled <= coverage.bytes, "{}", case.name);
    }
}
