//! The part of a training step that a stack belongs to.

use crate::facts::code::frames::{FrameKind, installed_path};
use crate::facts::code::sites::Sites;
use crate::model::{Frame, FrameId, Snapshot, StackId};
use std::collections::HashSet;

/// The part of a program that a stack belongs to, as far as the stack alone shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No frames, or no informative ones. The autograd engine's threads have no Python frames.
    Silent,
    /// Python code without any of the marks below.
    Plain,
    /// Inside a call of an `nn.Module`.
    Module,
    /// Building a model or moving it to the device.
    Setup,
    /// Loading data.
    Data,
    /// The autograd engine, or Python code that it calls.
    Backward,
    /// A forward that runs again in backward: activation checkpointing.
    Recompute,
    /// An optimizer, gradient scaling or gradient clipping.
    Optimizer,
    /// Freeing or clearing gradients.
    ZeroGrad,
}

/// The meaning of single frames, as bits.
mod mark {
    pub const PYTHON: u32 = 1;
    pub const MODULE_CALL: u32 = 1 << 1;
    pub const SETUP: u32 = 1 << 2;
    pub const DATA: u32 = 1 << 3;
    pub const BACKWARD: u32 = 1 << 4;
    pub const RECOMPUTE: u32 = 1 << 5;
    pub const OPTIMIZER: u32 = 1 << 6;
    pub const ZERO_GRAD: u32 = 1 << 7;
    pub const CHECKPOINT: u32 = 1 << 8;
    pub const AUTOCAST: u32 = 1 << 9;
    /// Backward if it is the outermost Python frame: code that the engine calls.
    pub const ENGINE_ROOT: u32 = 1 << 10;
    pub const FIRST_GRADIENTS: u32 = 1 << 11;
    /// Where Python code calls the engine.
    pub const ENGINE_CALL: u32 = 1 << 12;
    /// A `forward` outside PyTorch: called through a module or directly.
    pub const FORWARD: u32 = 1 << 13;
    /// Where `torch.autograd.Function` calls the user's code.
    pub const FUNCTION_CALL: u32 = 1 << 14;
    /// The closure that an optimizer runs: a forward and a backward pass.
    pub const CLOSURE: u32 = 1 << 15;
    /// A user's own function named `step`.
    pub const STEP: u32 = 1 << 16;
    /// `nn.Module._apply`: a module is moved or cast.
    pub const MOVE: u32 = 1 << 17;
    /// `torch.nn.functional`.
    pub const FUNCTIONAL: u32 = 1 << 18;
}

/// The marks of every frame and stack of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    frames: Vec<u32>,
    stacks: Vec<u32>,
    /// The role of each stack, which is needed for every entry.
    of_stack: Vec<Role>,
}

impl Roles {
    /// Reads every frame and every stack once.
    pub fn of(sites: &Sites<'_>) -> Self {
        let snapshot = sites.snapshot();
        let frame = |id: u32| {
            let data = snapshot.stacks.frame(FrameId(id))?;
            Some(marks(snapshot, data, sites.kind(FrameId(id))))
        };
        let frames: Vec<u32> = (0..snapshot.stacks.frame_count() as u32).map(|id| frame(id).unwrap_or(0)).collect();
        let stack = |id: u32| {
            let mut all = 0;
            let (mut innermost, mut outermost, mut is_nested, mut before) = (None, 0, false, 0);
            for frame in snapshot.stacks.frame_ids(StackId(id)) {
                let mut marks = frames.get(frame.index()).copied().unwrap_or(0);
                // Reentrant checkpointing recomputes a part of forward, and then runs the engine on it.
                if all & mark::BACKWARD != 0 && marks & mark::RECOMPUTE != 0 {
                    (is_nested, marks) = (true, marks & !mark::RECOMPUTE);
                }
                // A closure or a module that the optimizer calls does not belong to the optimizer.
                if all & (mark::CLOSURE | mark::MODULE_CALL | mark::FORWARD) != 0 {
                    marks &= !mark::OPTIMIZER;
                }
                // A user's `autograd.Function` has a `forward`, too, which does not belong to a module.
                if before & mark::FORWARD != 0 && marks & mark::FUNCTION_CALL == 0 {
                    all |= mark::FORWARD;
                }
                before = marks;
                all |= marks & !mark::FORWARD;
                if marks & mark::PYTHON != 0 {
                    innermost = innermost.or(Some(marks));
                    outermost = marks;
                }
            }
            all |= before & mark::FORWARD;
            all &= !(mark::ENGINE_ROOT | mark::ENGINE_CALL);
            if outermost & mark::ENGINE_ROOT != 0 {
                all |= mark::BACKWARD;
            }
            if is_nested && innermost.is_some_and(|marks| marks & mark::ENGINE_CALL != 0) {
                all |= mark::ENGINE_CALL;
            }
            all
        };
        let stacks = (0..snapshot.stacks.len() as u32).map(stack).collect();
        let mut roles = Self { frames, stacks, of_stack: Vec::new() };
        roles.tell_steps_from_optimizers(snapshot);
        roles.of_stack = roles.stacks.iter().map(|&marks| role(marks)).collect();
        roles
    }

    /// A `step` that calls modules, `backward` or one of PyTorch's optimizers is a training step, not an optimizer's.
    fn tell_steps_from_optimizers(&mut self, snapshot: &Snapshot) {
        const PARTS: u32 = mark::MODULE_CALL | mark::FORWARD | mark::BACKWARD | mark::OPTIMIZER | mark::ZERO_GRAD;
        let function = |id: FrameId| snapshot.stacks.frame(id).map(|frame| (frame.filename, frame.name));
        let mut trains = HashSet::new();
        for (id, &marks) in (0..).zip(&self.stacks) {
            if marks & mark::STEP != 0 && marks & PARTS != 0 {
                let frames = snapshot.stacks.frame_ids(StackId(id)).iter();
                trains
                    .extend(frames.filter(|&&frame| self.frame_marks(frame) & mark::STEP != 0).map(|&id| function(id)));
            }
        }
        for id in 0..self.stacks.len() as u32 {
            let mut frames = snapshot.stacks.frame_ids(StackId(id)).iter();
            let is_optimizer =
                |&id: &FrameId| self.frame_marks(id) & mark::STEP != 0 && !trains.contains(&function(id));
            if self.stacks[id as usize] & mark::STEP != 0 && !frames.any(is_optimizer) {
                self.stacks[id as usize] &= !mark::STEP;
            }
        }
    }

    /// Whether a stack contains a user's own `step` that calls neither a module nor `backward`.
    pub fn is_plain_step(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::STEP != 0
    }

    /// Whether a stack contains `torch.nn.functional`.
    pub fn is_functional(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::FUNCTIONAL != 0
    }

    /// Whether any stack is part of a backward pass or an optimizer.
    pub fn trains(&self) -> bool {
        const TRAINING: u32 = mark::BACKWARD | mark::OPTIMIZER | mark::ZERO_GRAD;
        self.stacks.iter().any(|marks| marks & TRAINING != 0)
    }

    pub fn role(&self, stack: StackId) -> Role {
        self.of_stack.get(stack.index()).copied().unwrap_or(Role::Silent)
    }

    /// Whether a module is moved or cast outside all calls of modules.
    pub fn moves_module(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::MOVE != 0 && self.role(stack) == Role::Setup
    }

    /// Whether a stack contains `torch.utils.checkpoint`.
    pub fn is_checkpointed(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::CHECKPOINT != 0
    }

    /// Whether a stack contains the end of an autocast region.
    pub fn leaves_autocast(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::AUTOCAST != 0
    }

    /// Whether a frame is where `nn.Module` calls a `forward`.
    pub fn is_module_call(&self, frame: FrameId) -> bool {
        self.frames.get(frame.index()).is_some_and(|marks| marks & mark::MODULE_CALL != 0)
    }

    /// Whether a module is called here: by `nn.Module`, or by calling its `forward` directly.
    pub fn is_module(&self, frame: FrameId) -> bool {
        self.frame_marks(frame) & (mark::MODULE_CALL | mark::FORWARD) != 0
    }

    /// Whether a phase of training starts at this frame, as seen from the program's loop.
    pub fn begins_phase(&self, frame: FrameId) -> bool {
        const PHASES: u32 = mark::MODULE_CALL
            | mark::FORWARD
            | mark::FUNCTION_CALL
            | mark::BACKWARD
            | mark::RECOMPUTE
            | mark::CHECKPOINT
            | mark::OPTIMIZER
            | mark::ZERO_GRAD;
        self.frame_marks(frame) & PHASES != 0
    }

    /// Whether a frame belongs to `torch.utils.checkpoint`.
    pub fn is_checkpoint(&self, frame: FrameId) -> bool {
        self.frames.get(frame.index()).is_some_and(|marks| marks & mark::CHECKPOINT != 0)
    }

    /// Whether the autograd engine runs here without Python code in between, so that the stack does not show what the memory
    /// is for: on its own threads, or in reentrant checkpointing.
    pub fn is_engine(&self, stack: StackId) -> bool {
        let marks = self.marks(stack);
        let silent = marks & mark::PYTHON == 0 && (stack == StackId::EMPTY || marks & mark::BACKWARD != 0);
        silent || marks & mark::ENGINE_CALL != 0
    }

    /// Whether a call of `backward` starts here: the initial gradients are created.
    pub fn makes_first_gradients(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::FIRST_GRADIENTS != 0
    }

    /// Whether a stack has Python frames.
    pub fn has_python(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::PYTHON != 0
    }

    /// Whether a stack belongs to Python code outside backward.
    pub(crate) fn is_outside(&self, stack: StackId) -> bool {
        self.has_python(stack) && !matches!(self.role(stack), Role::Backward | Role::Recompute)
    }

    fn frame_marks(&self, frame: FrameId) -> u32 {
        self.frames.get(frame.index()).copied().unwrap_or(0)
    }

    fn marks(&self, stack: StackId) -> u32 {
        self.stacks.get(stack.index()).copied().unwrap_or(0)
    }
}

/// The role of a stack with these marks.
fn role(marks: u32) -> Role {
    let has = |wanted: u32| marks & wanted != 0;
    if has(mark::RECOMPUTE) {
        Role::Recompute
    } else if has(mark::BACKWARD) {
        Role::Backward
    } else if has(mark::ZERO_GRAD) {
        Role::ZeroGrad
    } else if has(mark::OPTIMIZER) {
        Role::Optimizer
    } else if has(mark::MODULE_CALL | mark::FORWARD) {
        Role::Module
    } else if has(mark::DATA) {
        Role::Data
    } else if has(mark::SETUP) {
        Role::Setup
    } else if has(mark::PYTHON) {
        Role::Plain
    } else {
        Role::Silent
    }
}

/// The marks of a frame, by file and function in PyTorch's source (2.0 to 2.15).
fn marks(snapshot: &Snapshot, frame: &Frame, kind: FrameKind) -> u32 {
    let name = snapshot.strings.get(frame.name);
    if kind == FrameKind::Backward {
        return mark::BACKWARD;
    }
    if kind == FrameKind::NnModule {
        return mark::MODULE_CALL;
    }
    if !kind.is_python() {
        // Ranges that PyTorch's own code opens in traces, and the engine's functions in C++ stacks.
        let engine = name.contains("torch::autograd::Engine::")
            || name.contains("torch::autograd::python::PythonEngine")
            || name.starts_with("autograd::engine::evaluate_function");
        return match name {
            _ if engine => mark::BACKWARD,
            _ if kind == FrameKind::Operator && name.starts_with("Optimizer.step#") => mark::OPTIMIZER,
            _ if kind == FrameKind::Operator && name.starts_with("Optimizer.zero_grad#") => mark::ZERO_GRAD,
            _ => 0,
        };
    }
    let file = snapshot.strings.get(frame.filename);
    let path = installed_path(file).unwrap_or("");
    let path = path.replace('\\', "/");
    // Programs do not start inside PyTorch, except for those that it starts itself: other stacks that start there are the
    // engine's.
    let starts_programs = ["torch/distributed/", "torch/multiprocessing/", "torch/utils/data/"];
    let engine = kind == FrameKind::Torch && !starts_programs.iter().any(|program| path.starts_with(program));
    mark::PYTHON | python_marks(&path, name, kind) | if engine { mark::ENGINE_ROOT } else { 0 }
}

fn python_marks(path: &str, name: &str, kind: FrameKind) -> u32 {
    let scaler = path.ends_with("amp/grad_scaler.py");
    match (path, name) {
        (_, "zero_grad") => mark::ZERO_GRAD,
        ("torch/nn/modules/module.py", "_call_impl" | "_slow_forward" | "inner") => mark::MODULE_CALL,
        ("torch/nn/modules/module.py", "_apply") => mark::SETUP | mark::MOVE,
        ("torch/nn/modules/module.py", "convert") | ("torch/nn/init.py" | "torch/nn/parameter.py", _) => mark::SETUP,
        ("torch/autograd/function.py", "apply") => mark::FUNCTION_CALL,
        ("torch/nn/functional.py", _) => mark::FUNCTIONAL,
        ("torch/_tensor.py", "backward") => mark::BACKWARD,
        ("torch/autograd/__init__.py", "_make_grads") => mark::BACKWARD | mark::FIRST_GRADIENTS,
        ("torch/autograd/__init__.py", "backward" | "grad") | ("torch/autograd/graph.py", "_engine_run_backward") => {
            mark::BACKWARD | mark::ENGINE_CALL
        }
        // In 2.0 to 2.15, the hooks that recompute a forward are named `unpack` and `unpack_hook`; the reentrant variant does
        // it in `CheckpointFunction.backward`.
        ("torch/utils/checkpoint.py", "unpack" | "unpack_hook" | "backward" | "recompute_fn") => {
            mark::CHECKPOINT | mark::RECOMPUTE
        }
        ("torch/utils/checkpoint.py", _) => mark::CHECKPOINT,
        ("torch/amp/autocast_mode.py" | "torch/cuda/amp/autocast_mode.py", "__exit__") => mark::AUTOCAST,
        (_, "step" | "update" | "unscale_" | "_unscale_grads_" | "_maybe_opt_step") if scaler => mark::OPTIMIZER,
        ("torch/nn/utils/clip_grad.py", _) => mark::OPTIMIZER,
        (path, _) if path.starts_with("torch/optim/") => mark::OPTIMIZER,
        (path, "step") if kind == FrameKind::Package && path.contains("optim") => mark::OPTIMIZER,
        (path, _) if path.starts_with("torch/utils/data/") => mark::DATA,
        (path, _) if path.starts_with("torch/_functorch/") && name == "backward" => mark::BACKWARD,
        (_, "__init__" | "reset_parameters" | "_reset_parameters") => mark::SETUP,
        (_, "forward") if kind != FrameKind::Torch => mark::FORWARD,
        (_, "closure") => mark::CLOSURE,
        (_, "step") if kind == FrameKind::User => mark::STEP,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(frames: &[(&str, &str)]) -> Role {
        let mut snapshot = Snapshot::default();
        let mut ids = Vec::new();
        for &(file, name) in frames {
            let filename = snapshot.strings.intern(file);
            let name = snapshot.strings.intern(name);
            ids.push(snapshot.stacks.intern_frame(Frame { filename, name, line: 7, fx: None }));
        }
        let stack = snapshot.stacks.intern_stack(&ids);
        Roles::of(&Sites::new(&snapshot)).role(stack)
    }

    #[test]
    fn stacks_have_roles() {
        let torch = |rest: &str| format!("/venv/lib/python3.11/site-packages/torch/{rest}");
        let call = torch("nn/modules/module.py");
        assert_eq!(role(&[]), Role::Silent);
        assert_eq!(role(&[("/home/u/train.py", "main")]), Role::Plain);
        assert_eq!(role(&[("/home/u/m.py", "forward"), (&call, "_call_impl"), ("/home/u/t.py", "main")]), Role::Module);
        assert_eq!(role(&[(&call, "convert"), (&call, "_apply"), ("/home/u/t.py", "main")]), Role::Setup);
        assert_eq!(role(&[("/home/u/m.py", "__init__"), ("/home/u/t.py", "main")]), Role::Setup);
        // A cache that a forward builds is part of forward.
        let within = [
            ("/home/u/m.py", "__init__"),
            ("/home/u/m.py", "forward"),
            (&call, "_call_impl"),
            ("/home/u/t.py", "main"),
        ];
        assert_eq!(role(&within), Role::Module);
        assert_eq!(role(&[(&torch("optim/adamw.py"), "_init_group"), ("/home/u/t.py", "main")]), Role::Optimizer);
        assert_eq!(role(&[(&torch("optim/optimizer.py"), "zero_grad"), ("/home/u/t.py", "main")]), Role::ZeroGrad);
        assert_eq!(role(&[("??", "torch::autograd::Engine::evaluate_function(x)")]), Role::Backward);
    }

    #[test]
    fn functions_of_the_user_run_in_forward_and_in_backward() {
        let function = "/venv/lib/python3.11/site-packages/torch/autograd/function.py";
        let forward = [("/home/u/m.py", "forward"), (function, "apply"), ("/home/u/t.py", "main")];
        let backward = [("/home/u/m.py", "backward"), (function, "apply")];
        assert_eq!(role(&forward), Role::Plain);
        assert_eq!(role(&backward), Role::Backward);
    }

    #[test]
    fn recomputation_is_distinguished_from_the_checkpointed_forward() {
        let checkpoint = "/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py";
        let call = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py";
        let forward = [("/m.py", "forward"), (call, "_call_impl"), (checkpoint, "checkpoint"), ("/t.py", "main")];
        let again = [("/home/u/m.py", "forward"), (checkpoint, "recompute_fn"), (checkpoint, "unpack_hook")];
        assert_eq!(role(&forward), Role::Module);
        assert_eq!(role(&again), Role::Recompute);
        let graph = "/venv/lib/python3.11/site-packages/torch/autograd/graph.py";
        let reentrant = [(graph, "_engine_run_backward"), (checkpoint, "backward")];
        assert_eq!(role(&reentrant), Role::Backward);
        assert_eq!(role(&[("/home/u/m.py", "forward"), (checkpoint, "backward")]), Role::Recompute);
    }
}
