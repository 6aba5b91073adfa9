//! The JSON of `memviz peak --each`.

use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::facts::grouping::attribution::Row;
use crate::replay::{Bound, History};
use crate::report::common::json::{CounterBytes, PeakInstant};
use crate::report::leaks::json::{StepSourceName, step_source};
use serde::Serialize;

/// The kind of ranges of a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EachRange {
    /// `step`, `phase` or `annotation`.
    pub by: &'static str,
    /// The source of the steps; null for other ranges.
    pub step_source: Option<StepSourceName>,
    /// The annotations that are steps, with `N` in place of numbers, or the site that returns in each step; null for
    /// other ranges.
    pub step_name: Option<String>,
    /// Number of ranges that are not listed, since there are too many: all have lower peaks than the listed ones.
    pub left_out: usize,
    /// The highest peak of the ranges that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out_bytes: Option<i64>,
}

/// A step, phase or annotation with its own peak. Ranges may overlap and nest.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RangeRow {
    /// Its name, with a number from the second range with this name on: `forward#2`. `(outside)` is the period outside all
    /// ranges that contains the overall peak; it is left out if that is in a range.
    pub label: String,
    /// Whether the bounds of the range are inferred.
    pub inferred: bool,
    /// The entry before the range, whose state the range starts with; null before the first entry.
    pub from_entry: Option<u32>,
    /// Last entry of the range; null before the first entry.
    pub to_entry: Option<u32>,
    /// The instant at which the metric is highest, from `from_entry` to `to_entry`, both included.
    pub peak: PeakInstant,
    /// Which bound the metric is there, if it is not exact: a part of the range, or some of the memory, was not
    /// recorded. Left out if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Bytes of the metric that are held at the peak; `top` sums to it, unless groups overlap.
    pub total_bytes: u64,
    /// The groups that hold the most at the peak, and the rest as `(other)`.
    pub top: Vec<RangeLeader>,
}

/// A group that holds much at the peak of a range.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RangeLeader {
    /// The group.
    pub label: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether the label is inferred.
    pub inferred: bool,
}

impl From<&RangePeaks> for EachRange {
    fn from(ranges: &RangePeaks) -> Self {
        let (step_source, step_name) = ranges.steps.clone().map_or((None, None), |steps| step_source(&Ok(steps)));
        Self {
            by: ranges.each.name(),
            step_source,
            step_name,
            left_out: ranges.left_out.map_or(0, |(others, _)| others),
            left_out_bytes: ranges.left_out.map(|(_, highest)| highest),
        }
    }
}

impl From<&RangePeak> for RangeRow {
    fn from(range: &RangePeak) -> Self {
        let place = &range.peak;
        Self {
            label: range.label.clone(),
            inferred: range.inferred,
            from_entry: History::entry_before(range.from),
            to_entry: History::entry_before(range.to),
            peak: PeakInstant {
                entry: place.entry,
                time_us: place.time_us,
                counters: CounterBytes::from(&range.at),
                annotations: place.annotations.clone(),
            },
            bound: range.bound,
            total_bytes: range.total_bytes,
            top: range.top.iter().map(RangeLeader::from).collect(),
        }
    }
}

impl From<&Row> for RangeLeader {
    fn from(row: &Row) -> Self {
        Self { label: row.label.clone(), bytes: row.bytes, blocks: row.blocks, inferred: row.inferred }
    }
}
