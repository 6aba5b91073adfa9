//! Programs as people write them: a model whose classes share a file, norm and attention called on one line, a recording of a
//! single step or of only a forward. Each has partners that differ in what is checkpointed.

use super::{device, find, miss};
use crate::support::{REQUIRE_CORPUS, assert_none, names, read_text, skipped};
use memviz::analysis::checkpoint::NoCandidates;
use memviz::simulation::changes::CodeChange;
use serde_json::Value;
use std::path::Path;

/// Recordings that only some machines have.
const LOOKALIKE: &str = "../shared/lookalike";
/// The name of a partner, what it checkpoints, and how many of the calls.
const PARTNERS: [(&str, Function, usize); 5] = [
    ("_ckpt", Function::Block, 1),
    ("_ckpt2", Function::Block, 2),
    ("_ckattn", Function::Attention, 1),
    ("_ckffn", Function::FeedForward, 1),
    ("_cknorm", Function::Norm, 1),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    Block,
    Attention,
    FeedForward,
    Norm,
}

impl Function {
    /// The first of its lines that allocates. The deep variant calls its blocks' parts by way of helpers.
    fn label(self, is_deep: bool) -> &'static str {
        match self {
            Self::Block if is_deep => "model.py:138 forward",
            Self::Block => "model.py:131 forward",
            Self::Attention => "model.py:113 forward",
            Self::FeedForward => "model.py:99 forward",
            Self::Norm => "model.py:54 forward",
        }
    }
}

#[test]
fn every_partner_is_predicted_within_two_percent() {
    let Some(root) = lookalike() else { return };
    let all = names(root);
    let (mut problems, mut compared) = (Vec::new(), 0);
    for name in all.iter().filter(|name| !name.contains("_ck")) {
        let partners = PARTNERS.iter().filter(|(ending, ..)| all.contains(&format!("{name}{ending}")));
        let partners: Vec<_> = partners.collect();
        if partners.is_empty() {
            continue;
        }
        let device = device(&snapshot(root, name));
        assert_eq!(device.peak_bytes, peak(root, name), "{name}");
        for &&(ending, function, every) in &partners {
            let partner = format!("{name}{ending}");
            let label = function.label(name.contains("deep"));
            let Some(candidate) = find(&device, label).filter(|candidate| candidate.label == label) else {
                problems.push(format!("{name}: {label} is no candidate"));
                continue;
            };
            if function == Function::Block {
                assert_eq!(device.candidates[0].label, label, "{name}: the block saves most");
            }
            assert_eq!(candidate.calls, if function == Function::Norm { 13 } else { 6 }, "{name} {label}");
            problems.extend(miss(&partner, candidate, every, peak(root, &partner), 2));
            compared += 1;
        }
    }
    assert!(compared >= 29, "{compared} peaks compared");
    assert_none(&problems);
}

#[test]
fn the_line_that_calls_is_named() {
    let Some(root) = lookalike() else { return };
    let device = device(&snapshot(root, "cs336_one_py"));
    for (function, caller) in [
        (Function::Block, "model.py:163 forward"),
        (Function::Attention, "model.py:131 forward"),
        (Function::FeedForward, "model.py:132 forward"),
    ] {
        let candidate = find(&device, function.label(false)).unwrap();
        assert_eq!(candidate.change, CodeChange::Wrap { caller: Some(caller.to_owned()), others: Vec::new() });
    }
}

#[test]
fn a_forward_without_gradients_has_nothing_to_checkpoint() {
    let Some(root) = lookalike() else { return };
    for name in ["cs336_infer", "cs336_infer_all"] {
        let device = device(&snapshot(root, name));
        assert_eq!((device.none, device.passes), (Some(NoCandidates::NoTrainingStep), 0), "{name}");
    }
}

fn lookalike() -> Option<&'static str> {
    if Path::new(LOOKALIKE).is_dir() {
        return Some(LOOKALIKE);
    }
    let required = std::env::var(REQUIRE_CORPUS).is_ok_and(|value| value == "1");
    assert!(!required, "{REQUIRE_CORPUS}=1, but there is no {LOOKALIKE}");
    skipped(&format!("there is no {LOOKALIKE}; {REQUIRE_CORPUS}=1 makes that a failure"));
    None
}

fn snapshot(root: &str, name: &str) -> String {
    format!("{root}/{name}/snapshot.pickle.gz")
}

fn peak(root: &str, name: &str) -> i64 {
    let truth: Value = serde_json::from_str(&read_text(&format!("{root}/{name}/truth.json"))).unwrap();
    truth["devices"][0]["max_memory_allocated"].as_i64().unwrap()
}
