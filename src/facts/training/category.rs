//! The categories of memory, and the evidence for the category of an allocation.

use crate::model::profile::CATEGORIES;
use serde::Serialize;

/// The category of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Category {
    /// The storage of `model.parameters()`, including frozen parameters.
    Parameter,
    /// The storage of `model.buffers()`: masks, running means.
    Buffer,
    /// `parameter.grad`.
    Gradient,
    /// Memory that the optimizer keeps from one step to the next.
    OptimizerState,
    /// Has the size of parameters and stays: a parameter, a buffer, a gradient or a state of the optimizer, and nothing
    /// says which.
    ModelState,
    /// Older than the recording, and nothing else is known about it.
    BeforeRecording,
    /// Made by forward and still there when backward begins, or when the kept history does; what a recomputation makes for
    /// backward.
    Activation,
    /// Keys and values that a model without backward keeps from one forward to the next.
    KvCache,
    /// Gone before the phase ends that made it.
    Temporary,
    /// Made on the way to forward: batches, labels, masks made outside of the model.
    Input,
    /// Buffers of `torch.distributed`, reducers and NCCL.
    Communication,
    /// Scratch memory that a library keeps for itself, such as that of cuBLAS.
    Workspace,
    /// Nothing decides.
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

    /// The name as in JSON.
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

    /// The category that a user's metadata names: `gradient`, `Optimizer State`, `category=activation`. Text that speaks
    /// of anything else besides names none.
    pub fn of_label(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let name = match lower.split_once(['=', ':']) {
            Some((key, name)) => (key.trim() == "category").then_some(name)?,
            None => lower.as_str(),
        };
        let name = name.trim().replace([' ', '-'], "_");
        let singular = name.strip_suffix('s').unwrap_or(&name);
        let says = |category: &Self| !matches!(category, Self::Unknown | Self::BeforeRecording);
        Self::ALL.into_iter().filter(says).find(|category| category.name() == singular)
    }

    /// That of a category of `export_memory_timeline`. What autograd needs beside gradients of parameters
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
#[non_exhaustive]
pub enum Evidence {
    /// `user_metadata` or an `annotate` entry names it.
    Metadata,
    /// The file has a category for it.
    Timeline,
    /// Moved by the line of `Module._apply` that moves parameters, gradients or buffers.
    ModuleApply,
    /// Made by the constructor of a module of `torch.nn`, or copied with it.
    Constructor,
    /// Made by the code that loads a model's weights.
    Loading,
    /// There are as many persistent blocks of this size as gradients.
    GradientCount,
    /// From before the recording: as many as gradients of this size, and the optimizer makes all others anew before it
    /// computes the step.
    ChangedInPlace,
    /// From before the recording, and the optimizer makes it anew in every step, before it computes the step.
    MadeAnew,
    /// From before the recording: of all blocks of this size, which the optimizer makes anew, what it makes last.
    MadeLast,
    /// Takes the place of a block of the same size that the optimizer drops.
    TakesPlace,
    /// Of a parameter's size, and stays.
    ParameterSize,
    /// Made by the constructor of a class with a `forward`, and outlives one.
    ModuleConstructor,
    /// A copy that `DataParallel` makes on another device.
    Replica,
    /// Made by the function that fills the optimizer's state.
    StateStack,
    /// Made by the optimizer, and outlives its step.
    OutlivesOptimizer,
    /// Made in the optimizer's phase by other code, has a parameter's size and outlives the next step.
    MirrorsInOptimizer,
    /// Made by backward, has a parameter's size and outlives backward.
    MirrorsParameter,
    /// From before the recording, has a parameter's size, and `zero_grad` drops it.
    DroppedByZeroGrad,
    /// From before the recording, which starts in forward, and freed by the backward pass after it.
    FreedByBackward,
    /// Made by a function that is known by its name to make such blocks.
    Named,
    /// Parameters gathered from all ranks.
    Gathered,
    /// Made in a module's forward before the kept history, and still held where that begins.
    HeldSinceForward,
    /// Made before the kept history by an optimizer's line that holds several of its blocks.
    HeldByOptimizer,
    /// Made before the kept history by the constructor of a class with a `forward`.
    HeldSinceConstructor,
    /// No stack, or the engine's: at most as many blocks of this size as parameters, whose stacks are known.
    OlderMirrors,
    /// No stack: as many blocks of this size as one line of the optimizer holds states.
    StateCount,
    /// No stack, and the size of states of the optimizer.
    StateSize,
    /// No stack: sizes repeat as those of a model's layers do.
    LayerSizes,
    /// No history: four sets of sizes are alike.
    EqualSets,
    /// Older than the kept history; its stack does not say what it is for.
    Older,
    /// Its stack is inside `torch.distributed` or NCCL.
    CommunicationStack,
    /// Its stack is inside a library's workspace.
    WorkspaceStack,
    /// Has the size of cuBLAS's workspace and stays for good.
    WorkspaceSize,
    /// Made by forward, there when backward begins.
    HeldForBackward,
    /// Made while backward runs a forward again, and outlives that.
    Recomputed,
    /// Made in a forward that runs out of memory.
    ForwardCutShort,
    /// Made in a forward that keeps what its modules make: outlives the call of the model.
    KeptByForward,
    /// Every forward makes it longer by the same amount, and each lasts until the next.
    Grows,
    /// In the backward pass that runs out of memory, of a parameter's size.
    MirrorsInCutBackward,
    /// In the backward pass that runs out of memory, of no parameter's size.
    BackwardCutShort,
    /// As what this stack made before.
    AsBefore,
    /// As what the same place in the backward before made.
    AsBackwardBefore,
    /// Gone before the phase ends that made it.
    GoneInPhase,
    /// The gradient of the loss that backward starts from.
    LossGradient,
    /// Made between the steps' phases, there when forward begins.
    ReachesForward,
    /// From before the recording, and nothing else is known about it.
    BeforeRecording,
    /// The file has the final state alone: no recording that it could be older than.
    NoHistory,
    /// Outlives its phase, and nothing says what for.
    #[default]
    Undecided,
}

impl Evidence {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Metadata => "named by its metadata",
            Self::Timeline => "category of the memory timeline",
            Self::ModuleApply => "moved by nn.Module._apply",
            Self::Constructor => "allocated by a constructor of torch.nn",
            Self::Loading => "allocated while loading weights",
            Self::GradientCount => "as many blocks of this size as gradients",
            Self::ChangedInPlace => "as many blocks of this size as gradients, which the optimizer changes in place",
            Self::MadeAnew => "allocated again by the optimizer before it computes the step",
            Self::MadeLast => "of all blocks of this size, the last that the optimizer allocates again",
            Self::TakesPlace => "replaces a block that the optimizer frees",
            Self::ParameterSize => "size of a parameter, stays, without evidence for one category",
            Self::ModuleConstructor => "allocated by the constructor of a class with a forward, outlives a forward",
            Self::Replica => "copied to another device by DataParallel",
            Self::StateStack => "allocated where the optimizer fills its state",
            Self::OutlivesOptimizer => "allocated by the optimizer, outlives its step",
            Self::MirrorsInOptimizer => "allocated in the optimizer phase, size of a parameter, outlives the next step",
            Self::MirrorsParameter => "allocated by backward, size of a parameter, outlives backward",
            Self::DroppedByZeroGrad => "size of a parameter, freed by zero_grad",
            Self::FreedByBackward => "from before the recording, freed by backward",
            Self::Named => "allocated by a function that memviz recognizes by name",
            Self::Gathered => "parameters gathered from all ranks",
            Self::HeldSinceForward => "allocated in the forward of a module before the kept history, still held",
            Self::HeldByOptimizer => "allocated by the optimizer before the kept history, still held",
            Self::HeldSinceConstructor => "allocated by the constructor of a class with a forward, still held",
            Self::OlderMirrors => "allocated by the autograd engine before the kept history, size of a parameter",
            Self::StateCount => "no stack, as many blocks of this size as optimizer states",
            Self::StateSize => "no stack, size of optimizer states",
            Self::LayerSizes => "no stack, sizes repeat like those of a model's layers",
            Self::EqualSets => {
                "one of four sets of equal sizes: parameters, gradients, two states; which is which is unknown"
            }
            Self::Older => "from before the kept history, and its stack does not show its use",
            Self::CommunicationStack => "stack of torch.distributed or NCCL",
            Self::WorkspaceStack => "stack of a library's workspace",
            Self::WorkspaceSize => "size of the cuBLAS workspace, never freed",
            Self::HeldForBackward => "allocated by forward, held when backward begins",
            Self::Recomputed => "allocated by a recomputation, outlives it",
            Self::ForwardCutShort => "held in the forward that runs out of memory",
            Self::KeptByForward => "allocated in a forward that keeps the outputs of its modules, outlives the call",
            Self::Grows => "grows by the same amount each time, each block lives until the next",
            Self::MirrorsInCutBackward => "held in the backward that runs out of memory, size of a parameter",
            Self::BackwardCutShort => "held in the backward that runs out of memory, size of no parameter",
            Self::AsBefore => "like earlier blocks of the same stack",
            Self::AsBackwardBefore => "like the block at the same place in the previous backward",
            Self::GoneInPhase => "freed before its phase ends",
            Self::LossGradient => "gradient of the loss",
            Self::ReachesForward => "allocated before forward, held when it begins",
            Self::BeforeRecording => "from before the recording",
            Self::NoHistory => "no history was recorded",
            Self::Undecided => "outlives its phase, without evidence for one category",
        }
    }

    /// Whether the file itself says so.
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::Metadata | Self::Timeline)
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
