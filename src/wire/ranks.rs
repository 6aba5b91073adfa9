//! A recording in a few kilobytes, which one machine writes and another joins: see [`super::rank_lines`].

use crate::model::device_file::Occasion;
use crate::model::{CPU_DEVICE, DeviceId, Format};
use crate::replay::{Bound, Counters, Metric};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Lines in a sample of code.
pub const SAMPLE: usize = 64;
/// Hexadecimal digits of each hash.
pub const DIGITS: usize = 6;
/// The number of failed requests with signatures in a summary: the first ones.
pub const SIGNED: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankLine {
    Rank(Box<RankSummary>),
    /// A recording in which no memory was allocated on any device.
    Empty(EmptyRank),
    /// An input that could not be analyzed.
    Failed(FailedInput),
    /// A file of a directory or glob that is neither a recording nor a summary.
    Skipped(SkippedInput),
}

impl RankLine {
    pub fn rank(&self) -> Option<&RankSummary> {
        match self {
            Self::Rank(rank) => Some(rank),
            _ => None,
        }
    }
}

/// A rank on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankSummary {
    /// The recording, as it was named where it was summarized.
    pub path: String,
    /// Number of the rank.
    pub rank: u64,
    /// Where that number is from.
    pub rank_source: RankSource,
    /// Number of ranks in the run, if the recording shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// Device: -1 for pinned host memory, -2 for CPU memory.
    pub device: DeviceId,
    /// What kind of file the recording is.
    pub format: Format,
    /// Entries of the device.
    pub entries: u32,
    /// Times of the first and the last entry in microseconds since the epoch, if the recording has times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<(i64, i64)>,
    /// The lines of code that allocate, if stacks show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeSample>,
    /// Whether recording started with an empty allocator and nothing is missing.
    pub complete_history: bool,
    /// Contradictions in it.
    pub anomalies: u64,
    /// Which of `baseline_bytes` and `maxima` are not exact.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub bounds: IndexMap<String, Bound>,
    /// Allocated before the first kept entry.
    pub baseline_bytes: i64,
    /// Each metric's maximum.
    pub maxima: Counters,
    /// The metric whose peak `peak` and `top` describe.
    pub metric: Metric,
    /// The counters at that peak.
    pub peak: Counters,
    /// Reserved but not active there. `None` if nothing is ever reserved, as on a CPU.
    pub inactive_bytes: Option<i64>,
    /// Counters at the end.
    pub end: Counters,
    /// The whole device, if it was sampled. Left out when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<DeviceMemory>,
    /// Number of failed requests.
    pub ooms: u64,
    /// The signatures of the first [`SIGNED`] of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<RankFailure>,
    /// Bytes held at the peak; `top` sums to it.
    pub total_bytes: u64,
    /// The sites that hold the most at the peak; the rest is the last row, `(other)`.
    pub top: Vec<TopRow>,
}

/// A whole device, in the sample in which the most memory was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceMemory {
    /// When the sample was taken.
    pub at: Occasion,
    /// Bytes of the device.
    pub total_bytes: u64,
    /// Bytes in use by any program or library.
    pub used_bytes: u64,
    /// Bytes of these that PyTorch's allocator did not reserve: contexts, NCCL, other processes. Negative if figures
    /// contradict each other.
    pub outside_bytes: i64,
}

impl DeviceMemory {
    /// A sample of a device.
    pub(crate) fn new(at: Occasion, total_bytes: u64, used_bytes: u64, outside_bytes: i64) -> Self {
        Self { at, total_bytes, used_bytes, outside_bytes }
    }
}

/// The memory of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopRow {
    /// The site.
    pub label: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether the label is inferred rather than recorded. Left out if false, so that summaries stay small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
}

/// What similar failed requests have in common, within a run and across runs. Line numbers, addresses, times and exact sizes are
/// not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureSignature {
    /// Sixteen hexadecimal digits, made from the other keys.
    pub id: String,
    /// Why the request failed.
    pub cause: String,
    /// The function that made the request, without its line.
    pub requester: String,
    /// The function that held most of the memory, without its line.
    pub holder: String,
    /// The requested size, rounded up to a power of two.
    pub size_class_bytes: u64,
    /// `small`, `large` or `private`.
    pub pool: String,
}

/// Failed requests of a rank with one signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankFailure {
    /// What they have in common.
    pub signature: FailureSignature,
    /// How many there are.
    pub requests: u64,
}

/// A rank without memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmptyRank {
    /// The recording.
    pub path: String,
    /// Number of the rank.
    pub rank: u64,
    /// Where that number is from.
    pub rank_source: RankSource,
}

/// An input that could not be analyzed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedInput {
    /// The input.
    pub path: String,
    /// Why not, in a line.
    pub error: String,
}

/// A file of another kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SkippedInput {
    /// The file.
    pub path: String,
}

/// Where a rank's number is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankSource {
    /// From the recording itself: `distributedInfo` of a profiler trace.
    Recorded,
    /// From the path.
    Path,
    /// The position among the inputs, counted from 0.
    Order,
}

/// The user's own lines that allocate, innermost on their stacks. If there are many, those with the smallest hashes, so that
/// two recordings of the same program have the same lines in their samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CodeSample {
    /// Number of lines.
    pub lines: u64,
    /// Hashes of up to 64 of them, smallest first, each with six hexadecimal digits.
    pub sample: String,
}

impl CodeSample {
    /// Checks what the types do not ensure, for a sample from a file.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&self) -> Result<(), String> {
        let is_hexadecimal = self.sample.bytes().all(|digit| digit.is_ascii_hexdigit());
        let lines = self.sample.len() / DIGITS;
        if !is_hexadecimal || !self.sample.len().is_multiple_of(DIGITS) || lines > SAMPLE || lines as u64 > self.lines {
            return Err(format!("expected a sample of at most {SAMPLE} hashes with {DIGITS} digits each"));
        }
        Ok(())
    }
}

impl RankSummary {
    /// Which bound a metric's maximum is, if it is not exact.
    pub fn bound(&self, metric: Metric) -> Option<Bound> {
        self.bounds.get(&format!("{}_bytes", metric.name())).copied()
    }

    /// The fraction of reserved memory at the peak that is inactive, from 0 to 1.
    pub fn inactive_share(&self) -> Option<f64> {
        self.inactive_bytes.filter(|_| self.peak.reserved > 0).map(|bytes| bytes as f64 / self.peak.reserved as f64)
    }

    /// Checks what the types do not ensure, for a summary from a file.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&self) -> Result<(), String> {
        if self.device < CPU_DEVICE {
            return Err(format!("expected a device number of -2 or higher, found {}", self.device));
        }
        if let Some(code) = &self.code {
            code.check()?;
        }
        let signed: u128 = self.failures.iter().map(|failure| u128::from(failure.requests)).sum();
        if signed > u128::from(self.ooms) {
            return Err(format!("expected signatures of at most {} failed requests, found {signed}", self.ooms));
        }
        let sum: u128 = self.top.iter().map(|row| u128::from(row.bytes)).sum();
        if sum != u128::from(self.total_bytes) {
            return Err(format!("expected rows that sum to {} bytes, found {sum}", self.total_bytes));
        }
        Ok(())
    }
}
