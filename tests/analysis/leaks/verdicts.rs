//! The meaning of each verdict, on programs that do one thing.

use super::program::{Held, Program};
use memviz::Recording;
use memviz::analysis::leaks::MIN_STEPS;
use memviz::analysis::leaks::growth::Verdict;
use memviz::analysis::leaks::{DeviceLeaks, LeakOptions};
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::filter::Filter;
use memviz::facts::training::iterations::IterationKind;
use memviz::facts::training::steps::{NoSteps, StepSource};
use memviz::model::Stage;
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;

/// Steps of most programs.
const STEPS: u64 = 20;
/// Lines of their `train.py`.
const MODEL: u64 = 1;
const OPTIMIZER: u64 = 2;
const KEPT: u64 = 7;
const LABEL: &str = "train.py:7 step";

fn leaks(recording: &Recording) -> DeviceLeaks {
    ask(recording, &LeakOptions::default())
}

fn ask(recording: &Recording, options: &LeakOptions) -> DeviceLeaks {
    let mut report = recording.leaks(options).unwrap();
    assert_eq!(report.devices.len(), 1);
    report.devices.remove(0)
}

/// A model, and annotated steps of it with the given body.
fn train(steps: u64, mut step: impl FnMut(&mut Program, u64)) -> Program {
    let mut program = Program::new();
    program.alloc(MODEL, 8 * MIB);
    for number in 0..steps {
        program.annotated(&format!("step_{number}"), |program| {
            program.work(3);
            if number == 0 {
                program.alloc(OPTIMIZER, 16 * MIB);
            }
            step(program, number);
        });
    }
    program
}

/// The verdict, bytes and blocks per step of the line that keeps memory; `None` if it has no row.
fn of_kept(device: &DeviceLeaks) -> Option<(Verdict, u64, f64)> {
    let row = device.rows.iter().find(|row| row.label == LABEL)?;
    Some((row.verdict, row.rate.bytes, row.rate.blocks))
}

#[test]
fn a_block_kept_in_every_step_is_a_leak() {
    // Given a program that keeps 3 MiB and 100 bytes in every step,
    let recording = train(STEPS, |program, _| {
        program.alloc(KEPT, 3 * MIB);
        program.alloc(KEPT, 100);
    });
    // when its leaks are requested,
    let device = leaks(&recording.dump());
    // then they are the first row, with the requested bytes and the bytes of the blocks.
    let row = &device.rows[0];
    assert_eq!((row.label.as_str(), row.verdict), (LABEL, Verdict::Leak));
    assert_eq!((row.rate.bytes, row.rate.allocated_bytes), (3 * MIB + 100, 3 * MIB as i64 + 512));
    assert_eq!((row.rate.blocks, row.live_blocks), (2.0, 2 * STEPS));
    assert_eq!(row.live_bytes, STEPS * (3 * MIB + 100));
    assert_eq!(row.stack, ["torch/nn.py:1 step", LABEL, "train.py:1000 main"]);
    let oldest = row.oldest.unwrap();
    assert_eq!(oldest.step, Some(1));
    assert!(oldest.entry.is_some() && oldest.since_start_us.is_some());
    assert_eq!(device.leaking.bytes, 3 * MIB + 100);
    assert_eq!(device.steps.unwrap().source, StepSource::Annotations("step_N".to_owned()));
    // Memory from before, and from the first step, is not part of it.
    let others: Vec<_> = device.rows[1..].iter().map(|row| (row.verdict, row.live_bytes, row.filled_in_step)).collect();
    assert_eq!(others, [(Verdict::Cache, 16 * MIB, Some(1)), (Verdict::Cache, 8 * MIB, Some(1))]);
}

/// A recording up to the exit of the process shows that `main` returns and frees its variables.
#[test]
fn what_is_kept_until_the_program_exits_is_a_leak() {
    for exits in [true, false] {
        // Given a program that keeps 3 MiB in each of a few steps,
        let mut program = Program::new();
        let model = moved(&mut program, 8 * MIB);
        let kept = keep_in_steps(&mut program);
        // when it frees these blocks after its last step, with its model or without,
        for held in kept {
            program.free(held);
        }
        if exits {
            program.free(model);
        }
        // then that is a leak unless the program goes on.
        let verdict = of_kept(&leaks(&program.dump())).map(|(verdict, ..)| verdict);
        assert_eq!(verdict, Some(if exits { Verdict::Leak } else { Verdict::Cache }));
    }
}

/// Blocks that are older than the recording are the model, so a helper that is freed is not all of it.
#[test]
fn a_helper_module_that_is_freed_is_no_exit() {
    // Given a program that builds its model before the recording starts, so that no stack shows it, and a small module after
    // that,
    let mut program = Program::new();
    for size in [8, 4] {
        program.alloc(0, size * MIB);
    }
    program.start_recording();
    let helper = moved(&mut program, MIB);
    let kept = keep_in_steps(&mut program);
    // when only the small module and what its steps kept are freed in the end,
    for held in kept.into_iter().chain([helper]) {
        program.free(held);
    }
    // then the program goes on.
    let verdict = of_kept(&leaks(&program.dump())).map(|(verdict, ..)| verdict);
    assert_eq!(verdict, Some(Verdict::Cache));
}

/// Weights that `nn.Module.to` allocates.
fn moved(program: &mut Program, size: u64) -> Held {
    let frame = |file: &str, name: &str| (file.to_owned(), name.to_owned(), 1);
    program.alloc_in(&[frame("/opt/torch/nn/modules/module.py", "_apply"), frame("/home/user/train.py", "main")], size)
}

/// Six steps, each of which leaves 3 MiB behind.
fn keep_in_steps(program: &mut Program) -> Vec<Held> {
    let mut kept = Vec::new();
    for number in 0..6 {
        program.annotated(&format!("step_{number}"), |program| {
            program.work(3);
            kept.extend([2, 1].map(|size| program.alloc(KEPT, size * MIB)));
        });
    }
    kept
}

#[test]
fn the_rate_is_not_moved_by_a_few_odd_steps() {
    let recording = train(40, |program, step| {
        program.alloc(KEPT, 2 * MIB);
        if step % 13 == 5 {
            program.alloc(KEPT, 300 * MIB);
        }
    });
    assert_eq!(leaks(&recording.dump()).rows[0].rate.bytes, 2 * MIB);
}

#[test]
fn a_leak_in_every_third_step_is_one() {
    let recording = train(30, |program, step| {
        if step % 3 == 0 {
            program.alloc(KEPT, 3 * MIB);
        }
    });
    let (verdict, bytes, blocks) = of_kept(&leaks(&recording.dump())).unwrap();
    assert_eq!(verdict, Verdict::Leak);
    assert!(bytes.abs_diff(MIB) < MIB / 8 && (blocks - 1.0 / 3.0).abs() < 0.05, "{bytes} {blocks}");
}

#[test]
fn a_leak_is_found_next_to_larger_blocks_of_its_line() {
    // The line also allocates what differs from step to step and outlives it by one.
    let mut last: Option<Held> = None;
    let recording = train(STEPS, |program, step| {
        if let Some(last) = last.take() {
            program.free(last);
        }
        last = Some(program.alloc(KEPT, (100 + step * 37 % 50) * MIB));
        program.alloc(KEPT, MIB);
    });
    assert_eq!(of_kept(&leaks(&recording.dump())), Some((Verdict::Leak, MIB, 1.0)));
}

#[test]
fn blocks_without_a_stack_leak_under_their_own_name() {
    let recording = train(STEPS, |program, _| {
        program.alloc(0, MIB);
    });
    let row = &leaks(&recording.dump()).rows[0];
    assert_eq!((row.label.as_str(), row.verdict, row.rate.bytes), ("(no stack)", Verdict::Leak, MIB));
    assert_eq!(row.stack, [""; 0]);
}

#[test]
fn a_queue_that_is_full_is_a_cache() {
    for length in [1, 10, 21, 22] {
        let mut queue = VecDeque::new();
        let recording = train(30, |program, _| {
            queue.push_back(program.alloc(KEPT, MIB));
            if queue.len() > length {
                program.free(queue.pop_front().unwrap());
            }
        });
        let device = leaks(&recording.dump());
        // A queue of one holds what the last step allocated and nothing else.
        let verdict = if length > 1 { Verdict::Cache } else { Verdict::Renewed };
        assert_eq!(of_kept(&device), Some((verdict, 0, 0.0)), "a queue of {length}");
        assert!(device.leaking.bytes == 0 && device.growing.bytes == 0, "a queue of {length}");
    }
}

#[test]
fn blocks_created_late_and_kept_are_a_cache() {
    for late in 1..5 {
        let recording = train(5, |program, step| {
            if step == late {
                program.alloc(KEPT, MIB);
            }
        });
        let found = of_kept(&leaks(&recording.dump()));
        // Nobody knows yet whether what the last step allocated stays.
        let expected = (late < 4).then_some((Verdict::Cache, 0, 0.0));
        assert_eq!(found, expected, "created in step {late}");
    }
}

#[test]
fn blocks_replaced_in_every_step_do_not_grow() {
    // Gradients: freed when the next step starts, and with another size in every step.
    let mut gradient: Option<Held> = None;
    let recording = train(STEPS, |program, step| {
        if let Some(gradient) = gradient.take() {
            program.free(gradient);
        }
        gradient = Some(program.alloc(KEPT, (1 + step * 7 % 11) * MIB));
    });
    assert_eq!(of_kept(&leaks(&recording.dump())), Some((Verdict::Renewed, 0, 0.0)));
}

#[test]
fn a_buffer_replaced_by_larger_ones_is_growth() {
    // A KV cache grown with `torch.cat`: the new block is allocated before the old one is freed.
    let mut cache: Option<Held> = None;
    let recording = train(STEPS, |program, step| {
        let larger = program.alloc(KEPT, (step + 1) * MIB);
        if let Some(cache) = cache.replace(larger) {
            program.free(cache);
        }
    });
    let device = leaks(&recording.dump());
    assert_eq!(of_kept(&device), Some((Verdict::Growth, MIB, 0.0)));
    assert_eq!((device.leaking.bytes, device.growing.bytes), (0, MIB));
}

#[test]
fn a_buffer_that_is_large_enough_is_a_cache() {
    let mut buffer: Option<Held> = None;
    let recording = train(STEPS, |program, step| {
        if step < 13 {
            let larger = program.alloc(KEPT, (step + 1) * MIB);
            if let Some(buffer) = buffer.replace(larger) {
                program.free(buffer);
            }
        }
    });
    assert_eq!(of_kept(&leaks(&recording.dump())), Some((Verdict::Cache, 0, 0.0)));
}

#[test]
fn growth_that_starts_anew_with_every_request_is_growth() {
    let mut cache: Option<Held> = None;
    let recording = train(60, |program, step| {
        let larger = program.alloc(KEPT, (step % 12 + 1) * MIB);
        if let Some(cache) = cache.replace(larger) {
            program.free(cache);
        }
    });
    assert_eq!(of_kept(&leaks(&recording.dump())), Some((Verdict::Growth, MIB, 0.0)));
}

#[test]
fn blocks_collected_and_freed_at_the_end_are_growth() {
    for every in [1, 2] {
        let mut pile = Vec::new();
        let mut program = train(STEPS, |program, step| {
            pile.push(program.alloc(KEPT, MIB));
            // Memory that the last step still holds does not make up for anything.
            if step == STEPS - 1 {
                program.alloc(KEPT, 100 * MIB);
            }
        });
        for block in pile.into_iter().step_by(every) {
            program.free(block);
        }
        assert_eq!(of_kept(&leaks(&program.dump())), Some((Verdict::Growth, MIB, 1.0)), "one in {every} is freed");
    }
}

#[test]
fn lengths_that_differ_raise_no_alarm() {
    for seed in 1..20u64 {
        let mut batch: Option<Held> = None;
        let mut random = seed;
        let recording = train(12, |program, _| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = 1 + (random >> 33) % 40;
            program.work(length);
            if let Some(batch) = batch.take() {
                program.free(batch);
            }
            batch = Some(program.alloc(KEPT, length * MIB));
        });
        let device = leaks(&recording.dump());
        assert!(!device.rows.iter().any(|row| row.verdict.grows()), "seed {seed}: {:?}", device.rows);
    }
}

#[test]
fn a_rate_stays_exact_over_more_steps_than_are_looked_at() {
    for steps in [256, 257, 258, 700, 701] {
        let recording = train(steps, |program, _| {
            program.alloc(KEPT, 1000);
        });
        let device = leaks(&recording.dump());
        assert_eq!(of_kept(&device), Some((Verdict::Leak, 1000, 1.0)), "{steps} steps");
        assert_eq!(device.step_count() as u64, steps);
        assert!(device.ends.len() <= 256);
        assert_eq!(device.ends.last().map(|end| end.step as u64), Some(steps), "the last end is looked at");
        assert_eq!(device.rows[0].live_blocks, steps);
        assert_eq!(device.rows[0].oldest.and_then(|oldest| oldest.step), Some(1));
    }
}

#[test]
fn memory_from_before_the_recording_neither_grows_nor_leaks() {
    let mut program = Program::new();
    for _ in 0..50 {
        program.alloc(KEPT, MIB);
    }
    program.start_recording();
    for step in 0..STEPS {
        program.annotated(&format!("step_{step}"), |program| program.work(2));
    }
    let device = leaks(&program.dump());
    assert!(device.is_judged() && device.completeness.has_baseline);
    assert_eq!(device.rows, []);
}

// ------------------------------------------------------------------ steps

/// A backward pass, which has no stack.
fn backward(program: &mut Program) {
    let gradient = program.alloc(0, MIB);
    program.free(gradient);
}

#[test]
fn too_few_steps_give_no_verdict() {
    for steps in 0..=MIN_STEPS as u64 {
        let recording = train(steps, |program, _| {
            program.alloc(KEPT, MIB);
        });
        let device = leaks(&recording.dump());
        assert_eq!(device.step_count() as u64, steps);
        assert_eq!(device.is_judged(), steps == MIN_STEPS as u64, "{steps} steps");
        assert_eq!(of_kept(&device).is_some(), steps == MIN_STEPS as u64, "{steps} steps");
    }
}

#[test]
fn degenerate_recordings_have_no_leaks() {
    // No segments and no entries: not even a device.
    assert_eq!(Program::new().dump().leaks(&LeakOptions::default()).unwrap().devices.len(), 0);
    // One block.
    let mut program = Program::new();
    program.alloc(KEPT, MIB);
    let device = leaks(&program.dump());
    assert_eq!((device.steps, device.rows), (Err(NoSteps::Unknown), vec![]));
    // A snapshot without history.
    let mut program = Program::new();
    program.alloc(KEPT, MIB);
    program.start_recording();
    let device = leaks(&program.dump());
    assert_eq!((device.steps, device.rows), (Err(NoSteps::NoHistory), vec![]));
    // Everything is free in the end, and at the end of every step.
    let device = leaks(&{
        let mut program = Program::new();
        for step in 0..STEPS {
            program.annotated(&format!("step_{step}"), |program| program.work(1));
        }
        program.dump()
    });
    assert!(device.is_judged());
    assert_eq!(device.rows, []);
    // Steps in which nothing happens.
    let mut program = Program::new();
    program.alloc(KEPT, MIB);
    for step in 0..STEPS {
        program.annotated(&format!("step_{step}"), |_| ());
    }
    program.alloc(KEPT, MIB);
    let device = leaks(&program.dump());
    assert_eq!(device.step_count() as u64, STEPS);
    assert_eq!((device.leaking.bytes, device.growing.bytes), (0, 0));
}

#[test]
fn steps_are_inferred_where_nothing_names_them() {
    let mut program = Program::new();
    program.alloc(MODEL, 8 * MIB);
    for step in 0..STEPS {
        // Batches differ in length, so sizes do not repeat, but places do.
        program.work(1 + step * 5 % 7);
        if step == 0 {
            for _ in 0..40 {
                program.alloc(OPTIMIZER, MIB);
            }
        }
        // Nor is their number always the same.
        for _ in 0..step % 3 {
            let more = program.alloc(MODEL, 512);
            program.free(more);
        }
        program.alloc(KEPT, 3 * MIB);
        backward(&mut program);
    }
    let device = leaks(&program.dump());
    assert_eq!(of_kept(&device), Some((Verdict::Leak, 3 * MIB, 1.0)));
    let steps = device.steps.unwrap();
    assert_eq!(steps.source, StepSource::Inferred { kind: IterationKind::Backward, site: None });
    assert!(steps.source.is_inferred());
    assert_eq!(steps.len() as u64, STEPS);
}

#[test]
fn without_stacks_nothing_tells_steps() {
    let mut program = Program::new();
    for _ in 0..STEPS {
        let temporaries: Vec<Held> = (1..=12).map(|layer| program.alloc(0, layer * 512)).collect();
        for temporary in temporaries {
            program.free(temporary);
        }
        program.alloc(0, 3 * MIB);
    }
    let device = leaks(&program.dump());
    assert_eq!((device.steps, device.rows), (Err(NoSteps::Unknown), vec![]));
}

/// A loop that neither trains nor calls a model may accumulate memory on purpose.
#[test]
fn a_loop_of_anything_leaks_nothing() {
    let mut program = Program::new();
    let mut cache = program.alloc(KEPT, MIB);
    for length in 2..=STEPS {
        // Read one part after the other,
        program.work(1);
        program.alloc(MODEL, 4 * MIB);
        // and keep all lengths in a block that is replaced by a larger one.
        let longer = program.alloc(KEPT, length * MIB);
        program.free(cache);
        cache = longer;
    }
    let device = leaks(&program.dump());
    assert_eq!(device.step_count() as u64, STEPS - 1);
    assert!(device.is_judged() && !device.tells_leaks());
    let verdicts: Vec<_> = device.rows.iter().map(|row| (row.label.as_str(), row.verdict)).collect();
    assert_eq!(verdicts, [(LABEL, Verdict::Growth)]);
    assert_eq!(device.leaking.bytes, 0);
}

#[test]
fn a_loop_over_tensors_is_not_a_step() {
    let mut program = Program::new();
    for _ in 0..200 {
        program.alloc(KEPT, MIB);
    }
    assert_eq!(leaks(&program.dump()).steps, Err(NoSteps::Unknown));
}

#[test]
fn the_first_iteration_may_be_longer() {
    let mut program = Program::new();
    for step in 0..MIN_STEPS {
        program.work(1);
        // Optimizer state, after the last place that every round passes.
        if step == 0 {
            for _ in 0..40 {
                program.alloc(OPTIMIZER, MIB);
            }
        }
        backward(&mut program);
    }
    assert_eq!(leaks(&program.dump()).step_count(), MIN_STEPS);
}

#[test]
fn layers_of_a_single_step_are_not_steps() {
    let mut program = Program::new();
    for _ in 0..8 {
        program.work(1);
    }
    // The backward pass has no stacks, and is the larger part.
    for _ in 0..120 {
        program.alloc(0, MIB);
    }
    let device = leaks(&program.dump());
    assert_eq!((device.step_count(), device.is_judged()), (1, false));
}

#[test]
fn the_outermost_loop_is_the_step() {
    let mut program = Program::new();
    for _ in 0..STEPS {
        (0..6).for_each(|_| program.work(1));
        program.alloc(KEPT, MIB);
        backward(&mut program);
    }
    let device = leaks(&program.dump());
    assert_eq!(device.step_count() as u64, STEPS, "six layers are one step");
    assert_eq!(of_kept(&device), Some((Verdict::Leak, MIB, 1.0)));
}

/// Which nested annotations are steps, and how many there are.
#[test]
fn annotations_that_look_most_like_steps_are_taken() {
    let found = |names: [&str; 3]| {
        let mut program = Program::new();
        for step in 0..STEPS {
            let name = |index: usize| names[index].replace('N', &step.to_string());
            program.annotated(&name(0), |program| {
                program.annotated(&name(1), |program| program.work(1));
                program.annotated(&name(2), |program| program.work(1));
                program.annotated(&name(2), |program| program.work(1));
            });
        }
        let steps = leaks(&program.dump()).steps.unwrap();
        assert_eq!(steps.len() as u64, STEPS, "{names:?}");
        match steps.source {
            StepSource::Annotations(name) => name,
            other => panic!("{names:?}: {other:?}"),
        }
    };
    assert_eq!(found(["ProfilerStep#N", "step_N", "forward"]), "ProfilerStep#N");
    assert_eq!(found(["outer", "step_N", "Optimizer.step#SGD.step"]), "step_N");
    assert_eq!(found(["outer", "Training Iteration N", "part"]), "Training Iteration N");
    assert_eq!(found(["step", "forward", "backward"]), "step");
    // Layers are numbered, too.
    assert_eq!(found(["train_step", "layer_N", "backward"]), "train_step");
    assert_eq!(found(["training step", "pad_mm_benchmark_step (dynamo_timed)", "backward"]), "training step");
}

#[test]
fn a_range_around_all_steps_is_not_a_step() {
    let mut program = Program::new();
    program.annotated("run", |program| {
        for _ in 0..STEPS {
            program.annotated("train_batch", |program| program.work(1));
        }
    });
    let steps = leaks(&program.dump()).steps.unwrap();
    assert_eq!((steps.len() as u64, steps.source), (STEPS, StepSource::Annotations("train_batch".to_owned())));
}

/// PyTorch's own annotations of its compiler, data loaders and operators, and names that people give to parts of a step.
#[test]
fn other_ranges_are_not_steps() {
    for name in [
        "CachingAutotuner.benchmark_all_configs (dynamo_timed)",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "autograd::engine::evaluate_function: AddBackward0",
        "forward",
        "layer_7",
    ] {
        let mut program = Program::new();
        for _ in 0..6 {
            program.annotated(name, |program| program.work(1));
            program.alloc(KEPT, MIB);
        }
        let device = leaks(&program.dump());
        assert!(!device.is_judged(), "{name}: {:?}", device.steps);
        assert_eq!(device.rows, [], "{name}");
    }
}

/// Ranges that are named like steps but train nothing are not steps: neither warm-up of a profiler nor evaluation.
#[test]
fn there_are_no_more_training_steps_than_backward_passes() {
    let mut program = Program::new();
    for step in 0..STEPS {
        program.annotated(&format!("step_{step}"), |program| {
            program.work(1);
            if step % 2 == 1 {
                backward(program);
            }
        });
    }
    let steps = leaks(&program.dump()).steps.unwrap();
    assert_eq!((steps.len() as u64, steps.left_out as u64), (STEPS / 2, STEPS / 2));
}

#[test]
fn steps_that_one_asks_for_are_taken() {
    let mut program = Program::new();
    for epoch in 0..5 {
        program.annotated(&format!("epoch {epoch}"), |program| {
            for step in 0..10 {
                program.annotated(&format!("step_{step}"), |program| {
                    program.work(1);
                    program.alloc(KEPT, MIB);
                });
            }
        });
    }
    let recording = program.dump();
    let options = |pattern: &str| LeakOptions::default().steps(Some(pattern.parse().unwrap()));
    let found = |pattern: &str| {
        let device = ask(&recording, &options(pattern));
        (device.step_count(), of_kept(&device))
    };
    assert_eq!(leaks(&recording).step_count(), 50);
    assert_eq!(found("^epoch"), (5, Some((Verdict::Leak, 10 * MIB, 10.0))));
    assert_eq!(found("^step_9$"), (5, Some((Verdict::Leak, 10 * MIB, 10.0))));
    assert_eq!(found("epoch|step").0, 5, "ranges inside others are part of them");
    assert_eq!(found("epoch 3").0, 1);
    let error = recording.leaks(&options("^batch")).unwrap_err().to_string();
    assert!(error.contains("^batch") && error.contains("epoch 0"), "{error}");
}

#[test]
fn steps_that_were_over_before_the_recording_are_left_out() {
    let mut program = Program::new();
    program.annotated("step_0", |_| ());
    for step in 1..10 {
        program.annotated(&format!("step_{step}"), |program| program.work(1));
    }
    assert_eq!(leaks(&program.dump()).step_count(), 9);
}

#[test]
fn a_lost_end_or_start_costs_no_other_step() {
    let mut program = Program::new();
    for step in 0..STEPS {
        let name = format!("step_{step}");
        if step != 12 {
            program.annotate(Stage::Start, &name);
        }
        program.work(1);
        program.alloc(KEPT, MIB);
        if step != 5 {
            program.annotate(Stage::End, &name);
        }
    }
    let device = leaks(&program.dump());
    assert_eq!(device.step_count() as u64, STEPS - 1);
    assert_eq!(of_kept(&device), Some((Verdict::Leak, MIB, 1.0)));
}

#[test]
fn steps_without_an_end_are_left_out() {
    let mut program = Program::new();
    program.annotate(Stage::End, "step_0");
    program.alloc(MODEL, MIB);
    program.annotate(Stage::End, "step_1");
    for step in 2..10 {
        program.annotated(&format!("step_{step}"), |program| program.work(1));
    }
    program.annotate(Stage::Start, "step_10");
    program.work(1);
    assert_eq!(leaks(&program.dump()).step_count(), 9);
}

// ------------------------------------------------------------------ groups, capacity

#[test]
fn rows_follow_the_requested_grouping() {
    let recording = train(STEPS, |program, _| {
        program.alloc(KEPT, MIB);
        program.alloc(KEPT + 1, 2 * MIB);
    });
    let recording = recording.dump();
    let found = |by| {
        let device = ask(&recording, &LeakOptions::default().by(by));
        let leaking = device.rows.into_iter().filter(|row| row.verdict == Verdict::Leak);
        leaking.map(|row| (row.label, row.rate.bytes)).collect::<Vec<_>>()
    };
    let row = |label: &str, bytes| (label.to_owned(), bytes);
    let by_line = [row("train.py:8 step", 2 * MIB), row(LABEL, MIB)];
    assert_eq!(found(GroupBy::Site), by_line);
    assert_eq!(found(GroupBy::Stack), by_line);
    assert_eq!(found(GroupBy::File), [row("/home/user/train.py", 3 * MIB)]);
    assert_eq!(found(GroupBy::Module).len(), 1);
    for by in [GroupBy::Function, GroupBy::Stream, GroupBy::Pool, GroupBy::Annotation] {
        let error = recording.leaks(&LeakOptions::default().by(by)).unwrap_err().to_string();
        assert!(error.contains(by.name()), "{error}");
    }
}

#[test]
fn the_stack_is_that_of_the_leak() {
    // Of all that one file allocates the leak is the smallest part, and the oldest block is of another line.
    let recording = train(STEPS, |program, _| {
        program.alloc(KEPT, 100);
    });
    let device = ask(&recording.dump(), &LeakOptions::default().by(GroupBy::File));
    let row = &device.rows[0];
    assert_eq!((row.verdict, row.rate.bytes), (Verdict::Leak, 100));
    assert_eq!(row.stack[1], LABEL);
    assert_eq!(row.live_bytes, 24 * MIB + STEPS * 100);
    let entry = row.oldest.unwrap().entry.unwrap();
    assert!(entry > 2, "the model is older: {entry}");
}

#[test]
fn a_cache_is_as_large_as_its_blocks() {
    // The same line allocates something that the next step frees.
    let mut gradient: Option<Held> = None;
    let recording = train(STEPS, |program, step| {
        if let Some(gradient) = gradient.take() {
            program.free(gradient);
        }
        gradient = Some(program.alloc(KEPT, 50 * MIB));
        if step == 0 {
            program.alloc(KEPT, MIB);
        }
    });
    let device = leaks(&recording.dump());
    let row = device.rows.iter().find(|row| row.label == LABEL).unwrap();
    assert_eq!((row.verdict, row.live_bytes, row.live_blocks), (Verdict::Cache, MIB, 1));
}

#[test]
fn filters_and_top_leave_rows_out() {
    let recording = train(STEPS, |program, _| {
        program.alloc(KEPT, MIB);
        program.alloc(KEPT + 1, 2 * MIB);
    });
    let recording = recording.dump();
    let filter = Filter::new(&[], &["train.py:8".to_owned()]).unwrap();
    let device = ask(&recording, &LeakOptions::default().filter(filter));
    assert_eq!((device.rows[0].label.as_str(), device.leaking.bytes), (LABEL, MIB));
    let device = ask(&recording, &LeakOptions::default().top(Some(1)));
    assert_eq!((device.rows.len(), device.left_out), (1, 3));
    assert_eq!(device.leaking.bytes, 3 * MIB, "sums are those of all rows");
}

#[test]
fn the_device_is_full_in_so_many_steps() {
    let program = |oom: Option<u64>| {
        let mut program = train(STEPS, |program, _| {
            program.alloc(KEPT, MIB);
        });
        if let Some(free) = oom {
            program.oom(free);
        }
        program.dump()
    };
    let project =
        |recording: &Recording, capacity| ask(recording, &LeakOptions::default().capacity(capacity)).projection;
    // Model, optimizer state and leak, and the temporary memory of a step.
    let held = (8 + 16 + STEPS) * MIB;
    let work = (1..=12).sum::<u64>() * 3 * 512;
    let peak = held - MIB + work;
    let recording = program(None);
    assert_eq!(project(&recording, None), None, "the capacity is not known");
    let projection = project(&recording, Some(held + 100 * MIB)).unwrap();
    assert_eq!(projection.peak_bytes, peak.max(held) as i64);
    assert_eq!((projection.allocated_bytes_per_step, projection.steps), (MIB as i64, 100));
    assert_eq!(project(&recording, Some(held + MIB - 1)).unwrap().steps, 0);
    assert_eq!(project(&recording, Some(1)).unwrap().steps, 0, "a capacity that is too small already");
    // What the program had reserved when it ran out of memory, and what the driver had left.
    let projection = project(&program(Some(10 * MIB)), None).unwrap();
    assert_eq!((projection.capacity_bytes, projection.steps), (held + 10 * MIB, 10));
    // An explicit capacity takes precedence.
    assert_eq!(project(&program(Some(10 * MIB)), Some(held + 5 * MIB)).unwrap().steps, 5);
    // Nothing grows, so the device never becomes full.
    assert_eq!(project(&train(STEPS, |_, _| ()).dump(), Some(80 << 30)), None);
}
