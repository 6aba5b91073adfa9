//! A recording in a few kilobytes: what is needed to compare it with other ranks'.

use super::code::CodeSample;
use super::number::{RankNumber, RankSource};
use crate::analysis::device::Devices;
use crate::analysis::grouping::attribution::{Attribution, OTHER};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::model::{Action, DeviceId, Format};
use crate::replay::{Bound, Counters, Metric, Track};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows of a summary when nothing else is asked for.
pub const TOP: usize = 20;
/// Bytes that the labels of a summary may have together. Sites that do not fit are among the other ones.
const LABELS: usize = 2048;
/// Bytes that one label may have. A longer one loses its beginning.
const LABEL: usize = 200;

/// What a summary says.
#[derive(Clone, Debug)]
pub struct SummaryOptions {
    /// The metric whose peak is attributed.
    pub metric: Metric,
    /// Sites listed for each device, at most.
    pub top: usize,
    /// Devices wanted; empty for all.
    pub devices: Vec<DeviceId>,
}

impl Default for SummaryOptions {
    fn default() -> Self {
        Self { metric: Metric::default(), top: TOP, devices: Vec::new() }
    }
}

/// What there is to say about an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankLine {
    /// A rank, on one device.
    Rank(Box<RankSummary>),
    /// A recording in which no memory was allocated on any device.
    Empty(EmptyRank),
    /// An input that could not be analysed.
    Failed(FailedInput),
    /// A file of a directory or glob that is neither a recording nor a summary.
    Skipped(SkippedInput),
}

impl RankLine {
    /// The rank, if it is one.
    pub fn rank(&self) -> Option<&RankSummary> {
        match self {
            Self::Rank(rank) => Some(rank),
            _ => None,
        }
    }
}

/// A rank on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankSummary {
    /// The recording, as it was named where it was summarised.
    pub path: String,
    /// Number of the rank.
    pub rank: u64,
    /// Where that number is from.
    pub rank_source: RankSource,
    /// Number of ranks in the run, where the recording tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: DeviceId,
    /// What kind of file the recording is.
    pub format: Format,
    /// Entries of the device.
    pub entries: u32,
    /// Times of the first and the last entry in microseconds since the epoch, where the recording has times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<(i64, i64)>,
    /// The lines of code that allocate, where stacks tell.
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
    /// The metric whose peak `peak` and `top` are about.
    pub metric: Metric,
    /// The counters at that peak.
    pub peak: Counters,
    /// Reserved and not active there. `None` where nothing is ever reserved, as on a CPU.
    pub inactive_bytes: Option<i64>,
    /// Counters at the end.
    pub end: Counters,
    /// Requests that failed.
    pub ooms: u64,
    /// Bytes held at the peak; `top` sums to it.
    pub total_bytes: u64,
    /// The sites that hold most at the peak; what is not listed is the last row, `(other)`.
    pub top: Vec<TopRow>,
}

/// What a site holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopRow {
    /// The site.
    pub label: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether the label is inferred rather than recorded. Left out when it is not, so that summaries stay small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
}

/// A rank without memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyRank {
    /// The recording.
    pub path: String,
    /// Number of the rank.
    pub rank: u64,
    /// Where that number is from.
    pub rank_source: RankSource,
}

/// An input that could not be analysed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedInput {
    /// The input.
    pub path: String,
    /// Why not, in a line.
    pub error: String,
}

/// A file that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedInput {
    /// The file.
    pub path: String,
}

impl RankSummary {
    /// How a metric's maximum is to be read, where it is not exact.
    pub fn bound(&self, metric: Metric) -> Option<Bound> {
        self.bounds.get(&format!("{}_bytes", metric.name())).copied()
    }

    /// The site that holds most at the peak.
    pub fn largest(&self) -> Option<&TopRow> {
        self.top.iter().find(|row| row.label != OTHER)
    }

    /// The part of what is reserved at the peak that is inactive, from 0 to 1.
    pub fn inactive_share(&self) -> Option<f64> {
        self.inactive_bytes.filter(|_| self.peak.reserved > 0).map(|bytes| bytes as f64 / self.peak.reserved as f64)
    }

    /// Checks what the types do not say, for a summary from a file.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&self) -> std::result::Result<(), String> {
        if self.device < crate::model::CPU_DEVICE {
            return Err(format!("expected a device from -2 on, found {}", self.device));
        }
        if let Some(code) = &self.code {
            code.check()?;
        }
        let sum: u128 = self.top.iter().map(|row| u128::from(row.bytes)).sum();
        if sum != u128::from(self.total_bytes) {
            return Err(format!("expected rows that sum to {} bytes, found {sum}", self.total_bytes));
        }
        Ok(())
    }
}

/// The summaries of a recording: a line for each device with data. `number` is its rank, unless the recording names
/// another.
///
/// # Errors
/// When a device is asked for that the recording does not have.
pub fn summarise(
    path: &str,
    number: RankNumber,
    recording: &Devices<'_>,
    options: &SummaryOptions,
) -> Result<Vec<RankLine>> {
    let snapshot = recording.snapshot();
    let recorded = snapshot.notes.rank;
    let number = recorded.map_or(number, |(rank, _)| RankNumber { rank, source: RankSource::Recorded });
    let peak = PeakOptions { metric: options.metric, devices: options.devices.clone(), ..PeakOptions::default() };
    let report = PeakReport::of(recording, &peak)?;
    if report.devices.is_empty() {
        let empty = EmptyRank { path: path.to_owned(), rank: number.rank, rank_source: number.source };
        return Ok(vec![RankLine::Empty(empty)]);
    }
    let time_us = |track: Track<'_>| {
        let times = Some(track.times()).filter(|_| track.has_times())?;
        Some((*times.first()?, *times.last()?))
    };
    let ooms = |track: Track<'_>| track.action_counts()[Action::Oom as usize];
    let track = |peak: &DevicePeak| recording.get(peak.device).map(|device| device.track);
    let summary = |device: &DevicePeak| RankSummary {
        path: path.to_owned(),
        rank: number.rank,
        rank_source: number.source,
        world_size: recorded.and_then(|(_, world_size)| world_size),
        device: device.device,
        format: snapshot.notes.format,
        entries: device.entries,
        time_us: track(device).and_then(time_us),
        code: track(device).and_then(|track| CodeSample::of(track, recording.sites())),
        complete_history: device.completeness.is_complete(),
        anomalies: device.anomalies.total(),
        bounds: device.bounds(),
        baseline_bytes: device.baseline.allocated,
        maxima: device.maxima.into(),
        metric: options.metric,
        peak: device.at,
        inactive_bytes: (device.maxima[Metric::Reserved as usize].bytes > 0)
            .then(|| device.at.reserved.wrapping_sub(device.at.active)),
        end: device.end,
        ooms: track(device).map_or(0, ooms),
        total_bytes: device.attribution.total_bytes,
        top: top_rows(&device.attribution, options.top),
    };
    Ok(report.devices.iter().map(|device| RankLine::Rank(Box::new(summary(device)))).collect())
}

/// The largest rows, as many as are wanted and fit, and one for the rest.
fn top_rows(attribution: &Attribution, top: usize) -> Vec<TopRow> {
    let mut rows: Vec<TopRow> = Vec::new();
    let mut labels = 0;
    for row in attribution.rows.iter().take(top) {
        let label = ending(&row.label, LABEL);
        labels += label.len();
        if labels > LABELS {
            break;
        }
        rows.push(TopRow { label, bytes: row.bytes, blocks: row.blocks, inferred: row.inferred });
    }
    let rest = &attribution.rows[rows.len()..];
    if !rest.is_empty() {
        rows.push(TopRow {
            label: OTHER.to_owned(),
            bytes: rest.iter().fold(0, |sum: u64, row| sum.wrapping_add(row.bytes)),
            blocks: rest.iter().map(|row| row.blocks).sum(),
            inferred: rest.iter().any(|row| row.inferred),
        });
    }
    rows
}

/// A text in at most `length` bytes: the end of a path is what tells files apart.
fn ending(text: &str, length: usize) -> String {
    if text.len() <= length {
        return text.to_owned();
    }
    let mark = "…";
    let least = text.len() - (length - mark.len());
    let start = (least..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    format!("{mark}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::grouping::attribution::Row;

    #[test]
    fn summaries_stay_small_and_sum_up() {
        let rows: Vec<Row> = (0..100)
            .map(|index| Row {
                label: format!("{}é/file.py:{index} forward", "long/".repeat(index)),
                bytes: 1000 - index as u64,
                blocks: 2,
                ..Row::default()
            })
            .collect();
        let attribution =
            Attribution { total_bytes: rows.iter().map(|row| row.bytes).sum(), rows, ..Attribution::default() };
        for top in [0, 1, 20, 99, 100, 1000] {
            let found = top_rows(&attribution, top);
            assert!(found.len() <= top + 1);
            assert_eq!(found.iter().map(|row| row.bytes).sum::<u64>(), attribution.total_bytes);
            assert_eq!(found.iter().map(|row| row.blocks).sum::<u64>(), 200);
            assert!(found.iter().map(|row| row.label.len()).sum::<usize>() <= LABELS + OTHER.len());
        }
        assert_eq!(ending("ééé", 5), "…é");
        assert_eq!(ending("abc", 3), "abc");
    }
}
