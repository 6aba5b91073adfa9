//! Programs with a change, predicted from the recording of the program without it, against what PyTorch counted when
//! the change was made by hand.

use crate::support::{FIXTURES, assert_none, corpus, open, read_text};
use memviz::simulation::changes::{Change, Editor};
use memviz::simulation::{Outcome, Program, Setup, simulate};
use serde_json::Value;

/// Pairs of recordings, which only some machines have.
const WHATIF: &str = "../shared/whatif";

/// The outcome of a program with changes, or why they cannot be applied.
fn with(path: &str, changes: &[&str]) -> Result<Outcome, String> {
    let recording = open(path);
    let devices = recording.devices();
    let device = &devices.all()[0];
    let program = Program::of(device.track).unwrap();
    let changes: Vec<Change> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let edited = Editor::new(device).apply(&program, &changes);
    let edited = edited.map_err(|refusal| format!("{}: {}", refusal.change, refusal.because))?;
    Ok(simulate(&edited.program, &Setup::new(&recording.snapshot.settings, None, 0)))
}

/// What was counted: allocated and reserved at most.
fn counted(folder: &str) -> [u64; 2] {
    let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth.json"))).unwrap();
    ["max_memory_allocated", "max_memory_reserved"].map(|key| truth["devices"][0][key].as_u64().unwrap())
}

/// By how much a prediction exceeds the allowed error, in thousandths of the measured value.
fn off(before: &str, after: &str, changes: &[&str], most: [u64; 2]) -> Option<String> {
    let outcome = match with(&format!("{before}/snapshot.pickle.gz"), changes) {
        Ok(outcome) => outcome,
        Err(because) => return Some(format!("{before} {changes:?}: {because}")),
    };
    let (found, counted) = ([outcome.max_allocated, outcome.max_reserved], counted(after));
    let is_off = |index: usize| found[index].abs_diff(counted[index]) * 1000 > counted[index] * most[index];
    (0..2).any(is_off).then(|| format!("{before} {changes:?}: {found:?} instead of {counted:?}"))
}

/// Functions of both models: attention, feed-forward, block.
const MODELS: [(&str, [&str; 3]); 2] = [
    ("minigpt", ["minigpt.py:19", "minigpt.py:41", "minigpt.py:53"]),
    ("gpt2", ["modeling_gpt2.py:185", "modeling_gpt2.py:239", "modeling_gpt2.py:273"]),
];

#[test]
fn another_optimizer_or_a_share_of_it_needs_the_counted_memory() {
    if corpus().is_none() {
        return;
    }
    let changes = [
        ("before", "adam8", "optimizer:adam8bit"),
        ("before", "sgd", "optimizer:sgd"),
        ("before", "momentum", "optimizer:momentum"),
        ("sgd", "before", "optimizer:adamw"),
        ("sgd", "momentum", "optimizer:momentum"),
        ("momentum", "before", "optimizer:adamw"),
        ("before", "shard4", "shard-optimizer:4:keep-gradients"),
        ("before", "shard8", "shard-optimizer:8:keep-gradients"),
    ];
    let mut wrong = Vec::new();
    for (model, _) in MODELS {
        for (before, after, change) in changes {
            let folder = |variant: &str| format!("{WHATIF}/p_{model}_{variant}");
            wrong.extend(off(&folder(before), &folder(after), &[change], [0, 0]));
        }
    }
    assert_none(&wrong);
}

/// Thousandths that the figures of a change may be off by: allocated, reserved.
const OFF: [u64; 2] = [20, 35];

#[test]
fn changed_forward_and_backward_passes_need_the_counted_memory() {
    if corpus().is_none() {
        return;
    }
    let mut wrong = Vec::new();
    for (model, sites) in MODELS {
        let [attention, feed_forward, block] = sites.map(|site| format!("checkpoint:{site}"));
        let cases: [(&str, &[&str]); 8] = [
            ("ckpt_attn", &[&attention]),
            ("ckpt_mlp", &[&feed_forward]),
            ("ckpt_block", &[&block]),
            ("ckpt_attn_mlp", &[&attention, &feed_forward]),
            ("infer", &["inference"]),
            ("offload", &["offload:activations"]),
            ("chunks4", &["chunk-loss:4"]),
            ("chunks8", &["chunk-loss:8"]),
        ];
        let before = format!("{WHATIF}/p_{model}_before");
        for (after, changes) in cases {
            wrong.extend(off(&before, &format!("{WHATIF}/p_{model}_{after}"), changes, OFF));
        }
        // A function in a checkpointed call is not checkpointed again.
        let path = format!("{before}/snapshot.pickle.gz");
        assert_eq!(with(&path, &[&block, &attention]), with(&path, &[&block]));
    }
    assert_none(&wrong);
}

#[test]
fn accumulated_gradients_need_the_counted_memory() {
    if corpus().is_none() {
        return;
    }
    let mut wrong = Vec::new();
    for (model, batch) in [("minigpt", "b_minigpt"), ("gpt2", "bp_gpt2")] {
        for (passes, part) in [(2, 4), (4, 2)] {
            // A batch of 8 in parts.
            let before = format!("{WHATIF}/{batch}_{part:02}");
            let after = format!("{WHATIF}/p_{model}_accum{passes}");
            wrong.extend(off(&before, &after, &[&format!("accumulate:{passes}")], [1, 0]));
        }
    }
    assert_none(&wrong);
}

#[test]
fn changes_that_need_missing_facts_are_refused() {
    let refused =
        |name: &str, change: &str| with(&format!("{FIXTURES}/{name}/snapshot.pickle.gz"), &[change]).unwrap_err();
    let all =
        ["optimizer:sgd", "shard-optimizer:4", "offload:optimizer", "offload:activations", "inference", "chunk-loss:4"];
    // A recording without a training step.
    for change in all {
        assert!(!refused("fragmented", change).is_empty(), "{change}");
    }
    assert!(refused("oom", "optimizer:sgd").contains("ran out of memory"));
    assert!(refused("gpt_train", "checkpoint:no_such_function").contains("no function of the model"));
    assert!(refused("resnet_train", "chunk-loss:2").contains("chunk-loss"));
}
