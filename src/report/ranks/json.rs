//! The last line of JSON that `memviz ranks` writes, about all ranks. The lines before it are summaries:
//! [`crate::wire::ranks::RankSummary`] and the other kinds of [`crate::wire::ranks::RankLine`].

use super::words::relation;
use crate::analysis::ranks::{
    DifferenceRow, Duplicate, FailedRow, Group, Outlier, RanksReport, Relation, SameFailure, Scale,
};
use crate::replay::Metric;
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

/// The comparison of the ranks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Across<'a> {
    /// The metric that is attributed.
    pub metric: Metric,
    /// Number of inputs that could not be analyzed.
    pub failed: usize,
    /// Number of files that are neither recordings nor summaries.
    pub skipped: usize,
    /// How figures are distributed, by kind of memory.
    pub across: Vec<AcrossGroup>,
    /// Outlying maxima, by rank and device.
    pub outliers: Vec<RankOutlier<'a>>,
    /// Failed requests by signature; those on the most rows are first.
    pub failures: Vec<RanksFailure<'a>>,
    /// Number of rows of earlier runs that failures are compared with; null without `--earlier`.
    pub earlier_rows: Option<usize>,
    /// Failed requests without a signature: those after the first five of a row, and those of recordings that do not show the
    /// cause.
    pub unsigned_requests: u64,
    /// Ranks that occur more than once.
    pub duplicates: &'a [Duplicate],
    /// Ranks without a row.
    pub missing: Vec<MissingRanks>,
}

/// Rows about one kind of memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcrossGroup {
    /// `device`, `pinned_host` or `cpu`.
    pub memory: &'static str,
    /// The relation of the recordings, as far as is known: `ranks` of one run; different `programs`; `dumps` of one process,
    /// which start with the same entry; `apart`, one after the other on the same device. Only ranks have outliers.
    pub relation: &'static str,
    /// The same in words; null for ranks.
    pub because: Option<String>,
    /// The rows of each program, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Vec<RankName>>,
    /// Number of rows.
    pub rows: usize,
    /// The rank that represents the median.
    pub median_rank: Option<RankName>,
    /// Figures that at least one rank has.
    pub figures: Vec<FigureSpread>,
}

/// A row, by its rank.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankName {
    /// Number of the rank.
    pub rank: u64,
    /// Its device.
    pub device: i32,
}

/// How a figure is distributed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FigureSpread {
    /// A metric, whose maxima these are; or `baseline`, `inactive`, or `outside`: in use on the device, but not
    /// reserved by PyTorch's allocator.
    pub figure: &'static str,
    /// Number of rows that have it.
    pub values: usize,
    /// The lowest value.
    pub min_bytes: i64,
    /// The first row that has it.
    pub min: Option<RankName>,
    /// The median; if two values are in the middle, their mean, rounded down.
    pub median_bytes: i64,
    /// The highest value.
    pub max_bytes: i64,
    /// The first row that has it.
    pub max: Option<RankName>,
    /// Highest divided by median; null if the median is not positive.
    pub skew: Option<f64>,
    /// The unit of deviations in scores.
    pub scale: Scale,
}

/// An outlying maximum.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankOutlier<'a> {
    /// Number of the rank.
    pub rank: u64,
    /// Its device.
    pub device: i32,
    /// Its recording.
    pub path: &'a str,
    /// The metric.
    pub metric: Metric,
    /// Its maximum.
    pub bytes: i64,
    /// The median over the ranks.
    pub median_bytes: i64,
    /// Robust z-score.
    pub score: f64,
    /// The rank that `rows` compare with; null for metrics that are not attributed.
    pub reference: Option<RankName>,
    /// The sum of all rows: bytes that the rank holds at its peak in excess of the reference.
    pub delta_bytes: Option<i128>,
    /// Sites that differ, the largest difference first. Empty for metrics that are not attributed.
    pub rows: &'a [DifferenceRow],
}

/// Failed requests that have the same signature.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RanksFailure<'a> {
    /// Their common signature.
    pub signature: &'a FailureSignature,
    /// Number of these requests.
    pub requests: u64,
    /// The rows that have such requests.
    pub rows: Vec<FailedRow>,
    /// The rows of earlier runs that have such requests.
    pub earlier: &'a [FailedRow],
}

/// Consecutive ranks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingRanks {
    /// The first one.
    pub from: u64,
    /// The last one.
    pub to: u64,
}

/// The comparison of the ranks.
pub fn across(report: &RanksReport) -> Across<'_> {
    let lines = |is: fn(&RankLine) -> bool| report.lines.iter().filter(|&line| is(line)).count();
    Across {
        metric: report.metric,
        failed: lines(|line| matches!(line, RankLine::Failed(_))),
        skipped: lines(|line| matches!(line, RankLine::Skipped(_))),
        across: report.groups.iter().map(|of| group(report, of)).collect(),
        outliers: report.outliers.iter().filter_map(|of| Some(outlier(report, of, report.rank(of.row)?))).collect(),
        failures: report.failures.iter().map(|of| failure(report, of)).collect(),
        earlier_rows: report.earlier,
        unsigned_requests: report.unsigned(),
        duplicates: &report.duplicates,
        missing: report.missing.iter().map(|&(from, to)| MissingRanks { from, to }).collect(),
    }
}

fn name(report: &RanksReport, row: usize) -> Option<RankName> {
    report.rank(row).map(|rank| RankName { rank: rank.rank, device: rank.device })
}

fn group(report: &RanksReport, group: &Group) -> AcrossGroup {
    let figures = group.spreads.iter().map(|(figure, spread)| FigureSpread {
        figure: figure.name(),
        values: spread.count,
        min_bytes: spread.min.0,
        min: name(report, spread.min.1),
        median_bytes: spread.median,
        max_bytes: spread.max.0,
        max: name(report, spread.max.1),
        skew: spread.skew(),
        scale: spread.scale,
    });
    AcrossGroup {
        memory: group.memory.name(),
        relation: group.relation.name(),
        because: relation(report, group),
        programs: match &group.relation {
            Relation::Programs(programs) => {
                programs.iter().map(|rows| rows.iter().filter_map(|&row| name(report, row)).collect()).collect()
            }
            _ => Vec::new(),
        },
        rows: group.members.len(),
        median_rank: name(report, group.median_rank),
        figures: figures.collect(),
    }
}

fn failure<'a>(report: &RanksReport, failure: &'a SameFailure) -> RanksFailure<'a> {
    let row = |&(row, requests): &(usize, u64)| {
        report.rank(row).map(|rank| FailedRow { rank: rank.rank, path: rank.path.clone(), requests })
    };
    RanksFailure {
        signature: &failure.signature,
        requests: failure.requests(),
        rows: failure.rows.iter().filter_map(row).collect(),
        earlier: &failure.earlier,
    }
}

fn outlier<'a>(report: &RanksReport, outlier: &'a Outlier, rank: &'a RankSummary) -> RankOutlier<'a> {
    let difference = outlier.difference.as_ref();
    RankOutlier {
        rank: rank.rank,
        device: rank.device,
        path: &rank.path,
        metric: outlier.metric,
        bytes: outlier.bytes,
        median_bytes: outlier.median_bytes,
        score: outlier.score,
        reference: difference.and_then(|difference| name(report, difference.reference)),
        delta_bytes: difference.map(|difference| difference.delta_bytes),
        rows: difference.map_or(&[], |difference| &difference.rows),
    }
}
