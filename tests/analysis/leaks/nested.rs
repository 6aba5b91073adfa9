//! Programs that call one function after the other, nested at will, and never run a loop: nothing in them is a step.

use super::program::Program;
use memviz::analysis::leaks::LeakOptions;
use memviz::facts::training::steps::NoSteps;
use proptest::collection::vec;
use proptest::prelude::*;

const MODULE: &str = "/opt/site-packages/torch/nn/modules/module.py";

/// What a function does on one of its lines.
#[derive(Clone, Debug)]
enum Line {
    /// Allocates, and gives the block back at the end of the function or never.
    Alloc { size: u64, stays: bool },
    /// Calls one of the functions after it.
    Call(usize),
}

/// A function, or the `forward` of a module.
#[derive(Clone, Debug)]
struct Function {
    is_module: bool,
    lines: Vec<Line>,
}

fn functions() -> impl Strategy<Value = Vec<Function>> {
    let alloc = (1..1u64 << 20, any::<bool>()).prop_map(|(size, stays)| Line::Alloc { size, stays });
    let line = prop_oneof![2 => alloc, 3 => (0..8usize).prop_map(Line::Call)];
    let function = (any::<bool>(), vec(line, 1..6));
    vec(function.prop_map(|(is_module, lines)| Function { is_module, lines }), 1..7)
}

/// Runs a function; `around` are the frames that call it, innermost first. Every line number is unique.
fn run(program: &mut Program, functions: &[Function], index: usize, around: &[(String, String, u64)]) {
    let function = &functions[index];
    let mut temporary = Vec::new();
    for (number, line) in function.lines.iter().enumerate() {
        let name = if function.is_module { "forward".to_owned() } else { format!("function_{index}") };
        let mut frames = vec![("/home/user/model.py".to_owned(), name, (index * 100 + number) as u64)];
        if function.is_module {
            frames.push((MODULE.to_owned(), "_call_impl".to_owned(), 1790));
            frames.push((MODULE.to_owned(), "_wrapped_call_impl".to_owned(), 1779));
        }
        frames.extend_from_slice(around);
        match *line {
            Line::Alloc { size, stays } => {
                let held = program.alloc_in(&frames, size);
                temporary.extend((!stays).then_some(held));
            }
            Line::Call(further) => {
                let callee = index + 1 + further;
                if callee < functions.len() {
                    run(program, functions, callee, &frames);
                }
            }
        }
    }
    for held in temporary {
        program.free(held);
    }
}

proptest! {
    #[test]
    fn nested_calls_without_a_loop_are_not_steps(functions in functions(), trains in any::<bool>()) {
        // Given a program that calls functions and modules from separate lines, and perhaps runs backward once,
        let mut program = Program::new();
        let main = ("/home/user/model.py".to_owned(), "main".to_owned(), 1000);
        run(&mut program, &functions, 0, &[main]);
        let was_run = program.has_entries();
        if trains && was_run {
            (0..20).for_each(|_| { program.alloc(0, 1 << 20); });
        }
        // when its steps are requested,
        let recording = program.dump();
        let report = recording.leaks(&LeakOptions::default()).unwrap();
        // then there are none, except the one step for a single backward pass.
        if let Some(device) = report.devices.first() {
            match &device.steps {
                Ok(steps) => prop_assert!(trains && steps.len() <= 1, "{steps:?}"),
                Err(reason) => prop_assert_eq!(*reason, NoSteps::Unknown),
            }
            prop_assert!(device.rows.is_empty());
        }
    }
}
