//! What a recording says of the rehearsal that it comes from: a run of PyTorch on a machine without a GPU.

use serde::{Deserialize, Serialize};

/// The facts of a rehearsal, as `torch_memviz.rehearse` writes them: JSON under the key `rehearsal` of a snapshot.
///
/// What is allocated is what PyTorch allocates on that GPU, as long as no value of the device decides about it: kernels were not
/// run, and every value read was 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// The version of these facts.
    pub version: u32,
    /// The kind of GPU, as `memviz rehearse --list` names it.
    pub gpu: String,
    /// Bytes of each device.
    #[serde(default)]
    pub memory: u64,
    /// Bytes of it that CUDA itself was taken to keep.
    #[serde(default)]
    pub context: u64,
    /// Ranks of which this is one, rehearsed alone; 1 where all ran, or there are none.
    #[serde(default)]
    pub ranks: u64,
    /// Lines that read values of the device, those that decided about sizes first.
    #[serde(default)]
    pub reads: Vec<ValueReads>,
    /// Functions that the program called and that are not rehearsed: they failed.
    #[serde(default)]
    pub refused: Vec<String>,
    /// What was assumed of values that decide about sizes, empty where nothing was.
    #[serde(default)]
    pub assumed: String,
    /// Models of transformers that were built from their configuration, without their weights.
    #[serde(default)]
    pub without_weights: Vec<String>,
    /// Operations of cuDNN, whose workspaces are not known and were taken for 0.
    #[serde(default)]
    pub cudnn_operations: u64,
    /// Why it ended before the program did, empty where it did not.
    #[serde(default)]
    pub ended: String,
}

/// What a value is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueUse {
    /// To have it on the host: `.cpu()`, `.tolist()`, printing.
    Copy,
    /// As one value: `.item()`, `float()`, `if`.
    Value,
    /// As the size of a result: `nonzero`, masks, `unique`.
    Size,
}

/// A line that reads values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueReads {
    /// The file, empty for backward's own threads.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The line's text.
    pub code: String,
    /// What for.
    pub kind: ValueUse,
    /// How often.
    pub count: u64,
}

impl Rehearsal {
    /// The key of a snapshot.
    pub const KEY: &str = "rehearsal";
    /// The version that is read.
    pub const VERSION: u32 = 1;

    /// Why figures of this recording, played on a device, are not exact however complete it is; empty where they are.
    /// `is_elsewhere` says whether that is another device than the rehearsed one.
    pub fn lacks(&self, is_elsewhere: bool) -> &'static str {
        match () {
            () if self.sizes().next().is_some() => {
                "rehearsed; some sizes depend on values on the device, which a rehearsal does not have"
            }
            () if !self.refused.is_empty() => "only partly rehearsed: see what failed or was left out",
            () if is_elsewhere => {
                "rehearsed as another GPU: the workspace of cuBLAS and buffers of reductions may have other sizes on this one, \
                 and programs may choose other kernels; memviz rehearse --gpu answers for it"
            }
            () if self.cudnn_operations > 0 => "rehearsed, and workspaces of cuDNN are not counted",
            () => "",
        }
    }

    /// Lines whose values decided how much was allocated.
    pub fn sizes(&self) -> impl Iterator<Item = &ValueReads> {
        self.reads.iter().filter(|reads| reads.kind == ValueUse::Size)
    }
}

impl ValueUse {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Value => "value",
            Self::Size => "size",
        }
    }
}

impl ValueReads {
    /// The line as reports name it, with its text.
    pub fn place(&self) -> String {
        let file = self.file.rsplit(['/', '\\']).next().unwrap_or(&self.file);
        match (file, self.code.as_str()) {
            ("", _) => "backward".to_owned(),
            (file, "") => format!("{file}:{}", self.line),
            (file, code) => format!("{file}:{} {code}", self.line),
        }
    }
}
