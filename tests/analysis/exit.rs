//! A recording may go on until the program exits, and so show how it frees everything that it held; recordings of `memviz rehearse` do.
//! What memviz says about the program stays the same.

use crate::support::{fixture, open};
use memviz::Recording;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::facts::training::Category;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, Block, BlockState, Frame, FrameId, Segment, Snapshot, StackId};
use memviz::replay::{NEVER, replay};
use std::collections::BTreeMap;

const STORIES: [&str; 8] = [
    "dataloader_prefetch_gpu_epochs_flawed",
    "duplicate_model_best_flawed",
    "eval_without_no_grad_method_flawed",
    "fp32_logits_dpo_flawed",
    "kept_outputs_dict_flawed",
    "optimizer_states_of_frozen_probe_flawed",
    "retained_graph_policy_flawed",
    "side_stream_stranding_teacher_flawed",
];

#[test]
fn a_program_that_exits_has_the_same_mistakes() {
    let stories = STORIES.map(|story| format!("fixtures/stories/{story}/snapshot.pickle.gz"));
    for path in stories.into_iter().chain(["leak", "leak_slow", "fragmented"].map(fixture)) {
        let recording = open(&path);
        let said = said_of(&recording);
        assert_ne!(said, Default::default(), "{path}");
        assert_eq!(said_of(&exited(open(&path))), said, "{path}");
    }
}

/// The changes that memviz recommends, each with its line, and the bytes per step of what leaks and of what grows.
fn said_of(recording: &Recording) -> (Vec<String>, u64, u64) {
    let triage = recording.triage(&TriageOptions::default()).unwrap();
    let advice = triage.devices.into_iter().flat_map(|device| device.advice);
    let changes = advice.map(|advice| format!("{:?} {:?}", advice.kind, advice.line.map(|line| line.label))).collect();
    let leaks = recording.leaks(&LeakOptions::default()).unwrap();
    (changes, leaks.devices[0].leaking.bytes, leaks.devices[0].growing.bytes)
}

/// The same program, which then returns from its main function: all blocks except the workspaces of libraries are freed.
fn exited(mut recording: Recording) -> Recording {
    let history = &recording.histories[0];
    let devices = recording.devices();
    let categories = devices.all()[0].categories();
    let held: BTreeMap<u64, u64> = (0..)
        .zip(&history.allocations)
        .filter(|(index, block)| block.freed == NEVER && categories.get(*index).category != Category::Workspace)
        .map(|(_, block)| (block.addr, block.requested))
        .collect();
    drop(devices);
    let snapshot = &mut recording.snapshot;
    assert_eq!(snapshot.traces.len(), 1);
    let mut last = snapshot.entries.get(snapshot.entries.len() - 1).unwrap();
    last.time_us = snapshot.annotations.iter().map(|it| it.time_us).fold(last.time_us, i64::max) + 1;
    last.stack = line_after_the_last(snapshot);
    for (&addr, &size) in &held {
        for action in [Action::FreeRequested, Action::FreeCompleted] {
            snapshot.entries.push(TraceEntry { action, addr, size, ..last });
        }
    }
    snapshot.traces[0].rows.end = snapshot.entries.len();
    for segment in &mut snapshot.segments {
        free(segment, &held);
    }
    recording.histories = replay(&recording.snapshot);
    assert_eq!(recording.anomalies(), 0);
    recording
}

/// The stack of the line of the script that follows the one that ran last.
fn line_after_the_last(snapshot: &mut Snapshot) -> StackId {
    let is_script = |id: &FrameId| {
        let frame = snapshot.stacks.frame(*id);
        frame.is_some_and(|frame| snapshot.strings.get(frame.name) == "<module>")
    };
    let rows = snapshot.entries.rows(0..snapshot.entries.len());
    let outermost = rows.filter_map(|row| snapshot.stacks.frame_ids(row.stack).last().copied());
    let script = outermost.filter(is_script).last().unwrap();
    let frame = *snapshot.stacks.frame(script).unwrap();
    let next = snapshot.stacks.intern_frame(Frame { line: frame.line + 1, ..frame });
    snapshot.stacks.intern_stack(&[next])
}

/// A segment after these blocks are freed: adjacent free blocks are one.
fn free(segment: &mut Segment, held: &BTreeMap<u64, u64>) {
    let mut blocks: Vec<Block> = Vec::new();
    for mut block in std::mem::take(&mut segment.blocks) {
        if held.contains_key(&block.address) {
            block.state = BlockState::Inactive;
        }
        match blocks.last_mut().filter(|last| [last.state, block.state] == [BlockState::Inactive; 2]) {
            Some(last) => last.size += block.size,
            None => blocks.push(block),
        }
    }
    let there = || blocks.iter().filter(|block| block.state != BlockState::Inactive);
    segment.allocated_size = there().map(|block| block.size).sum();
    segment.active_size = segment.allocated_size;
    segment.requested_size = Some(there().map(|block| block.requested_size).sum());
    segment.blocks = blocks;
}
