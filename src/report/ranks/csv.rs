//! `memviz ranks` as CSV: a line for each rank and device, and for each input that could not be analyzed.

use crate::analysis::ranks::{Group, RanksReport, Relation};
use crate::replay::{Bound, Counters, Metric};
use crate::report::common::csv::{cell, optional, table};
use crate::wire::ranks::{RankLine, RankSummary};
use serde_json::Value;
use std::io::{self, Write};

/// A line of the report, and its index.
struct Input<'r> {
    report: &'r RanksReport,
    row: usize,
    line: &'r RankLine,
}

impl<'r> Input<'r> {
    /// A cell about a rank: empty for inputs without one.
    fn of(&self, shown: impl Fn(&'r RankSummary) -> String) -> String {
        self.line.rank().map(shown).unwrap_or_default()
    }

    /// Without a history, nothing is known about the start or about failed requests.
    fn of_history(&self, shown: impl Fn(&'r RankSummary) -> String) -> String {
        self.of(|rank| if rank.entries > 0 { shown(rank) } else { String::new() })
    }

    fn counter(&self, metric: Metric, counters: fn(&RankSummary) -> &Counters) -> String {
        self.of(|rank| optional((rank.bound(metric) != Some(Bound::Unknown)).then(|| counters(rank).get(metric))))
    }

    fn maximum(&self, metric: Metric) -> String {
        self.counter(metric, |rank| &rank.maxima)
    }

    fn bound(&self, metric: Metric) -> String {
        self.of(|rank| rank.bound(metric).map_or("exact", Bound::name).to_owned())
    }

    fn group(&self) -> Option<&'r Group> {
        self.report.groups.iter().find(|group| group.members.contains(&self.row))
    }

    fn program(&self) -> Option<usize> {
        let Relation::Programs(programs) = &self.group()?.relation else { return None };
        programs.iter().position(|rows| rows.contains(&self.row))
    }

    fn outliers(&self) -> String {
        let outliers = self.report.outliers.iter().filter(|outlier| outlier.row == self.row);
        outliers.map(|outlier| outlier.metric.name()).collect::<Vec<_>>().join(";")
    }

    fn number(&self) -> String {
        match self.line {
            RankLine::Rank(rank) => rank.rank.to_string(),
            RankLine::Empty(empty) => empty.rank.to_string(),
            RankLine::Failed(_) | RankLine::Skipped(_) => String::new(),
        }
    }

    fn path(&self) -> &str {
        match self.line {
            RankLine::Rank(rank) => &rank.path,
            RankLine::Empty(empty) => &empty.path,
            RankLine::Failed(failed) => &failed.path,
            RankLine::Skipped(skipped) => &skipped.path,
        }
    }

    fn error(&self) -> &str {
        match self.line {
            RankLine::Empty(_) => "no memory on any device",
            RankLine::Failed(failed) => &failed.error,
            RankLine::Rank(_) | RankLine::Skipped(_) => "",
        }
    }
}

pub(crate) fn write(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    let lines = report.lines.iter().enumerate().filter(|(_, line)| !matches!(line, RankLine::Skipped(_)));
    table(
        lines.map(|(row, line)| Input { report, row, line }),
        &[
            ("rank", Input::number),
            ("device", |line| line.of(|rank| rank.device.to_string())),
            ("max_allocated_bytes", |line| line.maximum(Metric::Allocated)),
            ("max_active_bytes", |line| line.maximum(Metric::Active)),
            ("max_requested_bytes", |line| line.maximum(Metric::Requested)),
            ("max_reserved_bytes", |line| line.maximum(Metric::Reserved)),
            ("baseline_bytes", |line| line.of_history(|rank| rank.baseline_bytes.to_string())),
            ("inactive_bytes", |line| line.of(|rank| optional(rank.inactive_bytes))),
            ("inactive_share", |line| line.of(|rank| optional(rank.inactive_share()))),
            ("ooms", |line| line.of_history(|rank| rank.ooms.to_string())),
            ("end_allocated_bytes", |line| line.counter(Metric::Allocated, |rank| &rank.end)),
            ("end_reserved_bytes", |line| line.counter(Metric::Reserved, |rank| &rank.end)),
            ("outlier", Input::outliers),
            ("largest_site", |line| line.of(|rank| rank.largest().map(|row| cell(&row.label)).unwrap_or_default())),
            ("largest_site_bytes", |line| line.of(|rank| optional(rank.largest().map(|row| row.bytes)))),
            ("largest_site_inferred", |line| line.of(|rank| optional(rank.largest().map(|row| row.inferred)))),
            ("allocated_bound", |line| line.bound(Metric::Allocated)),
            ("active_bound", |line| line.bound(Metric::Active)),
            ("requested_bound", |line| line.bound(Metric::Requested)),
            ("reserved_bound", |line| line.bound(Metric::Reserved)),
            ("entries", |line| line.of(|rank| rank.entries.to_string())),
            ("complete_history", |line| line.of(|rank| rank.complete_history.to_string())),
            ("anomalies", |line| line.of(|rank| rank.anomalies.to_string())),
            ("rank_source", |line| {
                let name = |value: Value| value.as_str().unwrap_or_default().to_owned();
                line.of(|rank| serde_json::to_value(rank.rank_source).map(name).unwrap_or_default())
            }),
            ("relation", |line| optional(line.group().map(|group| group.relation.name()))),
            ("program", |line| optional(line.program())),
            ("signatures", |line| {
                line.of(|rank| {
                    let ids = rank.failures.iter().map(|failure| failure.signature.id.as_str());
                    cell(&ids.collect::<Vec<_>>().join(";"))
                })
            }),
            ("device_total_bytes", |line| {
                line.of(|rank| optional(rank.device_memory.map(|memory| memory.total_bytes)))
            }),
            ("device_used_bytes", |line| line.of(|rank| optional(rank.device_memory.map(|memory| memory.used_bytes)))),
            ("outside_bytes", |line| line.of(|rank| optional(rank.device_memory.map(|memory| memory.outside_bytes)))),
            ("path", |line| cell(line.path())),
            ("error", |line| cell(line.error())),
        ],
        out,
    )
}
