//! The group of a block under each `--by`.

pub mod attribution;
pub mod filter;
mod grouper;
mod groups;
mod holder;
mod key;
mod labels;
mod mean;
mod metadata;
mod pools;
pub mod private_pools;
mod told;

pub(crate) use grouper::Grouper;
pub(crate) use groups::{Groups, RowHead};
pub(crate) use holder::Holder;
pub(crate) use key::Key;
pub use labels::{ALLOCATOR, BASELINE, FILTERED, NO_ANNOTATION, NO_METADATA, NO_MODULE, NOT_RECORDED};
pub use labels::{UNKNOWN_POOL, UNKNOWN_STREAM};
pub(crate) use mean::{Mean, whole};

use crate::error::{Error, Result};
use crate::replay::Metric;
use serde::Serialize;

/// What rows and bands represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The line of your own code.
    #[default]
    Site,
    /// The whole stack.
    Stack,
    /// Every function on the stack, inclusive.
    ///
    /// A block counts once in each of them, so rows overlap.
    Function,
    /// The file of the site.
    File,
    /// The Python package.
    Module,
    /// The CUDA stream.
    Stream,
    /// The memory pool.
    Pool,
    /// Metadata from the program (`_set_memory_metadata`, `_annotate_tensor`).
    ///
    /// `metadata:KEY` selects a dictionary key.
    Metadata,
    /// The open `record_function` ranges.
    Annotation,
    /// The operator (profiler traces, with what each allocated and freed; snapshots with C++ stacks).
    Operator,
    /// The `nn.Module` calls (profiler traces).
    NnModule,
    /// The module of the model, numbered among its siblings: `GPT.Block[3].Attention`.
    ModulePath,
    /// What the memory is for: parameters, gradients, optimizer state, activations and so on.
    ///
    /// See [`crate::facts::training::Category`].
    Category,
    /// The part of the training step that allocated it.
    ///
    /// See [`crate::facts::training::Phase`].
    Phase,
    /// The variable, attribute or autograd node that holds it (recordings of `torch_memviz` with holders).
    Holder,
    /// The variable from which it is reached.
    HolderRoot,
}

impl GroupBy {
    /// Every way to group.
    pub const ALL: [Self; 16] = [
        Self::Site,
        Self::Stack,
        Self::Function,
        Self::File,
        Self::Module,
        Self::Stream,
        Self::Pool,
        Self::Metadata,
        Self::Annotation,
        Self::Operator,
        Self::NnModule,
        Self::ModulePath,
        Self::Category,
        Self::Phase,
        Self::Holder,
        Self::HolderRoot,
    ];

    /// The name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Stack => "stack",
            Self::Function => "function",
            Self::File => "file",
            Self::Module => "module",
            Self::Stream => "stream",
            Self::Pool => "pool",
            Self::Metadata => "metadata",
            Self::Annotation => "annotation",
            Self::Operator => "operator",
            Self::NnModule => "nn_module",
            Self::ModulePath => "module_path",
            Self::Category => "category",
            Self::Phase => "phase",
            Self::Holder => "holder",
            Self::HolderRoot => "holder_root",
        }
    }

    /// The name as users type it, for sentences.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::NnModule => "nn-module",
            Self::ModulePath => "module-path",
            Self::HolderRoot => "holder-root",
            _ => self.name(),
        }
    }

    /// Whether a metric can be grouped like this.
    ///
    /// # Errors
    /// If it cannot: a segment contains blocks of many categories.
    pub(crate) fn require(self, metric: Metric) -> Result<()> {
        let lacks = match self {
            Self::Category => "category",
            Self::Holder | Self::HolderRoot => "holder",
            _ => return Ok(()),
        };
        if metric == Metric::Reserved {
            let message =
                format!("segments have no {lacks}: expected the metric allocated, active or requested, found reserved");
            return Err(Error::Request(message));
        }
        Ok(())
    }

    /// Whether rows overlap, so that they do not sum to the total.
    pub fn is_inclusive(self) -> bool {
        self == Self::Function
    }

    /// Whether the stack alone determines the group, and each block is in exactly one group.
    pub(crate) fn gives_each_stack_one_group(self) -> bool {
        self.is_by_stack() && !self.is_inclusive()
    }

    /// Whether a forward stack determines the group of a block of backward. Snapshots have no operators.
    pub fn is_by_code(self) -> bool {
        matches!(self, Self::Site | Self::Stack | Self::Function | Self::File | Self::Module)
    }

    /// Whether a block's group follows from its stack.
    pub(super) fn is_by_stack(self) -> bool {
        self.is_by_code() || matches!(self, Self::Operator | Self::NnModule)
    }
}

/// Whether to infer what the recording does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inference {
    /// Memory that backward passes allocate is attributed to lines of forward: see [`crate::facts::training::BackwardSites`].
    #[default]
    On,
    /// Nothing is inferred.
    Off,
}
