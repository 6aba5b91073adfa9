//! What a stack alone shows about the category of an allocation.

use super::category::Category;
use super::named::{Named, named};
use super::role::Roles;
use crate::facts::code::frames::{FrameKind, installed_path};
use crate::facts::code::sites::Sites;
use crate::model::{FrameId, StackId, StrId};
use std::collections::{BTreeSet, HashSet};

/// Where an allocation comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No evidence.
    #[default]
    Elsewhere,
    /// The category in a memory timeline.
    Timeline(Category),
    /// `nn.Module._apply`, at the line of parameters, gradients or buffers; `None` if the line does not show which.
    Moved(Option<Category>),
    /// The constructor of a module of `torch.nn`: a parameter, or a buffer of a normalization.
    Constructed(Category),
    /// A user's constructor, an initializer, or a copy.
    Built,
    /// A constructor in a file with the `forward` of a module.
    ModuleBuilt,
    /// The loading of weights.
    Loaded,
    /// The function that fills the optimizer's state.
    State,
    Optimizer,
    /// Gradient scaling or clipping.
    GradientTool,
    /// Where backward creates the gradient of the loss.
    LossGradient,
    /// A function of `torch.nn`, or a `forward`: not code that provides inputs.
    Function,
    /// Where `DataParallel` copies parameters or buffers to other devices.
    Replica(Category),
    /// A function whose name implies a category for blocks that stay live.
    Named(Category),
    /// Keys and values of attention, by the name of a function.
    Cache,
    /// Parameters that are gathered from all ranks.
    Gathered,
    /// `torch.distributed`, NCCL.
    Communication,
    /// The workspace of a library.
    Workspace,
}

/// The origin of each stack.
pub(crate) struct Origins(Vec<Origin>);

/// The meaning of a frame.
#[derive(Clone, Copy)]
enum Sign {
    None,
    /// Decides, unless a frame further inside does.
    Is(Origin),
    /// Decides if the user's code is not further inside.
    IsUnlessUser(Origin),
    Apply,
    Normalization,
    /// A line of `torch.nn.parallel.replicate`.
    Replicate,
    /// A line of Megatron's constructor of buffers for parameters and gradients.
    Buffers,
    /// A call of a module: frames further outside are not evidence about this allocation.
    ModuleCall,
    /// A constructor: decides if nothing else does.
    Constructor,
    /// A computation: decides if nothing else does.
    Function,
    User,
}

impl Origins {
    pub(crate) fn of(sites: &Sites<'_>, roles: &Roles) -> Self {
        let snapshot = sites.snapshot();
        let frames = 0..snapshot.stacks.frame_count() as u32;
        let signs: Vec<Sign> = frames.map(|frame| sign(sites, roles, FrameId(frame))).collect();
        let lines = Lines::of(sites, &signs);
        let models = files_of_models(sites, roles);
        let stacks = 0..snapshot.stacks.len() as u32;
        Self(stacks.map(|stack| origin(sites, &signs, &lines, &models, StackId(stack))).collect())
    }

    pub(crate) fn get(&self, stack: StackId) -> Origin {
        self.0.get(stack.index()).copied().unwrap_or_default()
    }
}

/// Files with the `forward` of a module.
fn files_of_models(sites: &Sites<'_>, roles: &Roles) -> HashSet<StrId> {
    let stacks = &sites.snapshot().stacks;
    let mut files = HashSet::new();
    for stack in 0..stacks.len() as u32 {
        // C++ frames may be in between.
        let mut called = None;
        for &frame in stacks.frame_ids(StackId(stack)) {
            match sites.kind(frame) {
                _ if roles.is_module_call(frame) => files.extend(called.take()),
                FrameKind::User | FrameKind::Package => called = stacks.frame(frame).map(|frame| frame.filename),
                kind if kind.is_python() => called = None,
                _ => {}
            }
        }
    }
    files
}

fn origin(sites: &Sites<'_>, signs: &[Sign], lines: &Lines, models: &HashSet<StrId>, stack: StackId) -> Origin {
    let snapshot = sites.snapshot();
    let (mut user, mut constructor, mut model, mut function) = (false, false, false, false);
    for &frame in snapshot.stacks.frame_ids(stack) {
        let line = || snapshot.stacks.frame(frame).map_or(0, |frame| frame.line);
        match signs.get(frame.index()).copied().unwrap_or(Sign::None) {
            Sign::Is(origin) => return origin,
            Sign::IsUnlessUser(origin) if !user => return origin,
            Sign::None | Sign::IsUnlessUser(_) => {}
            Sign::Apply => return Origin::Moved(lines.moved(line())),
            Sign::Normalization => return Origin::Constructed(lines.constructed(line())),
            Sign::Replicate => {
                return Origin::Replica(if lines.replicate == Some(line()) {
                    Category::Parameter
                } else {
                    Category::Buffer
                });
            }
            Sign::Buffers => return Origin::Named(lines.buffer(line())),
            Sign::ModuleCall => return Origin::Elsewhere,
            Sign::Constructor => {
                constructor = true;
                model |= snapshot.stacks.frame(frame).is_some_and(|frame| models.contains(&frame.filename));
            }
            Sign::Function => function = true,
            Sign::User => user = true,
        }
    }
    match (constructor, model) {
        (true, true) => Origin::ModuleBuilt,
        (true, false) => Origin::Built,
        (false, _) if function => Origin::Function,
        (false, _) => Origin::Elsewhere,
    }
}

fn sign(sites: &Sites<'_>, roles: &Roles, id: FrameId) -> Sign {
    let snapshot = sites.snapshot();
    let Some(frame) = snapshot.stacks.frame(id) else { return Sign::None };
    let name = snapshot.strings.get(frame.name);
    let kind = sites.kind(id);
    match kind {
        FrameKind::Category => {
            Category::of_timeline(name).map_or(Sign::None, |category| Sign::Is(Origin::Timeline(category)))
        }
        FrameKind::Native | FrameKind::Plumbing => native_sign(name),
        _ if roles.is_module_call(id) => Sign::ModuleCall,
        _ if !kind.is_python() => Sign::None,
        _ => {
            let file = snapshot.strings.get(frame.filename).replace('\\', "/");
            let path = installed_path(&file).unwrap_or("");
            match python_sign(path, name, kind) {
                sign @ (Sign::None | Sign::User | Sign::Constructor) => named_sign(&file, name).unwrap_or(sign),
                sign => sign,
            }
        }
    }
}

fn named_sign(file: &str, name: &str) -> Option<Sign> {
    Some(match named(file, name)? {
        Named::Stays(category) => Sign::Is(Origin::Named(category)),
        Named::Cache => Sign::Is(Origin::Cache),
        Named::Gathered => Sign::Is(Origin::Gathered),
        Named::Buffers => Sign::Buffers,
    })
}

fn native_sign(name: &str) -> Sign {
    // `at::cuda::getCUDABlasLtWorkspace`, `setWorkspaceForHandle`; before PyTorch 2.3, creating the handle allocates one.
    if name.contains("Workspace") || name.contains("at::cuda::getCurrentCUDABlasHandle") {
        return Sign::Is(Origin::Workspace);
    }
    let communicates = name.contains("c10d::") || name.contains("torch::cuda::nccl::");
    if communicates { Sign::IsUnlessUser(Origin::Communication) } else { Sign::None }
}

/// The meaning of a function, by its file and name in the source of the libraries.
fn python_sign(path: &str, name: &str, kind: FrameKind) -> Sign {
    let modules = path.strip_prefix("torch/nn/modules/");
    match (path, name) {
        ("torch/nn/modules/module.py", "_apply") => Sign::Apply,
        ("torch/nn/modules/batchnorm.py", "__init__") => Sign::Normalization,
        (_, "__init__") if modules.is_some_and(|file| file != "module.py" && file != "container.py") => {
            Sign::Is(Origin::Constructed(Category::Parameter))
        }
        ("torch/nn/modules/rnn.py", "flatten_parameters") => Sign::Is(Origin::Constructed(Category::Parameter)),
        // A copy of a model that contains averages is not trained.
        ("torch/nn/init.py", _) | ("torch/_tensor.py" | "torch/nn/parameter.py", "__deepcopy__") => {
            Sign::Is(Origin::Built)
        }
        (_, "_init_group" | "_init_state") if path.contains("optim") => Sign::Is(Origin::State),
        ("torch/optim/optimizer.py", "_process_value_according_to_param_policy" | "load_state_dict") => {
            Sign::Is(Origin::State)
        }
        ("torch/nn/utils/clip_grad.py" | "torch/amp/grad_scaler.py" | "torch/cuda/amp/grad_scaler.py", _) => {
            Sign::Is(Origin::GradientTool)
        }
        _ if path.starts_with("torch/optim/") => Sign::Is(Origin::Optimizer),
        (_, "step") if kind == FrameKind::Package && path.contains("optim") => Sign::Is(Origin::Optimizer),
        ("torch/autograd/__init__.py", "_make_grads") => Sign::Is(Origin::LossGradient),
        ("torch/nn/parallel/replicate.py", "replicate") => Sign::Replicate,
        // Tensors sent to and received from the replicas: inputs and outputs.
        ("torch/nn/parallel/comm.py", "broadcast_coalesced" | "scatter" | "gather") => Sign::None,
        ("torch/nn/parallel/distributed.py" | "torch/nn/parallel/comm.py", _) => {
            Sign::IsUnlessUser(Origin::Communication)
        }
        _ if is_collective(path) => Sign::IsUnlessUser(Origin::Communication),
        _ if is_loading(path, name) => Sign::Is(Origin::Loaded),
        (_, "__init__" | "reset_parameters" | "_reset_parameters") => Sign::Constructor,
        ("torch/nn/functional.py" | "torch/functional.py", _) => Sign::Function,
        _ if kind == FrameKind::User => Sign::User,
        _ => Sign::None,
    }
}

/// Files of `torch.distributed` whose tensors are messages. Other files have tensors of all kinds.
fn is_collective(path: &str) -> bool {
    path.strip_prefix("torch/distributed/").is_some_and(|file| {
        matches!(file, "distributed_c10d.py" | "_functional_collectives.py" | "fsdp/_fully_shard/_fsdp_collectives.py")
            || file.starts_with("algorithms/ddp_comm_hooks/")
    })
}

fn is_loading(path: &str, name: &str) -> bool {
    match path.split('/').next() {
        Some("transformers") => {
            matches!(name, "_load_pretrained_model" | "_load_state_dict_into_meta_model" | "_load_parameter_into_model")
                || path == "transformers/core_model_loading.py"
        }
        Some("accelerate") => name == "set_module_tensor_to_device",
        Some("safetensors") => true,
        Some("torch") => path == "torch/serialization.py" || name == "_load_from_state_dict",
        _ => false,
    }
}

/// Lines of PyTorch's source that distinguish parameters from buffers.
///
/// In every release, `Module._apply` calls itself for the children, then `fn` for parameters, their gradients, and buffers,
/// in this order of lines. The distances differ: the line for parameters is 23 to 33 lines below the first, the line for
/// buffers 47 to 103 (2.0 to 2.15).
struct Lines {
    /// Line of the call for the children.
    children: Option<u64>,
    /// Lines of the innermost `_apply` on any stack that call `fn`.
    apply: BTreeSet<u64>,
    /// The first line of a normalization's constructor that allocates.
    normalization: u64,
    /// The first line of `replicate` that copies: it copies parameters.
    replicate: Option<u64>,
    /// Lines of Megatron's constructor that allocate. The buffer of parameters comes first, and exists only with a
    /// distributed optimizer.
    buffers: BTreeSet<u64>,
}

/// Parameters are moved within this many lines below the call for the children.
const PARAMETERS_WITHIN: u64 = 40;
/// The buffers of a normalization are at least this many lines below its weight; its bias is closer.
const BUFFERS_FROM: u64 = 5;

impl Lines {
    fn of(sites: &Sites<'_>, signs: &[Sign]) -> Self {
        let stacks = &sites.snapshot().stacks;
        let mut lines = Self {
            children: None,
            apply: BTreeSet::new(),
            normalization: u64::MAX,
            replicate: None,
            buffers: BTreeSet::new(),
        };
        for stack in 0..stacks.len() as u32 {
            let (mut inner, mut called) = (false, false);
            for &id in stacks.frame_ids(StackId(stack)) {
                let Some(frame) = stacks.frame(id) else { continue };
                // Frees by `_apply` itself, such as that of a parameter's previous block, are on other lines.
                let is_call = called;
                called |= sites.kind(id).is_python();
                match signs.get(id.index()) {
                    Some(Sign::Apply) if inner => lines.children = Some(frame.line),
                    Some(Sign::Apply) => {
                        inner = true;
                        if is_call {
                            lines.apply.insert(frame.line);
                        }
                    }
                    Some(Sign::Replicate) => {
                        lines.replicate = Some(lines.replicate.map_or(frame.line, |first| first.min(frame.line)));
                    }
                    Some(Sign::Buffers) => {
                        lines.buffers.insert(frame.line);
                    }
                    Some(Sign::Normalization) => lines.normalization = lines.normalization.min(frame.line),
                    _ => {}
                }
            }
        }
        lines
    }

    /// What the innermost `_apply` moves at a line; `None` if the file has no lines of calls, like profiler traces.
    fn moved(&self, line: u64) -> Option<Category> {
        if self.children == Some(line) {
            return None;
        }
        let near = |children: u64| line.checked_sub(children).is_some_and(|below| below <= PARAMETERS_WITHIN);
        // If no module has children, parameters are moved first, if there are any.
        let may_be_parameter = self.children.is_none_or(near);
        Some(match (self.apply.range(..line).count(), self.apply.len()) {
            (0, _) if may_be_parameter => Category::Parameter,
            (1, 3) => Category::Gradient,
            _ => Category::Buffer,
        })
    }

    /// What Megatron's constructor of buffers allocates at a line.
    fn buffer(&self, line: u64) -> Category {
        let is_first = self.buffers.len() > 1 && self.buffers.first() == Some(&line);
        if is_first { Category::Parameter } else { Category::Gradient }
    }

    fn constructed(&self, line: u64) -> Category {
        let below = line.saturating_sub(self.normalization);
        if below < BUFFERS_FROM { Category::Parameter } else { Category::Buffer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Snapshot};

    const MODULE: &str = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py";
    const USER: &str = "/home/u/train.py";

    fn origins(stacks: &[&[(&str, &str, u64)]]) -> Vec<Origin> {
        let mut snapshot = Snapshot::default();
        let mut ids = Vec::new();
        for frames in stacks {
            let mut stack = Vec::new();
            for &(file, name, line) in *frames {
                let filename = snapshot.strings.intern(file);
                let name = snapshot.strings.intern(name);
                stack.push(snapshot.stacks.intern_frame(Frame { filename, name, line, fx: None }));
            }
            ids.push(snapshot.stacks.intern_stack(&stack));
        }
        let sites = Sites::new(&snapshot);
        let origins = Origins::of(&sites, &Roles::of(&sites));
        ids.into_iter().map(|stack| origins.get(stack)).collect()
    }

    #[test]
    fn lines_of_apply_tell_parameters_from_buffers() {
        for (children, parameter, gradient, buffer) in [(797, 820, 835, 844), (934, 965, 1009, 1035)] {
            let at = |line| [(MODULE, "convert", 7), (MODULE, "_apply", line), (MODULE, "_apply", children)];
            let [parameter, gradient, buffer] = [at(parameter), at(gradient), at(buffer)];
            let moved = |category| Origin::Moved(Some(category));
            let all = origins(&[&parameter, &gradient, &buffer]);
            assert_eq!(all, [Category::Parameter, Category::Gradient, Category::Buffer].map(moved));
            assert_eq!(origins(&[&parameter, &buffer]), [Category::Parameter, Category::Buffer].map(moved));
            assert_eq!(origins(&[&buffer]), [moved(Category::Buffer)], "a model of buffers alone");
        }
    }

    #[test]
    fn lines_of_apply_that_free_do_not_count() {
        let at = |line| [(MODULE, "convert", 7), (MODULE, "_apply", line), (MODULE, "_apply", 810)];
        let [parameter, buffer] = [at(833), at(857)];
        let free = |line| [(MODULE, "_apply", line), (MODULE, "_apply", 810)];
        let [child, old_parameter, old_buffer] = [free(810), free(836), free(855)];
        let all = origins(&[&child, &parameter, &old_parameter, &old_buffer, &buffer]);
        let moved = |category| Origin::Moved(Some(category));
        assert_eq!([all[1], all[4]], [Category::Parameter, Category::Buffer].map(moved));
    }

    #[test]
    fn lines_of_definitions_do_not_tell() {
        let frames = [(MODULE, "convert", 1370), (MODULE, "_apply", 931), (MODULE, "_apply", 931)];
        assert_eq!(origins(&[&frames]), [Origin::Moved(None)]);
    }

    #[test]
    fn a_call_of_a_module_hides_what_is_around_it() {
        let distributed = "/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py";
        let forward = [("/home/u/m.py", "forward", 7), (MODULE, "_call_impl", 9), (distributed, "forward", 3)];
        let reducer = [(distributed, "_ddp_init_helper", 7), (distributed, "__init__", 9), (USER, "main", 3)];
        assert_eq!(origins(&[&forward, &reducer]), [Origin::Elsewhere, Origin::Communication]);
    }

    #[test]
    fn optimizers_fill_their_state_in_one_place() {
        let adam = "/venv/lib/python3.11/site-packages/torch/optim/adam.py";
        let scaler = "/venv/lib/python3.11/site-packages/torch/amp/grad_scaler.py";
        let state = [(adam, "_init_group", 7), (adam, "step", 9), (scaler, "step", 3), (USER, "main", 3)];
        let scratch = [(adam, "_multi_tensor_adam", 7), (adam, "step", 9), (USER, "main", 3)];
        assert_eq!(origins(&[&state, &scratch]), [Origin::State, Origin::Optimizer]);
    }
}
