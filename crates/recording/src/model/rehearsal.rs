//! What a recording says about the rehearsal that produced it: a run of PyTorch on a machine without a GPU.

use serde::{Deserialize, Serialize};

/// The facts about a rehearsal, as `torch_memviz.rehearse` writes them: JSON under the key `rehearsal` of a snapshot.
///
/// The allocations are those that PyTorch makes on that GPU, unless they depend on a value on the device: kernels did not
/// run, and every value read was 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// The version of these facts.
    pub version: u32,
    /// The GPU model, as `memviz rehearse --list` names it.
    pub gpu: String,
    /// Bytes of each device.
    #[serde(default)]
    pub memory: u64,
    /// How many of these bytes CUDA itself was assumed to use.
    #[serde(default)]
    pub context: u64,
    /// The number of ranks, one of which was rehearsed alone; 1 if all ran, or if there are none.
    #[serde(default)]
    pub ranks: u64,
    /// Lines that read values from the device. Those that determined sizes are first.
    #[serde(default)]
    pub reads: Vec<ValueReads>,
    /// Functions that the program called and that cannot be rehearsed: the calls failed.
    #[serde(default)]
    pub refused: Vec<String>,
    /// What was assumed about values that determine sizes; empty if nothing was.
    #[serde(default)]
    pub assumed: String,
    /// Models of transformers that were built from their configuration, without their weights.
    #[serde(default)]
    pub without_weights: Vec<String>,
    /// The number of cuDNN operations whose workspaces are unknown and were assumed to be 0.
    #[serde(default)]
    pub cudnn_operations: u64,
    /// The number of cuDNN operations whose workspaces cuDNN itself planned, without a device.
    #[serde(default)]
    pub cudnn_planned: u64,
    /// The number of these whose workspaces may be smaller or larger on the GPU.
    #[serde(default)]
    pub cudnn_uncertain: u64,
    /// By how many bytes such a workspace may be smaller. At most one is held at a time.
    #[serde(default)]
    pub cudnn_smaller: u64,
    /// By how many bytes such a workspace may be larger.
    #[serde(default)]
    pub cudnn_larger: u64,
    /// Why the rehearsal ended before the program did; empty if it did not.
    #[serde(default)]
    pub ended: String,
}

names! {
    /// What a value is used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ValueUse {
        /// Copied to the host: `.cpu()`, `.tolist()`, printing.
        Copy = "copy",
        /// As one value: `.item()`, `float()`, `if`.
        Value = "value",
        /// As the size of a result: `nonzero`, masks, `unique`.
        Size = "size",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueReads {
    /// The file, empty for backward's own threads.
    pub file: String,
    pub line: u64,
    /// The line's text.
    pub code: String,
    /// What the values are used for.
    pub kind: ValueUse,
    /// How many times.
    pub count: u64,
}

impl Rehearsal {
    /// The key in a snapshot.
    pub const KEY: &str = "rehearsal";
    /// The version that is read.
    pub const VERSION: u32 = 1;

    /// Why a simulation of this recording on a device is not exact even if the recording is complete; empty if it is exact.
    /// `is_elsewhere` says whether the device differs from the rehearsed one.
    pub fn lacks(&self, is_elsewhere: bool) -> &'static str {
        if self.sizes().next().is_some() {
            "rehearsed; some sizes depend on values read from the device, which a rehearsal does not know"
        } else if !self.refused.is_empty() {
            "only partly rehearsed: see what failed or was left out"
        } else if is_elsewhere {
            "rehearsed for another GPU: the cuBLAS workspace and reduction buffers may have other sizes on this GPU, and programs may choose other kernels; rehearse the program for this GPU with memviz rehearse --gpu NAME"
        } else if self.cudnn_operations > 0 {
            "rehearsed; cuDNN workspaces are not counted"
        } else if self.cudnn_uncertain > 0 {
            "rehearsed; some cuDNN workspaces may be larger"
        } else {
            ""
        }
    }

    /// Lines whose values determined how much was allocated.
    pub fn sizes(&self) -> impl Iterator<Item = &ValueReads> {
        self.reads.iter().filter(|reads| reads.kind == ValueUse::Size)
    }
}

impl ValueReads {
    /// The line with its text, as reports show it.
    pub fn place(&self) -> String {
        let file = self.file.rsplit(['/', '\\']).next().unwrap_or(&self.file);
        match (file, self.code.as_str()) {
            ("", _) => "backward".to_owned(),
            (file, "") => format!("{file}:{}", self.line),
            (file, code) => format!("{file}:{} {code}", self.line),
        }
    }
}
