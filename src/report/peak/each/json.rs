//! The JSON of `memviz peak --each`.

use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::facts::grouping::attribution::Row;
use crate::replay::{Bound, History};
use crate::report::common::json::{CounterBytes, PeakInstant, keys};
use crate::report::leaks::json::{StepSourceName, step_source};

keys! { schema
    /// The kind of ranges of a device.
    pub struct EachRange(ranges: &RangePeaks) {
        let (step_source, step_name) = ranges.steps.clone().map_or((None, None), |steps| step_source(&Ok(steps)));
        /// `step`, `phase` or `annotation`.
        pub by: &'static str = ranges.each.name(),
        /// The source of the steps; null for other ranges.
        pub step_source: Option<StepSourceName> = step_source,
        /// The annotations that are steps, with `N` in place of numbers, or the site that returns in each step; null for
        /// other ranges.
        pub step_name: Option<String> = step_name,
        /// Number of ranges that are not listed, since there are too many: all have lower peaks than the listed ones.
        pub left_out: usize = ranges.left_out.map_or(0, |(others, _)| others),
        /// The highest peak of the ranges that are not listed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub left_out_bytes: Option<i64> = ranges.left_out.map(|(_, highest)| highest),
    }
}

keys! { schema
    /// A step, phase or annotation with its own peak. Ranges may overlap and nest.
    pub struct RangeRow(range: &RangePeak) {
        let place = &range.peak;
        /// Its name, with a number from the second range with this name on: `forward#2`. `(outside)` is the period outside all
        /// ranges that contains the overall peak; it is left out if that is in a range.
        pub label: String = range.label.clone(),
        /// Whether the bounds of the range are inferred.
        pub inferred: bool = range.inferred,
        /// The entry before the range, whose state the range starts with; null before the first entry.
        pub from_entry: Option<u32> = History::entry_before(range.from),
        /// Last entry of the range; null before the first entry.
        pub to_entry: Option<u32> = History::entry_before(range.to),
        /// The instant at which the metric is highest, from `from_entry` to `to_entry`, both included.
        pub peak: PeakInstant = PeakInstant {
            entry: place.entry,
            time_us: place.time_us,
            counters: CounterBytes::from(&range.at),
            annotations: place.annotations.clone(),
        },
        /// Which bound the metric is there, if it is not exact: a part of the range, or some of the memory, was not
        /// recorded. Left out if it is exact.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bound: Option<Bound> = range.bound,
        /// Bytes of the metric that are held at the peak; `top` sums to it, unless groups overlap.
        pub total_bytes: u64 = range.total_bytes,
        /// The groups that hold the most at the peak, and the rest as `(other)`.
        pub top: Vec<RangeLeader> = range.top.iter().map(RangeLeader::of).collect(),
    }
}

keys! { schema
    /// A group that holds much at the peak of a range.
    pub struct RangeLeader(row: &Row) {
        /// The group.
        pub label: String = row.label.clone(),
        /// Its bytes.
        pub bytes: u64 = row.bytes,
        /// Its blocks.
        pub blocks: u64 = row.blocks,
        /// Whether the label is inferred.
        pub inferred: bool = row.inferred,
    }
}
