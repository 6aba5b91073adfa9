//! The last line of JSON that `memviz ranks` writes, about all ranks. The lines before it are summaries:
//! [`crate::wire::ranks::RankSummary`] and the other kinds of [`crate::wire::ranks::RankLine`].

use super::words::relation;
use crate::analysis::ranks::{
    DifferenceRow, Duplicate, FailedRow, Figure, Group, Outlier, RanksReport, Relation, SameFailure, Scale, Spread,
};
use crate::replay::Metric;
use crate::report::common::json::keys;
use crate::wire::ranks::{EmptyRank, FailedInput, FailureSignature, RankLine, RankSummary, SkippedInput};
use serde::Serialize;

/// A line of JSON that `memviz ranks` writes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RanksAnswer<'a> {
    /// Changes when the meaning of a key does.
    pub schema_version: u32,
    /// `ranks`.
    pub command: &'static str,
    /// The subject of the line.
    #[serde(flatten)]
    pub line: RanksLine<'a>,
}

/// The rest of a line, by its `line`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum RanksLine<'a> {
    /// A rank, on one device.
    Rank(Box<RankSummary>),
    /// A recording in which no memory was allocated on any device.
    Empty(EmptyRank),
    /// An input that could not be analyzed.
    Failed(FailedInput),
    /// A file that is neither a recording nor a summary.
    Skipped(SkippedInput),
    /// All ranks together: the last line.
    Across(Across<'a>),
}

keys! { schema
    /// The comparison of the ranks.
    pub struct Across<'a>(report: &'a RanksReport) {
        let count = |is: fn(&RankLine) -> bool| report.lines.iter().filter(|&line| is(line)).count();
        let ranked = |outlier: &'a Outlier| Some(RankOutlier::of(report, outlier, report.rank(outlier.row)?));
        /// The metric that is attributed.
        pub metric: Metric = report.metric,
        /// Number of inputs that could not be analyzed.
        pub failed: usize = count(|line| matches!(line, RankLine::Failed(_))),
        /// Number of files that are neither recordings nor summaries.
        pub skipped: usize = count(|line| matches!(line, RankLine::Skipped(_))),
        /// How figures are distributed, by kind of memory.
        pub across: Vec<AcrossGroup> = report.groups.iter().map(|group| AcrossGroup::of(report, group)).collect(),
        /// Outlying maxima, by rank and device.
        pub outliers: Vec<RankOutlier<'a>> = report.outliers.iter().filter_map(ranked).collect(),
        /// Failed requests by signature; those on the most rows are first.
        pub failures: Vec<RanksFailure<'a>> =
            report.failures.iter().map(|failure| RanksFailure::of(report, failure)).collect(),
        /// Number of rows of earlier runs that failures are compared with; null without `--earlier`.
        pub earlier_rows: Option<usize> = report.earlier,
        /// Failed requests without a signature: those after the first five of a row, and those of recordings that do not show the
        /// cause.
        pub unsigned_requests: u64 = report.unsigned(),
        /// Ranks that occur more than once.
        pub duplicates: &'a [Duplicate] = &report.duplicates,
        /// Ranks without a row.
        pub missing: Vec<MissingRanks> = report.missing.iter().map(MissingRanks::of).collect(),
    }
}

keys! { schema
    /// Rows about one kind of memory.
    pub struct AcrossGroup(report: &RanksReport, group: &Group) {
        let programs = match &group.relation {
            Relation::Programs(programs) => programs.as_slice(),
            _ => &[],
        };
        /// `device`, `pinned_host` or `cpu`.
        pub memory: &'static str = group.memory.name(),
        /// The relation of the recordings, as far as is known: `ranks` of one run; different `programs`; `dumps` of one process,
        /// which start with the same entry; `apart`, one after the other on the same device. Only ranks have outliers.
        pub relation: &'static str = group.relation.name(),
        /// The same in words; null for ranks.
        pub because: Option<String> = relation(report, group),
        /// The rows of each program, if there are several.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub programs: Vec<Vec<RankName>> =
            programs.iter().map(|rows| rows.iter().filter_map(|&row| name(report, row)).collect()).collect(),
        /// Number of rows.
        pub rows: usize = group.members.len(),
        /// The rank that represents the median.
        pub median_rank: Option<RankName> = name(report, group.median_rank),
        /// Figures that at least one rank has.
        pub figures: Vec<FigureSpread> =
            group.spreads.iter().map(|(figure, spread)| FigureSpread::of(report, *figure, spread)).collect(),
    }
}

keys! { schema
    /// A row, by its rank.
    pub struct RankName(rank: &RankSummary) {
        /// Number of the rank.
        pub rank: u64 = rank.rank,
        /// Its device.
        pub device: i32 = rank.device,
    }
}

keys! { schema
    /// How a figure is distributed.
    pub struct FigureSpread(report: &RanksReport, figure: Figure, spread: &Spread) {
        /// A metric, whose maxima these are; or `baseline`, `inactive`, or `outside`: in use on the device, but not
        /// reserved by PyTorch's allocator.
        pub figure: &'static str = figure.name(),
        /// Number of rows that have it.
        pub values: usize = spread.count,
        /// The lowest value.
        pub min_bytes: i64 = spread.min.0,
        /// The first row that has it.
        pub min: Option<RankName> = name(report, spread.min.1),
        /// The median; if two values are in the middle, their mean, rounded down.
        pub median_bytes: i64 = spread.median,
        /// The highest value.
        pub max_bytes: i64 = spread.max.0,
        /// The first row that has it.
        pub max: Option<RankName> = name(report, spread.max.1),
        /// Highest divided by median; null if the median is not positive.
        pub skew: Option<f64> = spread.skew(),
        /// The unit of deviations in scores.
        pub scale: Scale = spread.scale,
    }
}

keys! { schema
    /// An outlying maximum.
    pub struct RankOutlier<'a>(report: &RanksReport, outlier: &'a Outlier, rank: &'a RankSummary) {
        let difference = outlier.difference.as_ref();
        /// Number of the rank.
        pub rank: u64 = rank.rank,
        /// Its device.
        pub device: i32 = rank.device,
        /// Its recording.
        pub path: &'a str = &rank.path,
        /// The metric.
        pub metric: Metric = outlier.metric,
        /// Its maximum.
        pub bytes: i64 = outlier.bytes,
        /// The median over the ranks.
        pub median_bytes: i64 = outlier.median_bytes,
        /// Robust z-score.
        pub score: f64 = outlier.score,
        /// The rank that `rows` compare with; null for metrics that are not attributed.
        pub reference: Option<RankName> = difference.and_then(|difference| name(report, difference.reference)),
        /// The sum of all rows: bytes that the rank holds at its peak in excess of the reference.
        pub delta_bytes: Option<i128> = difference.map(|difference| difference.delta_bytes),
        /// Sites that differ, the largest difference first. Empty for metrics that are not attributed.
        pub rows: &'a [DifferenceRow] = difference.map_or(&[], |difference| &difference.rows),
    }
}

keys! { schema
    /// Failed requests that have the same signature.
    pub struct RanksFailure<'a>(report: &RanksReport, failure: &'a SameFailure) {
        let row = |&(row, requests): &(usize, u64)| {
            report.rank(row).map(|rank| FailedRow { rank: rank.rank, path: rank.path.clone(), requests })
        };
        /// Their common signature.
        pub signature: &'a FailureSignature = &failure.signature,
        /// Number of these requests.
        pub requests: u64 = failure.requests(),
        /// The rows that have such requests.
        pub rows: Vec<FailedRow> = failure.rows.iter().filter_map(row).collect(),
        /// The rows of earlier runs that have such requests.
        pub earlier: &'a [FailedRow] = &failure.earlier,
    }
}

keys! { schema
    /// Consecutive ranks.
    pub struct MissingRanks(range: &(u64, u64)) {
        /// The first one.
        pub from: u64 = range.0,
        /// The last one.
        pub to: u64 = range.1,
    }
}

fn name(report: &RanksReport, row: usize) -> Option<RankName> {
    report.rank(row).map(RankName::of)
}
