//! Frames that only pass calls on: between a module and the one it calls, or under every allocation.
//!
//! They double the height of a flame graph and add no information. Frames of a library's own work stay; only those that pass
//! a call on are left out.

use super::frames::{FrameKind, installed_path, short_native_name};

/// Files of installed packages in which every function only passes calls on. From all releases of PyTorch since 2.0.
const FILES: &[&str] = &[
    "torch/_compile.py",
    "torch/_dynamo/eval_frame.py",
    "torch/_dynamo/external_utils.py",
    "torch/_functorch/_aot_autograd/runtime_wrappers.py",
    "torch/_functorch/_aot_autograd/utils.py",
    "torch/_functorch/aot_autograd.py",
    "torch/_inductor/output_code.py",
    "torch/_ops.py",
    "torch/amp/autocast_mode.py",
    "torch/autograd/__init__.py",
    "torch/autograd/function.py",
    "torch/autograd/graph.py",
    "torch/overrides.py",
    "torch/utils/_contextlib.py",
];

/// The file of `torch.nn.Module`, and its functions between a call of a module and the module's `forward`.
const MODULE: &str = "torch/nn/modules/module.py";
const MODULE_CALL: &[&str] = &["__call__", "_call_impl", "_slow_forward", "_wrapped_call_impl"];

/// Functions that only pass calls on, in files with other functions.
const FUNCTIONS: &[(&str, &str)] = &[
    ("accelerate/hooks.py", "new_forward"),
    ("torch/_inductor/codecache.py", "__call__"),
    ("torch/_inductor/utils.py", "run"),
    (MODULE, "_apply"),
    ("torch/optim/optimizer.py", "_use_grad"),
];

/// Wrapper functions of decorators, by the names that programmers usually give them.
const DECORATORS: &[&str] = &["decorate_context", "inner", "wrapped", "wrapper"];

/// Files of the standard library that start programs and threads, or wrap functions.
const STARTERS: &[&str] = &["contextlib.py", "functools.py", "runpy.py", "threading.py"];

/// Prefixes of C++ functions that run nodes of the autograd graph, start threads or create empty tensors.
const NATIVE: &[&str] = &[
    "__xmknodat",
    "at::detail::_empty_",
    "pthread_",
    "pythread_wrapper",
    "thread_run",
    "torch::autograd::Engine::",
    "torch::autograd::Node::operator()",
    "torch::autograd::PyNode::",
    "torch::dynamo::",
];

/// Whether a frame is of `torch.nn.Module`, between a call of a module and its `forward`. Its file is given by the path inside the package.
pub(super) fn calls_forward(path: &str, name: &str) -> bool {
    path == MODULE && MODULE_CALL.contains(&name)
}

/// Whether a frame only passes a call on. `has_python` says whether its stack has Python frames: next to those, C++ frames
/// show how an operator works, not what called it.
pub fn is_passed_through(kind: FrameKind, file: &str, name: &str, has_python: bool) -> bool {
    match kind {
        FrameKind::Plumbing => true,
        FrameKind::Native => {
            has_python || {
                let function = short_native_name(name);
                NATIVE.iter().any(|start| function.starts_with(start))
            }
        }
        FrameKind::Internal => {
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            STARTERS.contains(&file) || file.starts_with("<frozen ")
        }
        FrameKind::Torch | FrameKind::Package => {
            let path = installed_path(file).unwrap_or(file).replace('\\', "/");
            calls_forward(&path, name)
                || DECORATORS.contains(&name)
                || FILES.contains(&path.as_str())
                || FUNCTIONS.contains(&(path.as_str(), name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_pass_calls_on_are_left_out() {
        let module = "/v/lib/python3.11/site-packages/torch/nn/modules/module.py";
        let torch = |file: &str, name: &str| is_passed_through(FrameKind::Torch, file, name, true);
        assert!(torch(module, "_call_impl") && torch(module, "_wrapped_call_impl"));
        assert!(torch(r"C:\v\Lib\site-packages\torch\nn\modules\module.py", "_call_impl"));
        assert!(torch("/v/lib/python3.11/site-packages/torch/optim/optimizer.py", "wrapper"));
        assert!(!torch(module, "to"), "moves the parameters");
        assert!(!torch("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", "forward"));
        assert!(!is_passed_through(FrameKind::User, "train.py", "wrapper", true), "the user's own");
        assert!(is_passed_through(FrameKind::Internal, "/usr/lib/python3.11/runpy.py", "_run_code", true));
        let native =
            |has_python| is_passed_through(FrameKind::Native, "??", "at::native::addmm_out_cuda_impl", has_python);
        assert!(native(true) && !native(false));
        assert!(is_passed_through(FrameKind::Native, "??", "torch::autograd::Engine::evaluate_function(x)", false));
    }
}
