//! Programs that are small enough to work out by hand what checkpointing does to them.

use super::program::{At, Held, Program, TICK};
use memviz::Recording;
use memviz::analysis::checkpoint::NoCandidates;
use memviz::analysis::checkpoint::{CheckpointOptions, DeviceCheckpoint};
use memviz::facts::training::Phase;
use memviz::simulation::changes::CodeChange;

const MIB: u64 = 1 << 20;
/// Sizes: what a block keeps for backward, what it needs temporarily, what it returns; its gradients.
const KEPT: u64 = 40 * MIB;
const TEMPORARY: u64 = 8 * MIB;
const OUTPUT: u64 = 4 * MIB;
const GRADIENT: u64 = 16 * MIB;
const LOSS: u64 = 2 * MIB;

/// What `Block.forward` makes on its three lines.
fn call(program: &mut Program) -> (Held, Held) {
    let kept = program.alloc(At::Block(20), KEPT);
    let temporary = program.alloc(At::Block(21), TEMPORARY);
    program.free(At::Block(22), temporary);
    (kept, program.alloc(At::Block(22), OUTPUT))
}

/// A forward pass through blocks, up to the loss.
fn forward(program: &mut Program, blocks: usize) -> (Vec<(Held, Held)>, Held) {
    let calls = (0..blocks).map(|_| call(program)).collect();
    (calls, program.alloc(At::Model(7), LOSS))
}

/// A step: the backward of each block has the gradient of its output, computes one from what it keeps, and frees it.
fn step(program: &mut Program, blocks: usize) {
    let (calls, loss) = forward(program, blocks);
    let mut gradient = program.alloc(At::Backward, OUTPUT);
    program.free(At::Backward, loss);
    for (kept, output) in calls.into_iter().rev() {
        // The block's consumer has kept its output.
        program.free(At::Backward, output);
        let inner = program.alloc(At::Backward, GRADIENT);
        program.free(At::Backward, kept);
        program.free(At::Backward, gradient);
        gradient = program.alloc(At::Backward, OUTPUT);
        program.free(At::Backward, inner);
    }
    program.free(At::Backward, gradient);
}

fn checkpoint(recording: &Recording) -> DeviceCheckpoint {
    assert_eq!(recording.anomalies(), 0, "the program is one that PyTorch could have recorded");
    recording.checkpoint(&CheckpointOptions::default()).unwrap().devices.swap_remove(0)
}

#[test]
fn checkpointed_calls_keep_nothing_between_forward_and_backward() {
    let mut program = Program::new();
    step(&mut program, 3);
    let device = checkpoint(&program.dump());
    // In the backward of the last block: all three keep, two outputs, two gradients.
    assert_eq!(device.peak_bytes as u64, 3 * KEPT + 2 * OUTPUT + OUTPUT + GRADIENT);
    assert_eq!((device.phase, device.activation_bytes), (Phase::Backward, 3 * KEPT + 2 * OUTPUT));
    let [block] = &device.candidates[..] else { panic!("{:?}", device.candidates) };
    assert_eq!((block.label.as_str(), block.calls), ("model.py:20 forward", 3));
    assert_eq!(block.change, CodeChange::Wrap { caller: Some("model.py:5 forward".to_owned()), others: Vec::new() });
    // The last one has run again by then.
    let predicted = KEPT + 2 * OUTPUT + OUTPUT + GRADIENT;
    assert_eq!(block.predicted_peak_bytes as u64, predicted);
    assert_eq!(block.activation_bytes, 2 * KEPT);
    // With the first and the third, the second keeps its memory; with only the first, the second and the third do.
    let peaks: Vec<u64> = block.plan.iter().map(|plan| plan.predicted_peak_bytes as u64).collect();
    assert_eq!(peaks, [predicted, predicted + KEPT, predicted + KEPT]);
    assert_eq!((block.limit.phase, block.limit.rerun), (Phase::Backward, false));
    // Nine entries a call; the pass is three of them, two entries for the loss and the segment of the first gradient.
    assert_eq!((device.passes, device.forward_us), (1, Some((3 * 9 + 2 + 1) * TICK)));
    assert_eq!(block.recompute_us, Some(3 * 9 * TICK));
}

/// A block under `torch.no_grad()`: its call is not recomputed.
#[test]
fn calls_that_keep_nothing_are_not_counted() {
    let mut program = Program::new();
    let temporary = program.alloc(At::Frozen(20), KEPT);
    program.free(At::Frozen(22), temporary);
    let output = program.alloc(At::Frozen(22), OUTPUT);
    program.free(At::Model(4), output);
    step(&mut program, 3);
    let device = checkpoint(&program.dump());
    let [block] = &device.candidates[..] else { panic!("{:?}", device.candidates) };
    assert_eq!((block.label.as_str(), block.calls), ("model.py:20 forward", 3));
    assert_eq!(block.change, CodeChange::Wrap { caller: Some("model.py:5 forward".to_owned()), others: Vec::new() });
    assert_eq!(block.recompute_us, Some(3 * 9 * TICK));
    let predicted = KEPT + 2 * OUTPUT + OUTPUT + GRADIENT;
    let peaks: Vec<u64> = block.plan.iter().map(|plan| plan.predicted_peak_bytes as u64).collect();
    assert_eq!(peaks, [predicted, predicted + KEPT, predicted + KEPT]);
}

/// Every Nth of the blocks that one line calls: the first one is frozen, but the recommended code counts it.
#[test]
fn frozen_blocks_of_a_loop_count_for_every_nth() {
    let mut program = Program::new();
    let temporary = program.alloc(At::Block(20), KEPT);
    program.free(At::Block(22), temporary);
    let output = program.alloc(At::Block(22), OUTPUT);
    program.free(At::Model(4), output);
    step(&mut program, 3);
    let device = checkpoint(&program.dump());
    let [block] = &device.candidates[..] else { panic!("{:?}", device.candidates) };
    assert_eq!((block.label.as_str(), block.calls), ("model.py:20 forward", 3));
    let predicted = KEPT + 2 * OUTPUT + OUTPUT + GRADIENT;
    let peaks: Vec<u64> = block.plan.iter().map(|plan| plan.predicted_peak_bytes as u64).collect();
    // Of the four blocks, the first and the third, and the first and the fourth, run under checkpoint.
    assert_eq!(peaks, [predicted, predicted + KEPT, predicted + 2 * KEPT]);
}

/// Each pass is divided into its own calls, and times are means.
#[test]
fn steps_of_different_length_are_looked_at_together() {
    let mut program = Program::new();
    step(&mut program, 2);
    step(&mut program, 4);
    let device = checkpoint(&program.dump());
    let block = &device.candidates[0];
    assert_eq!((device.passes, block.calls), (2, 4));
    assert_eq!(block.predicted_peak_bytes as u64, KEPT + 3 * OUTPUT + OUTPUT + GRADIENT);
    assert_eq!(block.recompute_us, Some(3 * 9 * TICK));
}

#[test]
fn a_function_called_once_is_not_a_candidate() {
    let mut program = Program::new();
    step(&mut program, 1);
    let device = checkpoint(&program.dump());
    assert_eq!((device.none, device.passes), (Some(NoCandidates::NothingRepeats), 1));
}

#[test]
fn a_peak_elsewhere_cannot_be_lowered() {
    let mut program = Program::new();
    let large = program.alloc(At::Model(6), 900 * MIB);
    program.free(At::Model(6), large);
    step(&mut program, 3);
    let device = checkpoint(&program.dump());
    assert_eq!((device.none, device.phase), (Some(NoCandidates::NothingSaves), Phase::Forward));
}

#[test]
fn passes_that_do_not_finish_are_refused() {
    // Evaluation: nothing is kept, and no backward follows.
    let mut program = Program::new();
    step(&mut program, 2);
    let (calls, loss) = forward(&mut program, 8);
    for (kept, output) in calls {
        program.free(At::Model(8), kept);
        program.free(At::Model(8), output);
    }
    program.free(At::Model(8), loss);
    assert_eq!(checkpoint(&program.dump()).none, Some(NoCandidates::NoBackward));

    // Out of memory in forward, and in backward.
    for backward in [false, true] {
        let mut program = Program::new();
        step(&mut program, 2);
        let (calls, loss) = forward(&mut program, 8);
        if backward {
            program.alloc(At::Backward, GRADIENT);
        }
        program.oom(if backward { At::Backward } else { At::Model(7) });
        // What Python does with the exception.
        for (kept, output) in calls {
            program.free(At::Model(9), kept);
            program.free(At::Model(9), output);
        }
        program.free(At::Model(9), loss);
        let device = program.dump().checkpoint(&CheckpointOptions::default()).unwrap().devices.swap_remove(0);
        assert_eq!((device.none, device.candidates.len()), (Some(NoCandidates::Unfinished), 0), "{backward}");
    }
}

/// What the backward pass of a step that runs out of memory would have freed is unknown, even if its calls are checkpointed.
#[test]
fn a_later_step_that_fails_limits_what_is_predicted() {
    // Given a step, and a second one that fails in its forward pass,
    let mut program = Program::new();
    step(&mut program, 8);
    forward(&mut program, 6);
    program.oom(At::Model(7));
    let device = program.dump().checkpoint(&CheckpointOptions::default()).unwrap().devices.swap_remove(0);
    // then the second one has the new peak.
    let limit = &device.candidates[0].limit;
    assert_eq!((limit.is_unfinished, limit.phase), (true, Phase::Forward));
}
