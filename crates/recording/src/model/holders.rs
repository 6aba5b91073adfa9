//! Which variables, attributes and autograd nodes hold memory, as a walk over the references of the program found them.

use super::FrameId;
use serde::Deserialize;

/// The holders of a recording, as `torch_memviz` writes them: JSON under the key `holders` of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Holders {
    version: u32,
    /// How many requests each device had served since the recording started, when the snapshot was taken.
    pub requests: Vec<u64>,
    /// How many frees the program had requested on each device by then, as PyTorch counts them; empty in older recordings.
    #[serde(default)]
    pub frees: Vec<u64>,
    /// All holders, to which storages refer.
    pub holders: Vec<HeldBy>,
    pub walks: Vec<HolderWalk>,
}

/// What holds a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HeldBy {
    /// From a variable to the tensor, as the program would write it: `train.history[2].grad_fn`.
    pub path: String,
    pub kind: HolderKind,
    /// The autograd node that has saved the tensor, and under which name: `AddmmBackward0.mat1`.
    #[serde(default)]
    pub node: String,
    /// The variable at its start: `train.history`.
    #[serde(default)]
    pub variable: String,
    /// What the path starts at: `local`, `global`, `exception`, `unreachable`.
    #[serde(default)]
    pub root: String,
    /// Whether the variable at its start belongs to a library.
    #[serde(default)]
    pub library: bool,
    /// The line that stores there, if the source shows it.
    #[serde(default)]
    pub file: String,
    #[serde(default)]
    pub line: u32,
    /// The text of that line.
    #[serde(default)]
    pub code: String,
    /// The function around that line.
    #[serde(default)]
    pub function: String,
    /// The same line as a frame, once a recording contains it.
    #[serde(skip)]
    pub frame: Option<FrameId>,
    /// Whether that line adds to a container, rather than assigning.
    #[serde(default)]
    pub grows: bool,
    /// The class of the object whose attribute it is, if that is a module of the model: `Attention`.
    #[serde(default)]
    pub module: String,
}

/// How a tensor is held, the most telling first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderKind {
    Parameter,
    Buffer,
    Gradient,
    OptimizerState,
    /// An autograd node saved it for backward.
    Saved,
    #[default]
    Variable,
    /// No variable reaches it: a reference cycle or C++ holds it.
    Unreachable,
}

/// What held memory at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HolderWalk {
    /// Where it took place: `oom`, `end`, `dump`, `backward`, `optimizer`, or `forward`.
    pub at: String,
    /// How many requests each device had served since the recording started.
    pub requests: Vec<u64>,
    /// How many frees the program had requested on each device, counted as in [`Holders::frees`].
    #[serde(default)]
    pub frees: Vec<u64>,
    /// The limit at which it ended early: `objects` or `time`.
    #[serde(default)]
    pub limit: String,
    /// Tensors whose storage could not be read.
    #[serde(default)]
    pub unread: u64,
    /// Storages that were left out, the smallest ones.
    #[serde(default)]
    pub left_out: u64,
    pub storages: Vec<HeldStorage>,
}

/// A storage of tensors.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "(i32, u64, u64, u64, Vec<u32>, u64)")]
pub struct HeldStorage {
    pub device: i32,
    /// Where it begins: at the start of a block, or inside one.
    pub address: u64,
    pub bytes: u64,
    /// The most bytes that any of its tensors sees.
    pub seen_bytes: u64,
    /// What holds it, the most telling first: indexes into [`Holders::holders`].
    pub holders: Vec<u32>,
    /// How many more hold it.
    pub more: u64,
}

impl From<(i32, u64, u64, u64, Vec<u32>, u64)> for HeldStorage {
    fn from((device, address, bytes, seen_bytes, holders, more): (i32, u64, u64, u64, Vec<u32>, u64)) -> Self {
        Self { device, address, bytes, seen_bytes, holders, more }
    }
}

impl Holders {
    /// The key in a snapshot.
    pub const KEY: &str = "holders";
    const VERSION: u32 = 1;

    /// Reads the JSON; `None` if it is of another version, or refers to holders that it does not list.
    pub fn of_json(text: &str) -> Option<Self> {
        let found: Self = serde_json::from_str(text).ok()?;
        let storages = found.walks.iter().flat_map(|walk| &walk.storages);
        let is_listed = |index: &u32| (*index as usize) < found.holders.len();
        let is_whole = storages.flat_map(|storage| &storage.holders).all(is_listed);
        (found.version == Self::VERSION && is_whole).then_some(found)
    }
}
