//! The categories of memory, and the evidence for the category of an allocation.

use crate::model::profile::CATEGORIES;
use serde::Serialize;

/// The category of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Category {
    /// The storage of `model.parameters()`, including frozen parameters.
    Parameter,
    /// The storage of `model.buffers()`: masks, running means.
    Buffer,
    /// `parameter.grad`.
    Gradient,
    /// Memory that the optimizer keeps from one step to the next.
    OptimizerState,
    /// Has the size of parameters and stays live: a parameter, a buffer, a gradient or an optimizer state, without evidence
    /// which one.
    ModelState,
    /// From before the recording, without other evidence.
    BeforeRecording,
    /// Allocated by forward and still live when backward starts, or when the kept history starts; also what a
    /// recomputation allocates for backward.
    Activation,
    /// Keys and values that a model without backward keeps after its forward, for the next one.
    KvCache,
    /// Freed before the phase that allocated it ends.
    Temporary,
    /// Allocated before forward: batches, labels, masks created outside the model.
    Input,
    /// Buffers of `torch.distributed`, reducers and NCCL.
    Communication,
    /// Scratch memory that a library such as cuBLAS keeps for itself.
    Workspace,
    /// There is no evidence for one category.
    #[default]
    Unknown,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 13] = [
        Self::Parameter,
        Self::Buffer,
        Self::Gradient,
        Self::OptimizerState,
        Self::ModelState,
        Self::BeforeRecording,
        Self::Activation,
        Self::KvCache,
        Self::Temporary,
        Self::Input,
        Self::Communication,
        Self::Workspace,
        Self::Unknown,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer_state",
            Self::ModelState => "model_state",
            Self::BeforeRecording => "before_recording",
            Self::Activation => "activation",
            Self::KvCache => "kv_cache",
            Self::Temporary => "temporary",
            Self::Input => "input",
            Self::Communication => "communication",
            Self::Workspace => "workspace",
            Self::Unknown => "unknown",
        }
    }

    /// The category that a user's metadata names: `gradient`, `Optimizer State`, `category=activation`. Text with other words
    /// names none.
    pub fn of_label(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let name = match lower.split_once(['=', ':']) {
            Some((key, name)) => (key.trim() == "category").then_some(name)?,
            None => lower.as_str(),
        };
        let name = name.trim().replace([' ', '-'], "_");
        let singular = name.strip_suffix('s').unwrap_or(&name);
        Self::ALL.into_iter().filter(|category| category.is_known()).find(|category| category.name() == singular)
    }

    /// Whether it says what the memory is for.
    pub fn is_known(self) -> bool {
        !matches!(self, Self::Unknown | Self::BeforeRecording)
    }

    /// The category for a category of `export_memory_timeline`. Memory that autograd needs besides gradients of parameters
    /// (`autograd_detail`) is temporary here.
    pub(super) fn of_timeline(name: &str) -> Option<Self> {
        if !CATEGORIES.contains(&name) {
            return None;
        }
        if name == "autograd_detail" {
            return Some(Self::Temporary);
        }
        Self::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// The evidence for a category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Evidence {
    /// `user_metadata` or an `annotate` entry names it.
    Metadata,
    /// One of the user's own categories matches its stack.
    Chosen,
    /// A walk over the references of the program found what holds it.
    Held,
    /// The file has a category for it.
    Timeline,
    /// Allocated by the line of `Module._apply` that moves parameters, gradients or buffers.
    ModuleApply,
    /// Allocated by the constructor of a module of `torch.nn`, or copied with the module.
    Constructor,
    /// Allocated by the code that loads a model's weights.
    Loading,
    /// There are as many persistent blocks of this size as gradients.
    GradientCount,
    /// From before the recording: as many blocks as gradients of this size, while the optimizer replaces all others before it
    /// computes the step.
    ChangedInPlace,
    /// From before the recording, and the optimizer replaces it in every step before it computes the step.
    MadeAnew,
    /// From before the recording: among all blocks of this size, all of which the optimizer replaces, those that it replaces
    /// last.
    MadeLast,
    /// Replaces a block of the same size that the optimizer frees.
    TakesPlace,
    /// Has the size of a parameter, and stays live.
    ParameterSize,
    /// Allocated by the constructor of a class with a `forward`, and outlives a call of it.
    ModuleConstructor,
    /// A copy that `DataParallel` creates on another device.
    Replica,
    /// Allocated by the function that fills the optimizer's state.
    StateStack,
    /// Allocated by the optimizer, and outlives its step.
    OutlivesOptimizer,
    /// Allocated in the optimizer's phase by other code, has the size of a parameter, and outlives the next step.
    MirrorsInOptimizer,
    /// Allocated by backward, has the size of a parameter, and outlives backward.
    MirrorsParameter,
    /// From before the recording, has the size of a parameter, and `zero_grad` frees it.
    DroppedByZeroGrad,
    /// From before the recording, which starts in forward, and freed by the backward pass after it.
    FreedByBackward,
    /// Allocated by a function that memviz knows by name.
    Named,
    /// Parameters gathered from all ranks.
    Gathered,
    /// Allocated in a module's forward before the kept history, and still live when it starts.
    HeldSinceForward,
    /// Allocated before the kept history by an optimizer's line that allocated several live blocks.
    HeldByOptimizer,
    /// Allocated before the kept history by the constructor of a class with a `forward`.
    HeldSinceConstructor,
    /// No stack, or the engine's stack: at most as many blocks of this size as parameters, whose stacks are known.
    OlderMirrors,
    /// No stack: as many blocks of this size as the optimizer states that one line of the optimizer allocated.
    StateCount,
    /// No stack, and the size of optimizer states.
    StateSize,
    /// No stack: sizes repeat like those of a model's layers.
    LayerSizes,
    /// No history: there are four equal sets of sizes.
    EqualSets,
    /// Older than the kept history, and its stack does not show its use.
    Older,
    /// Its stack is inside `torch.distributed` or NCCL.
    CommunicationStack,
    /// Its stack is inside a library's workspace.
    WorkspaceStack,
    /// Has the size of cuBLAS's workspace and is never freed.
    WorkspaceSize,
    /// Allocated by forward, live when backward starts.
    HeldForBackward,
    /// Allocated while backward recomputes a forward, and outlives the recomputation.
    Recomputed,
    /// Allocated in a forward that runs out of memory.
    ForwardCutShort,
    /// Allocated in a forward that keeps the outputs of its modules: outlives the call of the model.
    KeptByForward,
    /// Every forward allocates a block that is larger by the same amount, and each block lives until the next one.
    Grows,
    /// Two lines allocate a block of the same size in each layer, and these blocks outlive a forward that keeps no others.
    KeptInPairs,
    /// In the backward pass that runs out of memory, with the size of a parameter.
    MirrorsInCutBackward,
    /// In the backward pass that runs out of memory, without the size of a parameter.
    BackwardCutShort,
    /// Like earlier blocks of the same stack.
    AsBefore,
    /// Like the block at the same position in the previous backward pass.
    AsBackwardBefore,
    /// Freed before the phase that allocated it ends.
    GoneInPhase,
    /// The gradient of the loss, from which backward starts.
    LossGradient,
    /// Allocated between the phases of steps, live when forward starts.
    ReachesForward,
    /// From before the recording, without other evidence.
    BeforeRecording,
    /// The file contains only the final state: there is no recording that the block could be older than.
    NoHistory,
    /// Outlives its phase, without evidence for one category.
    #[default]
    Undecided,
}

impl Evidence {
    /// The reason in words: a clause that may follow "because".
    pub fn words(self) -> &'static str {
        match self {
            Self::Metadata => "its metadata names the category",
            Self::Chosen => "a pattern of memviz.toml matches its stack",
            Self::Held => "the recording shows what holds it",
            Self::Timeline => "the memory timeline gives this category",
            Self::ModuleApply => "nn.Module._apply moved it to the device",
            Self::Constructor => "a constructor of torch.nn allocated it",
            Self::Loading => "it was allocated while weights were loaded",
            Self::GradientCount => "there are as many blocks of this size as gradients",
            Self::ChangedInPlace => {
                "there are as many blocks of this size as gradients, and the optimizer changes them in place"
            }
            Self::MadeAnew => "the optimizer allocates it again before computing the step",
            Self::MadeLast => "of all blocks of this size, it is the last that the optimizer allocates again",
            Self::TakesPlace => "it replaces a block that the optimizer frees",
            Self::ParameterSize => {
                "it has the size of a parameter and stays allocated, but nothing shows which category it belongs to"
            }
            Self::ModuleConstructor => {
                "the constructor of a class with a forward method allocated it, and it outlives a forward pass"
            }
            Self::Replica => "DataParallel copied it to another device",
            Self::StateStack => "it was allocated where the optimizer fills its state",
            Self::OutlivesOptimizer => "the optimizer allocated it, and it outlives the optimizer's step",
            Self::MirrorsInOptimizer => {
                "it was allocated in the optimizer phase, has the size of a parameter, and outlives the next step"
            }
            Self::MirrorsParameter => "backward allocated it, and it has the size of a parameter and outlives backward",
            Self::DroppedByZeroGrad => "it has the size of a parameter, and zero_grad freed it",
            Self::FreedByBackward => "it is from before the recording, and backward freed it",
            Self::Named => "a function that memviz recognizes by name allocated it",
            Self::Gathered => "it holds parameters gathered from all ranks",
            Self::HeldSinceForward => {
                "a module's forward method allocated it before the recording, and it is still live"
            }
            Self::HeldByOptimizer => "the optimizer allocated it before the recording, and it is still live",
            Self::HeldSinceConstructor => {
                "the constructor of a class with a forward method allocated it, and it is still live"
            }
            Self::OlderMirrors => {
                "the autograd engine allocated it before the recording, and it has the size of a parameter"
            }
            Self::StateCount => "it has no stack, but there are as many blocks of this size as optimizer states",
            Self::StateSize => "it has no stack, but it has the size of an optimizer state",
            Self::LayerSizes => "it has no stack, but sizes repeat like those of a model's layers",
            Self::EqualSets => {
                "it belongs to one of four sets of equal sizes: parameters, gradients and two sets of optimizer states; nothing shows to which"
            }
            Self::Older => "it is from before the recording, and its stack does not show its use",
            Self::CommunicationStack => "its stack is in torch.distributed or NCCL",
            Self::WorkspaceStack => "its stack shows that a library allocated it as a workspace",
            Self::WorkspaceSize => "it has the size of the cuBLAS workspace and is never freed",
            Self::HeldForBackward => "forward allocated it, and it is live when backward starts",
            Self::Recomputed => "a recomputation allocated it, and it outlives the recomputation",
            Self::ForwardCutShort => "it is live in the forward pass that runs out of memory",
            Self::KeptByForward => {
                "it was allocated in a forward pass that keeps the outputs of its modules, and it outlives the call"
            }
            Self::KeptInPairs => "each layer has two blocks of this size, which outlive the forward pass",
            Self::Grows => {
                "each block of this stack is larger than the previous one by the same amount, and lives until the next one is allocated"
            }
            Self::MirrorsInCutBackward => {
                "it is live in the backward pass that runs out of memory, and has the size of a parameter"
            }
            Self::BackwardCutShort => {
                "it is live in the backward pass that runs out of memory, and does not have the size of a parameter"
            }
            Self::AsBefore => "earlier blocks with the same stack had this category",
            Self::AsBackwardBefore => "the block at the same place in the previous backward pass had this category",
            Self::GoneInPhase => "it is freed before its phase ends",
            Self::LossGradient => "it is the gradient of the loss",
            Self::ReachesForward => "it was allocated before forward, and is live when forward starts",
            Self::BeforeRecording => "it is from before the recording",
            Self::NoHistory => "no history was recorded",
            Self::Undecided => "it outlives its phase, and nothing shows which category it belongs to",
        }
    }

    /// Whether the file itself says so, or the user.
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::Metadata | Self::Chosen | Self::Held | Self::Timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_categories() {
        let category = Category::of_label;
        assert_eq!(category("parameter"), Some(Category::Parameter));
        assert_eq!(category("Optimizer States"), Some(Category::OptimizerState));
        assert_eq!(category("category=activation"), Some(Category::Activation));
        assert_eq!(category("category: kv-cache"), Some(Category::KvCache));
        assert_eq!(category("phase=train"), None);
        assert_eq!(category("kept for the gradient check"), None);
        assert_eq!(category("unknown"), None);
        assert_eq!(category("before_recording"), None);
    }

    #[test]
    fn every_category_of_a_timeline_is_one() {
        assert!(CATEGORIES.iter().all(|name| Category::of_timeline(name).is_some()));
        assert_eq!(Category::of_timeline("communication"), None);
    }
}
