//! Which rank of a distributed run differs from the others, and why.
//!
//! In: a [`RankLine`] for each rank and device, from recordings or from summaries that another machine wrote. Out: a
//! [`RanksReport`]. A summary has a few kilobytes, regardless of the size of the recording, so thousands of them can be
//! joined.

mod code;
mod difference;
mod failures;
mod number;
mod outliers;
mod relation;
mod summary;

pub use difference::{Difference, DifferenceRow};
pub use failures::{FailedRow, SameFailure};
pub use number::{RankNumber, rank_numbers};
pub use outliers::{MIN_RANKS, MIN_SHARE, Scale, Spread};
pub use relation::Relation;
pub use summary::{SummaryOptions, TOP, summarize};

use crate::model::{CPU_DEVICE, DeviceId, HOST_DEVICE};
use crate::replay::{Bound, Metric};
use crate::sorting::SortRows;
use crate::wire::ranks::{FailedInput, RankLine, RankSource, RankSummary};
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::HashMap;

names! {
    /// The kind of memory of a row. Only rows of one kind are compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MemoryKind {
        Device = "device",
        Pinned = "pinned_host",
        /// Memory of the CPU, in profiler traces.
        Cpu = "cpu",
    }
}

impl MemoryKind {
    pub fn of(device: DeviceId) -> Self {
        match device {
            HOST_DEVICE => Self::Pinned,
            CPU_DEVICE => Self::Cpu,
            _ => Self::Device,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Maximum(Metric),
    /// Allocated before the first kept entry.
    Baseline,
    /// Reserved and not active, at the peak of the selected metric.
    Inactive,
    /// In use on the device but not reserved by PyTorch's allocator, at the sample with the most memory in use.
    Outside,
}

impl Figure {
    pub const ALL: [Self; 7] = [
        Self::Maximum(Metric::Allocated),
        Self::Maximum(Metric::Active),
        Self::Maximum(Metric::Requested),
        Self::Maximum(Metric::Reserved),
        Self::Baseline,
        Self::Inactive,
        Self::Outside,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Maximum(metric) => metric.name(),
            Self::Baseline => "baseline",
            Self::Inactive => "inactive",
            Self::Outside => "outside",
        }
    }

    /// Its value for a rank; `None` if the recording does not show it.
    pub fn of(self, rank: &RankSummary) -> Option<i64> {
        match self {
            Self::Maximum(metric) => (rank.bound(metric) != Some(Bound::Unknown)).then(|| rank.maxima.get(metric)),
            // Without a history, what was there before is unknown.
            Self::Baseline => (rank.entries > 0).then_some(rank.baseline_bytes),
            Self::Inactive => rank.inactive_bytes,
            Self::Outside => rank.device_memory.map(|memory| memory.outside_bytes),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Group {
    pub memory: MemoryKind,
    pub relation: Relation,
    /// Its rows, as indexes into [`RanksReport::lines`], in order of rank and device.
    pub members: Vec<usize>,
    /// How each figure is distributed; those that no rank has are left out.
    pub spreads: Vec<(Figure, Spread)>,
    /// The row whose maximum of the selected metric is closest to the median: among several, the lower maximum, then the first row.
    pub median_rank: usize,
}

/// A maximum of one rank that is far from those of the other ranks.
#[derive(Clone, Debug)]
pub struct Outlier {
    /// Index of the row in [`RanksReport::lines`].
    pub row: usize,
    pub metric: Metric,
    pub bytes: i64,
    pub median_bytes: i64,
    /// Robust z-score: see [`Scale`].
    pub score: f64,
    /// The unit of the deviation.
    pub scale: Scale,
    /// The difference from the median rank; only for the attributed metric.
    pub difference: Option<Difference>,
}

/// Several files for one rank and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DuplicateRank"))]
pub struct Duplicate {
    pub rank: u64,
    pub device: DeviceId,
    /// The number of rows.
    pub rows: usize,
}

#[derive(Clone, Debug, Default)]
pub struct RanksReport {
    pub metric: Metric,
    /// Whether something suggests that the recordings are not ranks of one run, and nothing suggests that they are.
    pub unrelated: bool,
    /// A line for each rank and device, and for each input without one, in the order of the inputs.
    pub lines: Vec<RankLine>,
    pub groups: Vec<Group>,
    /// Outlying maxima, by rank and device. Only ranks of one run have any.
    pub outliers: Vec<Outlier>,
    /// Failed requests by signature; those on the most rows are first.
    pub failures: Vec<SameFailure>,
    /// Number of rows of earlier runs that failed requests are compared with; `None` if there is no earlier run.
    pub earlier: Option<usize>,
    pub duplicates: Vec<Duplicate>,
    /// Ranks below the highest one, or below the recorded world size, without a row: from and to, both included.
    pub missing: Vec<(u64, u64)>,
}

impl RanksReport {
    pub fn of(lines: Vec<RankLine>, metric: Metric) -> Self {
        let mut by_kind: IndexMap<MemoryKind, Vec<usize>> = IndexMap::new();
        for (index, rank) in ranks(&lines) {
            by_kind.entry(MemoryKind::of(rank.device)).or_default().push(index);
        }
        by_kind.sort_unstable_keys();
        let groups: Vec<Group> =
            by_kind.into_iter().map(|(memory, members)| group(&lines, memory, members, metric)).collect();
        let related = |group: &&Group| group.relation == Relation::Ranks;
        let outliers = groups.iter().flat_map(|group| find_outliers(&lines, group, metric)).collect();
        let claim_ranks = relation::claim_ranks(ranks(&lines).map(|(_, rank)| rank));
        let unrelated = !claim_ranks && groups.iter().any(|group| !related(&group));
        // Numbers of rows that are not ranks have no meaning.
        let (duplicates, missing) =
            if unrelated { (Vec::new(), Vec::new()) } else { (duplicates(&lines), missing(&lines)) };
        let failures = failures::same(&lines);
        Self { metric, unrelated, lines, groups, outliers, failures, earlier: None, duplicates, missing }
    }

    /// Adds which failures happened in earlier runs. Earlier runs are not part of any other comparison.
    #[must_use]
    pub fn with_earlier(mut self, lines: &[RankLine]) -> Self {
        failures::add_earlier(&mut self.failures, lines);
        self.earlier = Some(ranks(lines).count());
        self
    }

    /// Number of failed requests without a signature: those after the first few of a row, and those of recordings that
    /// do not show the cause.
    pub fn unsigned(&self) -> u64 {
        let signed = |rank: &RankSummary| rank.failures.iter().fold(0, |sum: u64, of| sum.saturating_add(of.requests));
        self.ranks().fold(0, |sum: u64, (_, rank)| sum.saturating_add(rank.ooms.saturating_sub(signed(rank))))
    }

    /// The rows of ranks with their indexes, in the order of the inputs.
    pub fn ranks(&self) -> impl Iterator<Item = (usize, &RankSummary)> {
        ranks(&self.lines)
    }

    pub fn rank(&self, row: usize) -> Option<&RankSummary> {
        self.lines.get(row).and_then(RankLine::rank)
    }

    pub fn failed(&self) -> impl Iterator<Item = &FailedInput> {
        self.lines.iter().filter_map(|line| match line {
            RankLine::Failed(failed) => Some(failed),
            _ => None,
        })
    }
}

fn ranks(lines: &[RankLine]) -> impl Iterator<Item = (usize, &RankSummary)> {
    lines.iter().enumerate().filter_map(|(index, line)| Some((index, line.rank()?)))
}

/// The values of a figure and the rows they are from, in the order of the members.
fn values(lines: &[RankLine], members: &[usize], figure: Figure) -> (Vec<usize>, Vec<i64>) {
    members.iter().filter_map(|&row| Some((row, figure.of(lines.get(row)?.rank()?)?))).unzip()
}

fn group(lines: &[RankLine], memory: MemoryKind, mut members: Vec<usize>, metric: Metric) -> Group {
    members.sort_rows_by_key(|&row| lines.get(row).and_then(RankLine::rank).map(|rank| (rank.rank, rank.device)));
    let spreads = Figure::ALL.into_iter().filter_map(|figure| {
        let (rows, values) = values(lines, &members, figure);
        Some((figure, Spread::of(&values, &rows)?))
    });
    let spreads: Vec<_> = spreads.collect();
    let median_rank = median_rank(lines, &members, metric);
    Group { memory, relation: Relation::of(lines, &members), members, spreads, median_rank }
}

fn median_rank(lines: &[RankLine], members: &[usize], metric: Metric) -> usize {
    let (rows, maxima) = values(lines, members, Figure::Maximum(metric));
    let median = Spread::of(&maxima, &rows).map_or(0, |spread| spread.median);
    let nearest = rows.iter().zip(&maxima).min_by_key(|&(_, &bytes)| (bytes.abs_diff(median), bytes));
    nearest.map(|(&row, _)| row).or_else(|| members.first().copied()).unwrap_or(0)
}

fn find_outliers(lines: &[RankLine], group: &Group, attributed: Metric) -> Vec<Outlier> {
    let members = group.relation.comparable(&group.members);
    let median_rank = median_rank(lines, members, attributed);
    let mut found = Vec::new();
    for metric in Metric::ALL {
        let (rows, maxima) = values(lines, members, Figure::Maximum(metric));
        let Some(Spread { scale, .. }) = Spread::of(&maxima, &rows) else { continue };
        for (index, score, median_bytes) in outliers::outliers(&maxima) {
            let (row, bytes) = (rows[index], maxima[index]);
            let reference = lines.get(median_rank).and_then(RankLine::rank).filter(|_| metric == attributed);
            let rank = lines.get(row).and_then(RankLine::rank);
            let difference =
                rank.zip(reference).map(|(rank, reference)| Difference::between(rank, reference, median_rank));
            found.push(Outlier { row, metric, bytes, median_bytes, score, scale, difference });
        }
    }
    let places: HashMap<usize, usize> = group.members.iter().enumerate().map(|(place, &row)| (row, place)).collect();
    found.sort_rows_by_key(|outlier| places.get(&outlier.row).copied());
    found
}

fn duplicates(lines: &[RankLine]) -> Vec<Duplicate> {
    let mut counts: IndexMap<(u64, DeviceId), usize> = IndexMap::new();
    for (_, rank) in ranks(lines) {
        *counts.entry((rank.rank, rank.device)).or_default() += 1;
    }
    let twice = counts.into_iter().filter(|&(_, rows)| rows > 1);
    let mut duplicates: Vec<_> = twice.map(|((rank, device), rows)| Duplicate { rank, device, rows }).collect();
    duplicates.sort_rows_by_key(|duplicate| (duplicate.rank, duplicate.device));
    duplicates
}

/// Gaps in the numbers of ranks. Numbers that only represent the order of the inputs have no meaningful gaps.
fn missing(lines: &[RankLine]) -> Vec<(u64, u64)> {
    let numbered = |rank: &&RankSummary| rank.rank_source != RankSource::Order;
    let mut present: Vec<u64> = ranks(lines).map(|(_, rank)| rank).filter(numbered).map(|rank| rank.rank).collect();
    present.extend(lines.iter().filter_map(|line| match line {
        RankLine::Empty(empty) if empty.rank_source != RankSource::Order => Some(empty.rank),
        _ => None,
    }));
    if present.is_empty() {
        return Vec::new();
    }
    let world_size = ranks(lines).filter_map(|(_, rank)| rank.world_size).max().unwrap_or(0);
    present.push(world_size);
    present.sort_unstable();
    let mut next = 0;
    let mut missing = Vec::new();
    for rank in present {
        if rank > next {
            missing.push((next, rank - 1));
        }
        next = next.max(rank.saturating_add(1));
    }
    missing
}
