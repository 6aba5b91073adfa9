//! What a stack says about the part of a training step that runs it.

use crate::analysis::Sites;
use crate::analysis::frames::{FrameKind, installed_path};
use crate::model::{Frame, FrameId, Snapshot, StackId};

/// The part of a program that a stack belongs to, as far as the stack alone tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No frames at all, or none that say anything. The autograd engine's threads have no Python frames.
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
    /// A forward that runs again within backward: activation checkpointing.
    Recompute,
    /// An optimizer, gradient scaling or gradient clipping.
    Optimizer,
    /// Dropping or clearing gradients.
    ZeroGrad,
}

/// What single frames mark, as bits.
mod mark {
    pub const PYTHON: u16 = 1;
    pub const MODULE_CALL: u16 = 1 << 1;
    pub const SETUP: u16 = 1 << 2;
    pub const DATA: u16 = 1 << 3;
    pub const BACKWARD: u16 = 1 << 4;
    pub const RECOMPUTE: u16 = 1 << 5;
    pub const OPTIMIZER: u16 = 1 << 6;
    pub const ZERO_GRAD: u16 = 1 << 7;
    pub const CHECKPOINT: u16 = 1 << 8;
    pub const AUTOCAST: u16 = 1 << 9;
    /// Backward if it is the outermost Python frame: code that the engine calls.
    pub const ENGINE_ROOT: u16 = 1 << 10;
    pub const FIRST_GRADIENTS: u16 = 1 << 11;
    /// Where Python code calls the engine.
    pub const ENGINE_CALL: u16 = 1 << 12;
}

/// The marks of every frame and stack of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    frames: Vec<u16>,
    stacks: Vec<u16>,
}

impl Roles {
    /// Reads every frame and every stack once.
    pub fn of(sites: &Sites<'_>) -> Self {
        let snapshot = sites.snapshot();
        let frame = |id: u32| {
            let data = snapshot.stacks.frame(FrameId(id))?;
            Some(marks(snapshot, data, sites.kind(FrameId(id))))
        };
        let frames: Vec<u16> = (0..snapshot.stacks.frame_count() as u32).map(|id| frame(id).unwrap_or(0)).collect();
        let stack = |id: u32| {
            let mut all = 0;
            let (mut innermost, mut outermost, mut is_nested) = (None, 0, false);
            for frame in snapshot.stacks.frame_ids(StackId(id)) {
                let mut marks = frames.get(frame.index()).copied().unwrap_or(0);
                // Reentrant checkpointing runs a part of forward again, and then the engine over it.
                if all & mark::BACKWARD != 0 && marks & mark::RECOMPUTE != 0 {
                    (is_nested, marks) = (true, marks & !mark::RECOMPUTE);
                }
                all |= marks;
                if marks & mark::PYTHON != 0 {
                    innermost = innermost.or(Some(marks));
                    outermost = marks;
                }
            }
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
        Self { frames, stacks }
    }

    /// The role of a stack.
    pub fn role(&self, stack: StackId) -> Role {
        let marks = self.marks(stack);
        let has = |wanted: u16| marks & wanted != 0;
        match () {
            () if has(mark::RECOMPUTE) => Role::Recompute,
            () if has(mark::BACKWARD) => Role::Backward,
            () if has(mark::ZERO_GRAD) => Role::ZeroGrad,
            () if has(mark::OPTIMIZER) => Role::Optimizer,
            () if has(mark::MODULE_CALL) => Role::Module,
            () if has(mark::DATA) => Role::Data,
            () if has(mark::SETUP) => Role::Setup,
            () if has(mark::PYTHON) => Role::Plain,
            () => Role::Silent,
        }
    }

    /// Whether a stack passes through `torch.utils.checkpoint`.
    pub fn is_checkpointed(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::CHECKPOINT != 0
    }

    /// Whether a stack leads into the end of an autocast region.
    pub fn leaves_autocast(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::AUTOCAST != 0
    }

    /// Whether a frame is where `nn.Module` calls a `forward`.
    pub fn is_module_call(&self, frame: FrameId) -> bool {
        self.frames.get(frame.index()).is_some_and(|marks| marks & mark::MODULE_CALL != 0)
    }

    /// Whether a frame belongs to `torch.utils.checkpoint`.
    pub fn is_checkpoint(&self, frame: FrameId) -> bool {
        self.frames.get(frame.index()).is_some_and(|marks| marks & mark::CHECKPOINT != 0)
    }

    /// Whether the autograd engine runs here with no Python code of anybody's in between, so that the stack does not say
    /// whose memory it is: on its own threads, or in reentrant checkpointing.
    pub fn is_engine(&self, stack: StackId) -> bool {
        let marks = self.marks(stack);
        let silent = marks & mark::PYTHON == 0 && (stack == StackId::EMPTY || marks & mark::BACKWARD != 0);
        silent || marks & mark::ENGINE_CALL != 0
    }

    /// Whether a call of `backward` starts here: the gradients that it begins with are made.
    pub fn makes_first_gradients(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::FIRST_GRADIENTS != 0
    }

    /// Whether a stack has Python frames.
    pub fn has_python(&self, stack: StackId) -> bool {
        self.marks(stack) & mark::PYTHON != 0
    }

    fn marks(&self, stack: StackId) -> u16 {
        self.stacks.get(stack.index()).copied().unwrap_or(0)
    }
}

/// What a frame marks, by the file and function of PyTorch's own source (2.0 to 2.15).
fn marks(snapshot: &Snapshot, frame: &Frame, kind: FrameKind) -> u16 {
    let name = snapshot.strings.get(frame.name);
    if kind == FrameKind::Backward {
        return mark::BACKWARD;
    }
    if kind == FrameKind::NnModule {
        return mark::MODULE_CALL;
    }
    if !kind.is_python() {
        let engine =
            name.contains("torch::autograd::Engine::") || name.contains("torch::autograd::python::PythonEngine");
        return if engine { mark::BACKWARD } else { 0 };
    }
    let file = snapshot.strings.get(frame.filename);
    let path = installed_path(file).unwrap_or("");
    let path = path.replace('\\', "/");
    // No program begins inside of PyTorch, except for those that it starts itself: a stack that does is the engine's.
    let starts_programs = ["torch/distributed/", "torch/multiprocessing/", "torch/utils/data/"];
    let engine = kind == FrameKind::Torch && !starts_programs.iter().any(|program| path.starts_with(program));
    mark::PYTHON | python_marks(&path, name, kind) | if engine { mark::ENGINE_ROOT } else { 0 }
}

fn python_marks(path: &str, name: &str, kind: FrameKind) -> u16 {
    let scaler = path.ends_with("amp/grad_scaler.py");
    match (path, name) {
        (_, "zero_grad") => mark::ZERO_GRAD,
        ("torch/nn/modules/module.py", "_call_impl" | "_slow_forward" | "inner") => mark::MODULE_CALL,
        ("torch/nn/modules/module.py", "_apply" | "convert") | ("torch/nn/init.py" | "torch/nn/parameter.py", _) => {
            mark::SETUP
        }
        ("torch/_tensor.py", "backward") => mark::BACKWARD,
        ("torch/autograd/__init__.py", "_make_grads") => mark::BACKWARD | mark::FIRST_GRADIENTS,
        ("torch/autograd/__init__.py", "backward" | "grad") | ("torch/autograd/graph.py", "_engine_run_backward") => {
            mark::BACKWARD | mark::ENGINE_CALL
        }
        // In 2.0 to 2.15 the hooks that run a forward again are called `unpack` and `unpack_hook`; the reentrant variant
        // does it in `CheckpointFunction.backward`.
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
    fn stacks_tell_what_they_are_part_of() {
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
    fn recomputation_is_told_from_the_checkpointed_forward() {
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
